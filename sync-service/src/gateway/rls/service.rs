//! The door itself: lets requests in, and finds the service that answers.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Request, Response};
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as Call;
use tonic::server::NamedService;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

use super::{answering, asking, reflection};
use crate::access::credentials::Door;
use crate::access::{Refused, bearer};
use crate::connections::Peer;
use crate::gateway::Gateway;
use crate::gateway::proto::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use crate::gateway::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::metrics::Metrics;
use crate::secrets::Secrets;

/// The path of the one method that needs a token.
const CHECK_PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What the paths of methods begin with whose client asks again on the same stream, after an answer.
const CONVERSATIONS: &str = "/grpc.reflection.";

/// What a request may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long its message may take to arrive.
    pub body_timeout: Duration,
    /// The longest message, in bytes.
    pub body_bytes_max: usize,
}

/// Answers requests over gRPC.
pub(super) struct Service {
    secrets: Arc<Secrets>,
    metrics: Arc<Metrics>,
    limits: Limits,
    services: Vec<(&'static str, Box<dyn Serve>)>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.services.iter().map(|(name, _)| name).collect();
        f.debug_struct("Service").field("services", &names).finish_non_exhaustive()
    }
}

impl Service {
    /// A door to `gateway`, whose health `health` says. Requests must carry the tokens of `secrets`.
    pub(super) fn new(
        gateway: Arc<Gateway>,
        health: HealthServer<HealthService>,
        secrets: Arc<Secrets>,
        metrics: Arc<Metrics>,
        limits: Limits,
    ) -> Self {
        let checks = Checks { gateway, metrics: Arc::clone(&metrics) };
        let checks = RateLimitServiceServer::new(checks);
        let mut services = vec![
            served(checks.max_decoding_message_size(limits.body_bytes_max)),
            served(health.max_decoding_message_size(limits.body_bytes_max)),
        ];
        // It fails for descriptors that it cannot read, and these are part of the program.
        services.extend(reflection::present().map(served));
        services.extend(reflection::before().map(served));
        Self { secrets, metrics, limits, services }
    }

    /// The response to `request` of `peer`. What goes wrong is a gRPC status.
    pub(super) async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Arc<Peer>,
    ) -> Response<Body> {
        let path = request.uri().path();
        let name = path.strip_prefix('/').and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let service = self.services.iter().find(|(known, _)| *known == name);
        let Some((_, service)) = service else {
            let names: Vec<_> = self.services.iter().map(|(name, _)| *name).collect();
            let expected = format!("expected a method of {}, found {path}", names.join(", "));
            return Status::unimplemented(expected).into_http();
        };
        let request = if path.starts_with(CONVERSATIONS) {
            Ok(request.map(Body::new))
        } else {
            self.let_in(request, &peer).await
        };
        match request {
            Ok(request) => service.serve(request).await,
            Err(status) => status.into_http(),
        }
    }

    /// A request that may be made, with its whole message.
    async fn let_in(&self, request: Request<Incoming>, peer: &Peer) -> Result<Request<Body>, Status> {
        if request.uri().path() == CHECK_PATH {
            self.let_ask(request.headers(), peer)?;
        }
        let (head, body) = request.into_parts();
        let Limits { body_timeout, body_bytes_max } = self.limits;
        let read = timeout(body_timeout, Limited::new(body, body_bytes_max).collect()).await;
        let expected = || format!("expected the whole message within {} ms", body_timeout.as_millis());
        let body = read.map_err(|_| Status::deadline_exceeded(expected()))?.map_err(|error| {
            if error.is::<LengthLimitError>() {
                Status::invalid_argument(format!("expected a message of at most {body_bytes_max} bytes"))
            } else {
                Status::cancelled("the message broke off")
            }
        })?;
        Ok(Request::from_parts(head, Body::new(Full::new(body.to_bytes()))))
    }

    /// Lets in those who may check.
    fn let_ask(&self, headers: &HeaderMap, peer: &Peer) -> Result<(), Status> {
        let asker = self.secrets.access.asker(bearer(headers), Door::Check);
        let asker = asker.map_err(|refused| {
            self.secrets.refusals.log(peer.address.ip(), format!("{CHECK_PATH}: {refused:?}"));
            match refused {
                Refused::Door(name, _) => {
                    Status::permission_denied(format!("the token `{name}` is for another door: expected one with the role `check` in check_token_file"))
                }
                _ => Status::unauthenticated("expected the metadata `authorization: Bearer` with a token of check_token_file"),
            }
        })?;
        if let Some(asker) = asker {
            self.metrics.count_use(&asker.name);
        }
        Ok(())
    }
}

/// Makes the checks.
struct Checks {
    gateway: Arc<Gateway>,
    metrics: Arc<Metrics>,
}

#[tonic::async_trait]
impl RateLimitService for Checks {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<tonic::Response<RateLimitResponse>, Status> {
        let asks = asking::asks(request.get_ref())?;
        let verdicts = join_all(asks.into_iter().map(|ask| self.gateway.check(ask))).await;
        for verdict in &verdicts {
            self.metrics.count_check("grpc", verdict.decision.as_str());
        }
        answering::response(verdicts).map(tonic::Response::new)
    }
}

/// A service of any type.
trait Serve: Send + Sync {
    fn serve(&self, request: Request<Body>) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
}

impl<S> Serve for S
where
    S: Call<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    fn serve(&self, request: Request<Body>) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>> {
        let mut service = self.clone();
        Box::pin(async move {
            match service.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        })
    }
}

/// A service under its name.
fn served<S: Serve + NamedService + 'static>(service: S) -> (&'static str, Box<dyn Serve>) {
    (S::NAME, Box::new(service))
}
