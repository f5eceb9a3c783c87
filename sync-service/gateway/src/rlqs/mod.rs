//! Envoy's rate limit quota service (`envoy.service.rate_limit_quota.v3`) over gRPC: clients decide by themselves, by
//! assignments of this service.
//!
//! For each request that a client reports, the gateway's rules are checked as if the request had been checked here. So
//! its requests count against the same budgets as all others, and its assignments follow what the rules allow.
//!
//! ```text
//! messages.rs  reports, the check for a bucket; assignments in the form that Envoy understands
//! book.rs      all buckets and streams; bucket.rs, one bucket, divided among its clients
//! holder.rs    account of one client in a bucket
//! ```

mod book;
mod bucket;
mod holder;
mod messages;

use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::stream::{Stream, unfold};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::body::Body;
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use weir_protocol::time::SECOND_NS;
use weir_rules::RuleSet;
use weir_rules::algorithm::Algorithm;
use weir_rules::fleet_secret::FleetSecret;
use weir_rules::key::Missing;
use weir_rules::matching::Bits;
use weir_rules::mode::Mode;
use weir_rules::request::{Fetched, Values};
use weir_store::lock;

use super::proto::envoy::service::rate_limit_quota::v3::{RateLimitQuotaResponse, RateLimitQuotaUsageReports};
use super::request::Patience;
use super::{CheckDecision, CheckReply, CheckRequest, Gateway};
use crate::metrics::GatewayMetrics;
use book::{Book, Reported, StreamItem};
use bucket::{Due, DueResult, QuotaDecision};
use holder::HolderTerms;
use messages::LenientCodec;

/// Interval at which due checks are made: short, so that they are spread almost as evenly as requests.
const TICK: Duration = Duration::from_millis(25);
/// Delay after a report during which further reports are gathered, because each look visits all buckets.
const TOGETHER: Duration = Duration::from_millis(2);
/// Maximum number of checks per bucket and tick.
const CHECKS_MAX: usize = 64;

/// Divides quotas among clients that decide by themselves.
pub struct Quotas {
    gateway: Arc<Gateway>,
    metrics: GatewayMetrics,
    book: Mutex<Book>,
    reported: Notify,
    started: Instant,
}

impl Quotas {
    /// Service for the rules of `gateway`.
    pub fn new(gateway: Arc<Gateway>, metrics: GatewayMetrics) -> Arc<Self> {
        let (book, reported, started) = (Mutex::default(), Notify::new(), Instant::now());
        Arc::new(Self { gateway, metrics, book, reported, started })
    }

    /// Makes the checks and sends assignments until the task is aborted.
    pub async fn run(self: Arc<Self>) {
        let mut asking = JoinSet::new();
        loop {
            tokio::select! {
                () = sleep(TICK) => {}
                // Reports that arrive together are handled together.
                () = self.reported.notified() => sleep(TOGETHER).await,
            }
            while asking.try_join_next().is_some() {}
            let due = lock(&self.book).due(self.now());
            for (name, due) in due {
                let this = Arc::clone(&self);
                asking.spawn(async move {
                    let result = this.ask(&due).await;
                    lock(&this.book).apply(&name, &due, result);
                });
            }
            let (streams, buckets) = {
                let mut book = lock(&self.book);
                book.assign(self.now());
                book.counts()
            };
            self.metrics.quota_streams.set(i64::try_from(streams).unwrap_or(i64::MAX));
            self.metrics.quota_buckets.set(i64::try_from(buckets).unwrap_or(i64::MAX));
        }
    }

    /// Ends all streams for this reason.
    pub fn close(&self, why: &'static str) {
        lock(&self.book).close(why);
    }

    fn report(&self, stream: u64, reports: RateLimitQuotaUsageReports) -> Result<(), Status> {
        let now = self.now();
        let Reported { admitted, refused, uncounted } = lock(&self.book).report(stream, reports, now)?;
        let counts =
            [(CheckDecision::Allow, admitted), (CheckDecision::Limit, refused), (CheckDecision::Deny, uncounted)];
        for (decision, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            self.metrics.count_checks("quota", decision.as_str(), count);
        }
        self.reported.notify_one();
        Ok(())
    }

