//! Streams of clients: reports in, assignments out.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{Stream, unfold};
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::sleep;
use tonic::body::Body;
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};

use super::Quotas;
use super::book::StreamItem;
use super::messages::LenientCodec;
use crate::proto::envoy::service::rate_limit_quota::v3::{RateLimitQuotaResponse, RateLimitQuotaUsageReports};

/// Path of the method.
pub const QUOTAS_PATH: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
/// Maximum number of messages that wait for a client to read them. There is at most one per second, and one
/// more at the beginning.
const WAITING_MAX: usize = 4;
/// Interval at which a silent client's permission and the state of its stream are checked.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Caller on a stream.
#[derive(Clone)]
pub struct Asker {
    /// Name of its token; empty if none is needed.
    pub token: String,
    /// Checks that the token is still valid.
    pub may_ask: Arc<dyn Fn() -> Result<(), Status> + Send + Sync>,
}

/// The gRPC service.
#[derive(Clone)]
pub struct Streams {
    quotas: Arc<Quotas>,
    message_bytes_max: usize,
}

/// Open stream. On drop, everything that it reported is forgotten.
struct Open {
    quotas: Arc<Quotas>,
    number: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.quotas.book().end(self.number);
    }
}

type Answers = Pin<Box<dyn Stream<Item = StreamItem> + Send>>;

impl Streams {
    /// Service with reports of at most `message_bytes_max` bytes.
    pub fn new(quotas: Arc<Quotas>, message_bytes_max: usize) -> Self {
        Self { quotas, message_bytes_max }
    }

    /// Response to a request for a stream: as the generated server's, with another codec.
    pub async fn serve(&self, request: hyper::Request<Body>) -> hyper::Response<Body> {
        let mut server = Grpc::new(LenientCodec).max_decoding_message_size(self.message_bytes_max);
        server.streaming(self.clone(), request).await
    }

    fn begin(&self, mut request: Request<Streaming<RateLimitQuotaUsageReports>>) -> Result<Response<Answers>, Status> {
        let asker = request.extensions_mut().remove::<Asker>();
        let asker = asker.ok_or_else(|| Status::internal("the request has no asker"))?;
        let (sender, receiver) = channel(WAITING_MAX);
        let number = self.quotas.book().open(sender.clone(), &asker.token, self.quotas.now())?;
        let open = Open { quotas: Arc::clone(&self.quotas), number };
        tokio::spawn(listen(open, asker, request.into_inner(), sender));
        let sent = unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
        Ok(Response::new(Box::pin(sent)))
    }
}

impl StreamingService<RateLimitQuotaUsageReports> for Streams {
    type Response = RateLimitQuotaResponse;
    type ResponseStream = Answers;
    type Future = Ready<Result<Response<Answers>, Status>>;

    fn call(&mut self, request: Request<Streaming<RateLimitQuotaUsageReports>>) -> Self::Future {
        ready(self.begin(request))
    }
}

/// Applies a client's reports until its stream ends, or until it is sent an error, for example that its token
/// is no longer valid.
async fn listen(
    open: Open,
    asker: Asker,
    mut reports: Streaming<RateLimitQuotaUsageReports>,
    sender: Sender<StreamItem>,
) {
    loop {
        let report = tokio::select! {
            report = reports.message() => Some(report),
            () = sleep(LOOK_AGAIN) => None,
            // The client disconnected, or its stream was ended.
            () = sender.closed() => return,
        };
        let outcome = match report {
            None => (asker.may_ask)().and_then(|()| open.quotas.book().look(open.number)),
            Some(Ok(Some(report))) => (asker.may_ask)().and_then(|()| open.quotas.report(open.number, report)),
            Some(Ok(None)) => return,
            Some(Err(status)) => Err(status),
        };
        if let Err(status) = outcome {
            // The error follows the items sent before, if the client reads them.
            drop(open);
            let _ = sender.send(Err(status)).await;
            return;
        }
    }
}
