//! gRPC entry point: authorizes requests and dispatches them to services.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{FutureExt as _, join_all};
use http_body_util::{BodyExt as _, Full};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode};
use prost::Message as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::metadata::MetadataValue;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;
use weir_gateway::Gateway;
use weir_gateway::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use weir_gateway::proto::unknown;
use weir_gateway::rlqs::{Asker, QUOTAS_PATH, Quotas, Streams};
use weir_gateway::rls::{self, Check, RawRequest};

use crate::access::credentials::{Credential, GatewayApi, GatewayApis};
use crate::access::{AllowedHosts, EXPECTED_HOST, Refused, bearer};
use crate::connections::{Arriving, FIELDS_MAX, LASTING_MAX, Peer};
use crate::metrics::Metrics;
use crate::refusals::printable;
use crate::secrets::Secrets;

use super::unary::{self, UnaryBody, bare, compact, shown};

/// Path of the rate limit method, which almost all calls use.
const CHECK_PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Type of its requests.
const REQUEST: &str = ".envoy.service.ratelimit.v3.RateLimitRequest";

/// Prefix of the methods of the health service, and its method whose response is an endless stream.
const HEALTH: &str = "/grpc.health.v1.Health/";
const WATCH_PATH: &str = "/grpc.health.v1.Health/Watch";
/// Maximum number of bytes from a client in a single message to a method that needs no token.
const TOKENLESS_BYTES_MAX: usize = 1_024;
/// Maximum length of a method's path, in bytes.
const PATH_BYTES_MAX: usize = 256;
/// Limit for the incomplete messages of all clients without a token, in blocks. Each message takes at least
/// one.
const BLOCKS_MAX: usize = 2_048;
/// Error for a message that exceeds this limit.
const NO_ROOM: &str = "expected the whole message at once: too many without a token are not whole";
/// Size of a block, in bytes.
const BLOCK_BYTES: usize = 4_096;

/// Header that states how a request's messages are compressed.
const ENCODING: &str = "grpc-encoding";
/// Value of [`ENCODING`] for uncompressed messages.
const PLAIN: &str = "identity";

/// Limits on requests at the port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    /// Host names that clients may use for this weir-sync.
    pub(crate) hosts: AllowedHosts,
    /// Time limit for a message.
    pub(crate) body_timeout: Duration,
    /// Maximum length of a message, in bytes.
    pub(crate) body_bytes_max: usize,
}

/// Handler of all gRPC requests.
pub(super) struct Service {
    secrets: Arc<Secrets>,
    metrics: Arc<Metrics>,
    limits: RequestLimits,
    gateway: Arc<Gateway>,
    streams: Streams,
    health: HealthServer<HealthService>,
    /// Room for incomplete messages.
    blocks: Semaphore,
}

impl Service {
    /// Handler for `gateway`, its `quotas` and its `health`. Requests need the tokens of `secrets`.
    pub(super) fn new(
        gateway: Arc<Gateway>,
        quotas: Arc<Quotas>,
        health: HealthServer<HealthService>,
        secrets: Arc<Secrets>,
        metrics: Arc<Metrics>,
        limits: RequestLimits,
    ) -> Self {
        let streams = Streams::new(quotas, limits.body_bytes_max);
        let health = health.max_decoding_message_size(limits.body_bytes_max);
        Self { secrets, metrics, limits, gateway, streams, health, blocks: Semaphore::new(BLOCKS_MAX) }
    }

