//! The gRPC port: Envoy's rate limit service and its quota service, over the gateway, and the health service.
//!
//! Requests are authorized here. [`unary`] frames messages; [`weir_gateway`] interprets them.

mod unary;

use std::future::pending;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{FutureExt as _, join_all};
use http_body_util::{BodyExt as _, Full};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::metadata::MetadataValue;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use weir_gateway::Gateway;
use weir_gateway::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use weir_gateway::proto::unknown;
use weir_gateway::rlqs::{Asker, QUOTAS_PATH, Quotas, Streams};
use weir_gateway::rls::{self, Check};

use crate::access::credentials::{Credential, GatewayApi, GatewayApis};
use crate::access::{AllowedHosts, EXPECTED_HOST, Refused, bearer};
use crate::connections::{Arriving, Connections, FIELDS_MAX, GO_ELSEWHERE, LASTING_MAX, Peer};
use crate::refusals::printable;
use crate::routes::Routes;
use unary::{UnaryBody, bare, compact, shown};

/// Path of the rate limit method, which almost all calls use.
const CHECK_PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

const REQUEST: &str = ".envoy.service.ratelimit.v3.RateLimitRequest";

/// Prefix of the methods of the health service, and its method whose response is an endless stream.
const HEALTH: &str = "/grpc.health.v1.Health/";
const WATCH_PATH: &str = "/grpc.health.v1.Health/Watch";
/// Maximum size of a message to a method that needs no token, in bytes.
const TOKENLESS_BYTES_MAX: usize = 1_024;
const PATH_BYTES_MAX: usize = 256;
/// Limit for the incomplete messages of all clients without a token, in blocks; a message takes at least one.
const BLOCKS_MAX: usize = 2_048;
const NO_ROOM: &str = "expected the whole message at once: too many without a token are not whole";
const BLOCK_BYTES: usize = 4_096;

const HEALTH_PAUSE: Duration = Duration::from_millis(500);

const ENCODING: &str = "grpc-encoding";
/// Value of [`ENCODING`] for uncompressed messages.
const PLAIN: &str = "identity";

/// Service names in health queries: an empty one for the whole server, and each service.
const NAMES: [&str; 3] =
    ["", "envoy.service.ratelimit.v3.RateLimitService", "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"];

pub(crate) struct Port {
    gateway: Arc<Gateway>,
    routes: Arc<Routes>,
    connections: Connections,
    /// Host names that clients may use for this weir-sync.
    hosts: AllowedHosts,
    quotas: Arc<Quotas>,
    streams: Streams,
    health: HealthReporter,
    health_service: HealthServer<HealthService>,
    blocks: Semaphore,
}

impl Port {
    /// Port for `gateway` over `connections`, with the settings and the tokens of `routes`.
    pub(crate) async fn new(
        gateway: Arc<Gateway>,
        routes: Arc<Routes>,
        connections: Connections,
        hosts: AllowedHosts,
    ) -> Self {
        let health = HealthReporter::new();
        let health_service = HealthServer::new(HealthService::from_health_reporter(health.clone()))
            .max_decoding_message_size(routes.config.body_bytes_max);
        let quotas = Quotas::new(Arc::clone(&gateway), routes.metrics.of_gateway());
        let streams = Streams::new(Arc::clone(&quotas), routes.config.body_bytes_max);
        let blocks = Semaphore::new(BLOCKS_MAX);
        let port = Self { gateway, routes, connections, hosts, quotas, streams, health, health_service, blocks };
        port.set_health(ServingStatus::NotServing).await;
        port
    }