    /// Checks the due requests in several parts, each of which is allowed or refused as a whole.
    async fn ask(&self, due: &Due) -> DueResult {
        let (mut asked, mut given, mut last) = (0, 0, None);
        let pause = TICK / due.count.div_ceil(due.at_once);
        for _ in 0..CHECKS_MAX {
            let hits = due.at_once.min(due.count - asked);
            if hits == 0 {
                break;
            }
            if asked > 0 {
                // The pauses give other callers the same chance.
                sleep(pause).await;
            }
            let mut ask = CheckRequest { hits, ..due.ask.clone() };
            let reply = self.gateway.decide(&mut ask, &mut Patience::endless()).await.0;
            asked += hits;
            if reply.decision == CheckDecision::Allow {
                given += hits;
            }
            last = Some(reply);
        }
        let decision = last.map_or(QuotaDecision::Unchecked, |reply| self.decision(&reply, due.ask.clone()));
        DueResult { asked, given, decision }
    }

    fn decision(&self, reply: &CheckReply, ask: CheckRequest) -> QuotaDecision {
        match (reply.decision, &reply.quota_status) {
            (CheckDecision::Deny, _) => QuotaDecision::Unchecked,
            (CheckDecision::Allow, None) => QuotaDecision::Free,
            (CheckDecision::Block | CheckDecision::Limit, None) => QuotaDecision::Refused,
            (_, Some(_)) => self.gateway.with_rules(|rules| allowed(rules, ask)).unwrap_or(QuotaDecision::Refused),
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Combined terms of all rules that count such a request, or `None` if no rule does.
fn allowed(rules: &RuleSet, mut ask: CheckRequest) -> Option<QuotaDecision> {
    let (mut values, mut room, mut places) = (Values::default(), Bits::default(), Vec::new());
    let mut request = Fetched::new(&mut ask, rules.attributes(), &mut values);
    let met = rules.find_matches(&mut request, &mut room, &mut places);
    let rules = met.iter().filter_map(|place| rules.rules().get(usize::from(*place)));
    let enforced = rules.filter(|rule| rule.enforcement.mode == Mode::Enforce && !rule.variant.is_unlimited());
    // Only the presence of a key matters here, not its value.
    let secret = FleetSecret::derive(&[]);
    let terms = enforced.filter_map(|rule| {
        if rule.missing == Missing::Skip && rule.key.value(&mut request, &secret).is_err() {
            return None;
        }
        let cost = f64::from(rule.cost.of(&mut request));
        #[allow(clippy::cast_precision_loss, reason = "a rate need not be exact here")]
        let rate = SECOND_NS as f64 / rule.quota.token_ns() as f64 / cost;
        let is_shared = matches!(rule.algorithm, Algorithm::TokenBucket(_)) && !rule.sharing.strict;
        let burst = f64::from(rule.quota.burst()) / cost;
        Some(HolderTerms { burst, rate, is_prepaid: !is_shared, holders: 1.0 })
    });
    let both = |one: HolderTerms, other: HolderTerms| HolderTerms {
        burst: one.burst.min(other.burst),
        rate: one.rate.min(other.rate),
        is_prepaid: one.is_prepaid || other.is_prepaid,
        holders: 1.0,
    };
    terms.reduce(both).map(QuotaDecision::Counted)
}

/// Path of the method.
pub const QUOTAS_PATH: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
/// Maximum number of messages that wait for a client to read them: one per second, and one at the beginning.
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
        lock(&self.quotas.book).end(self.number);
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
        let number = lock(&self.quotas.book).open(sender.clone(), &asker.token, self.quotas.now())?;
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

/// Applies a client's reports until its stream ends, or until it is sent an error.
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
            None => (asker.may_ask)().and_then(|()| lock(&open.quotas.book).look(open.number)),
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