    /// Responds to `request` of `peer`. Errors become gRPC statuses.
    pub(super) async fn respond(self: Arc<Self>, request: Request<Arriving>, peer: Arc<Peer>) -> Response<UnaryBody> {
        if !self.limits.hosts.are_own(request.uri(), request.headers()) {
            let mut response = Status::failed_precondition(EXPECTED_HOST).into_http();
            *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
            return response.map(UnaryBody::Any);
        }
        if request.headers().len() > FIELDS_MAX || request.uri().path().len() > PATH_BYTES_MAX {
            let expected =
                format!("expected at most {FIELDS_MAX} header fields, and a path of at most {PATH_BYTES_MAX} bytes");
            return Status::resource_exhausted(expected).into_http().map(UnaryBody::Any);
        }
        if let Some(found) = request.headers().get(ENCODING).filter(|encoding| *encoding != PLAIN) {
            return not_compressed(found).into_http().map(UnaryBody::Any);
        }
        if request.uri().path() != CHECK_PATH {
            // Boxed, so that the future of a check stays small.
            let answered = Box::pin(self.respond_to_other(request, &peer)).await;
            return answered.unwrap_or_else(Status::into_http).map(UnaryBody::Any);
        }
        let checked = self.check(request, &peer).await;
        checked.unwrap_or_else(|status| status.into_http().map(UnaryBody::Any))
    }