    /// Serves `listener` until the task is aborted. Requests in progress then continue.
    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener) {
        let port = Arc::clone(&self);
        let answer = move |request, peer| {
            let port = Arc::clone(&port);
            async move {
                let mut response = Arc::clone(&port).respond(request, peer).await;
                if port.routes.is_draining() {
                    response.headers_mut().insert(GO_ELSEWHERE, HeaderValue::from_static("true"));
                }
                response
            }
        };
        tokio::join!(self.connections.accept(listener, answer, pending()), Arc::clone(&self.quotas).run());
    }

    /// Publishes the state of `/readyz` as health until the task is aborted.
    pub(crate) async fn publish_health(self: Arc<Self>) {
        let mut was_ready = false;
        loop {
            let is_ready = self.routes.is_ready().await;
            if is_ready != was_ready && !self.routes.is_draining() {
                self.set_health(if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing }).await;
                was_ready = is_ready;
            }
            sleep(HEALTH_PAUSE).await;
        }
    }

    async fn set_health(&self, status: ServingStatus) {
        for name in NAMES {
            self.health.set_service_status(name, status).await;
        }
    }

    /// Makes callers go elsewhere: through the health service and with each response, by ending quota streams, and by
    /// closing each existing connection when its requests are finished. New connections are still served.
    pub(crate) async fn send_away(&self) {
        self.set_health(ServingStatus::NotServing).await;
        // These streams would keep their connections open.
        self.quotas.close("this weir-sync is stopping: expected another one to be asked");
        self.connections.send_away();
    }

    pub(crate) fn count(&self) -> usize {
        self.connections.count()
    }

    /// Waits for requests in progress. Returns false if some did not finish within `limit`.
    pub(crate) async fn drain(&self, limit: Duration) -> bool {
        // Clients that watch the health keep connections open.
        for name in NAMES {
            self.health.clone().clear_service_status(name).await;
        }
        self.connections.drain(limit).await
    }

    /// Responds to a request. Errors become gRPC statuses.
    async fn respond(self: Arc<Self>, request: Request<Arriving>, peer: Arc<Peer>) -> Response<UnaryBody> {
        if !self.hosts.are_own(request.uri(), request.headers()) {
            let mut response = Status::failed_precondition(EXPECTED_HOST).into_http();
            *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
            return response.map(UnaryBody::Right);
        }
        if request.headers().len() > FIELDS_MAX || request.uri().path().len() > PATH_BYTES_MAX {
            let expected =
                format!("expected at most {FIELDS_MAX} header fields, and a path of at most {PATH_BYTES_MAX} bytes");
            return Status::resource_exhausted(expected).into_http().map(UnaryBody::Right);
        }
        if let Some(found) = request.headers().get(ENCODING).filter(|encoding| *encoding != PLAIN) {
            return not_compressed(found).into_http().map(UnaryBody::Right);
        }
        if request.uri().path() != CHECK_PATH {
            // Boxed, so that the future of a check stays small.
            let answered = Box::pin(self.respond_to_other(request, &peer)).await;
            return answered.unwrap_or_else(Status::into_http).map(UnaryBody::Right);
        }
        self.check(request, &peer).await.unwrap_or_else(|status| status.into_http().map(UnaryBody::Right))
    }

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
        let Ok(response) = self.health_service.clone().call(request).await;
        let Some(lasting) = lasting else { return Ok(compact(response).await) };
        Ok(response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _lasts = &lasting;
                frame
            }))
        }))
    }

    async fn check(&self, request: Request<Arriving>, peer: &Peer) -> Result<Response<UnaryBody>, Status> {
        let (head, body) = request.into_parts();
        self.let_ask(CHECK_PATH, &head.headers, peer)?;
        // The rest of the head is dropped while the message arrives.
        let shown = shown(&head.headers);
        drop(head);
        let message = unary::message(self.whole(body, self.routes.config.body_bytes_max, peer).await?)?;
        let asked = rls::decode(&message).map_err(|wrong| Status::internal(wrong.to_string()))?;
        unknown::refuse(REQUEST, &message)?;
        Ok(unary::answer(&self.answer(asked, &shown, peer.address.ip()).await?))
    }

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
        let body_timeout = self.routes.config.body_timeout;
        let expected = || format!("expected the whole message within {} ms", body_timeout.as_millis());
        timeout(body_timeout, reading).await.unwrap_or_else(|_| Err(Status::deadline_exceeded(expected())))
    }

    /// Prepares a request that opens a quota stream, and adds the caller's credentials.
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

    /// Authorizes a check. Returns the credential, or `None` if no token is needed.
    fn let_ask(
        &self,
        path: &str,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Result<Option<Arc<Credential<GatewayApis>>>, Status> {
        let asker = self.routes.secrets.access.asker(bearer(headers), GatewayApi::Check);
        let asker = asker.map_err(|refused| {
            self.routes.secrets.refusals.log(peer.address.ip(), &format!("{}: {refused:?}", printable(path)));
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
            self.routes.metrics.count_use(&asker.name);
        }
        Ok(asker)
    }

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
            self.routes.metrics.count_checks("grpc", reply.decision.as_str(), 1);
        }
        rls::response(replies)
    }

    /// Authorizes the limit that the caller names in the descriptor at `index`.
    fn let_name_limits(&self, headers: &HeaderMap, caller: IpAddr, index: usize) -> Result<(), Status> {
        let Err(refused) = self.routes.secrets.access.asker(bearer(headers), GatewayApi::Limit) else {
            return Ok(());
        };
        self.routes.secrets.refusals.log(caller, &format!("{CHECK_PATH}: a limit of its own: {refused:?}"));
        Err(Status::permission_denied(format!(
            "descriptors[{index}].limit: expected none, or a token with the role `limit` in check_token_file"
        )))
    }
}

fn not_compressed(found: &HeaderValue) -> Status {
    let mut status = Status::unimplemented(format!("{ENCODING}: expected `{PLAIN}`, found {found:?}"));
    status.metadata_mut().insert("grpc-accept-encoding", MetadataValue::from_static(PLAIN));
    status
}