    /// Responds to any call other than a rate limit check.
    async fn respond_to_other(
        self: Arc<Self>,
        request: Request<Arriving>,
        peer: &Arc<Peer>,
    ) -> Result<Response<Body>, Status> {
        let path = request.uri().path();
        if path == QUOTAS_PATH {
            let request = Arc::clone(&self).begin(request, peer)?;
            return Ok(self.streams.serve(request).await);
        }
        if !path.starts_with(HEALTH) {
            let expected = format!("expected {CHECK_PATH}, {QUOTAS_PATH} or a method of {HEALTH}, found {path}");
            return Err(Status::unimplemented(expected));
        }
        let lasting = (path == WATCH_PATH).then(|| peer.lasting()).transpose().map_err(|_| {
            Status::resource_exhausted(format!("expected at most {LASTING_MAX} streams of health on a connection"))
        })?;
        let (head, body) = bare(request).into_parts();
        let message = self.whole(body, TOKENLESS_BYTES_MAX, peer).await?;
        let request = Request::from_parts(head, Body::new(Full::new(message)));
        let Ok(response) = self.health.clone().call(request).await;
        let Some(lasting) = lasting else { return Ok(compact(response).await) };
        Ok(response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _lasts = &lasting;
                frame
            }))
        }))
    }

    /// Answers a rate limit check.
    async fn check(&self, request: Request<Arriving>, peer: &Peer) -> Result<Response<UnaryBody>, Status> {
        let (head, body) = request.into_parts();
        self.let_ask(CHECK_PATH, &head.headers, peer)?;
        // The rest of the head is dropped while the message arrives.
        let shown = shown(&head.headers);
        drop(head);
        let message = unary::message(self.whole(body, self.limits.body_bytes_max, peer).await?)?;
        let asked = RateLimitRequest::decode(message.clone())
            .or_else(|wrong| RawRequest::decode(message.clone()).map(RawRequest::read).map_err(|_| wrong))
            .map_err(|wrong| Status::internal(wrong.to_string()))?;
        unknown::refuse(REQUEST, &message)?;
        Ok(unary::answer(&self.answer(asked, &shown, peer.address.ip()).await?))
    }

    /// Reads a complete message.
    async fn whole(&self, body: Arriving, body_bytes_max: usize, peer: &Peer) -> Result<Bytes, Status> {
        let mut room = None;
        let mut take_room = |bytes: usize| {
            if peer.is_known() {
                return Ok(());
            }
            let held = room.as_ref().map_or(0, SemaphorePermit::num_permits);
            let more = (bytes / BLOCK_BYTES + 1).saturating_sub(held);
            let more = self.blocks.try_acquire_many(u32::try_from(more).unwrap_or(u32::MAX));
            let more = more.map_err(|_| Status::resource_exhausted(NO_ROOM))?;
            match &mut room {
                None => room = Some(more),
                Some(room) => room.merge(more),
            }
            Ok(())
        };
        let mut reading = pin!(unary::whole(body, body_bytes_max, &mut take_room));
        // Most messages have arrived by now and need no timer.
        if let Some(read) = reading.as_mut().now_or_never() {
            return read;
        }
        let body_timeout = self.limits.body_timeout;
        let expected = || format!("expected the whole message within {} ms", body_timeout.as_millis());
        timeout(body_timeout, reading).await.unwrap_or_else(|_| Err(Status::deadline_exceeded(expected())))
    }

    /// Prepares a request for a stream of quotas, with its credentials.
    fn begin(self: Arc<Self>, request: Request<Arriving>, peer: &Arc<Peer>) -> Result<Request<Body>, Status> {
        let asker = self.let_ask(QUOTAS_PATH, request.headers(), peer)?;
        let token = asker.map_or_else(String::new, |asker| asker.name.clone());
        let mut request = request.map(Body::new);
        let shown = shown(request.headers());
        let peer = Arc::clone(peer);
        let may_ask = Arc::new(move || self.let_ask(QUOTAS_PATH, &shown, &peer).map(drop));
        request.extensions_mut().insert(Asker { token, may_ask });
        Ok(request)
    }

    /// Authorizes a check. Returns the credential, or none if no token is needed.
    fn let_ask(
        &self,
        path: &str,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Result<Option<Arc<Credential<GatewayApis>>>, Status> {
        let asker = self.secrets.access.asker(bearer(headers), GatewayApi::Check);
        let asker = asker.map_err(|refused| {
            self.secrets.refusals.log(peer.address.ip(), &format!("{}: {refused:?}", printable(path)));
            match refused {
                Refused::Api(name, _) => Status::permission_denied(format!(
                    "the token `{name}` is for another API: expected one with the \
                        role `check` in check_token_file"
                )),
                _ => Status::unauthenticated(
                    "expected the metadata `authorization: Bearer` with a token of \
                    check_token_file",
                ),
            }
        })?;
        if let Some(asker) = &asker {
            self.metrics.count_use(&asker.name);
        }
        Ok(asker)
    }

    /// Response to a request of `caller` with these `headers`.
    async fn answer(
        &self,
        asked: RateLimitRequest,
        headers: &HeaderMap,
        caller: IpAddr,
    ) -> Result<RateLimitResponse, Status> {
        let checks = rls::checks(asked)?;
        if let Some(index) = checks.iter().position(|check| matches!(check, Check::Own(_))) {
            self.let_name_limits(headers, caller, index)?;
        }
        let reply = |check| async move {
            match check {
                Check::Rules(ask) => self.gateway.check(*ask).await,
                Check::Own(limit) => Box::pin(self.gateway.check_per_unit(&limit)).await,
            }
        };
        let replies = match <[Check; 1]>::try_from(checks) {
            // Most requests have one descriptor.
            Ok([check]) => vec![reply(check).await],
            Err(checks) => join_all(checks.into_iter().map(reply)).await,
        };
        for reply in &replies {
            self.metrics.count_checks("grpc", reply.decision.as_str(), 1);
        }
        rls::response(replies)
    }

    /// Authorizes a limit of the caller's own, as in the descriptor at `index`.
    fn let_name_limits(&self, headers: &HeaderMap, caller: IpAddr, index: usize) -> Result<(), Status> {
        let Err(refused) = self.secrets.access.asker(bearer(headers), GatewayApi::Limit) else {
            return Ok(());
        };
        self.secrets.refusals.log(caller, &format!("{CHECK_PATH}: a limit of its own: {refused:?}"));
        Err(Status::permission_denied(format!(
            "descriptors[{index}].limit: expected none, or a token with the role `limit` in check_token_file"
        )))
    }
}

/// Status for a request with compressed messages.
fn not_compressed(found: &HeaderValue) -> Status {
    let mut status = Status::unimplemented(format!("{ENCODING}: expected `{PLAIN}`, found {found:?}"));
    status.metadata_mut().insert("grpc-accept-encoding", MetadataValue::from_static(PLAIN));
    status
}
