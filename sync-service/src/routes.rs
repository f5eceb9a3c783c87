//! Routing and authorization of HTTP requests.

mod canary;
mod check;
mod console;
mod fleet;
mod keys;
mod overrides;
mod rules;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::Body;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;
use tokio::time::timeout;
use url::form_urlencoded;
use weir_protocol::messages::{self, Message as _, Report, WireError};

use crate::access::credentials::{Credential, GatewayApi, GatewayApis, PopPatterns, Role};
use crate::access::{AllowedHosts, EXPECTED_HOST, bearer};
use crate::config::GATEWAY_PREFIX;
use crate::connections::{Arriving, GO_ELSEWHERE, Peer};
use crate::document::DOCUMENT_BYTES_MAX;
use crate::gateway::{Gateway, limit};
use crate::keys::query::KEY_PATH;
use crate::live::{self, Live};
use crate::metrics::{Metrics, RefusedStatus, page};
use crate::overrides::path::OverridePath;
use crate::problem::{Problem, json, text};
use crate::refusals::told;
use crate::report::ReportHandler;
use crate::secrets::Secrets;

/// Request as routes receive it.
pub(crate) type HttpRequest = hyper::Request<Arriving>;
/// Response of a route.
pub(crate) type HttpResponse = hyper::Response<Full<Bytes>>;
/// Response as it is sent: a complete body, or a stream of events.
pub(crate) type SentResponse = hyper::Response<Either<Full<Bytes>, live::EventStream>>;
/// Response, or the problem that prevented it.
type Answered = Result<HttpResponse, Problem>;

const METRICS_PATH: &str = "/metrics";
/// Path that rolls back to a version.
const ROLLBACK_PATH: &str = "/v1/rules/rollback";
/// Path that compares two versions.
const DIFFERENCES_PATH: &str = "/v1/rules/diff";
/// Paths of the canary and of its promotion.
const CANARY_PATH: &str = "/v1/rules/canary";
const PROMOTE_PATH: &str = "/v1/rules/canary/promote";
/// List of all paths, for error messages.
const EXPECTED_PATHS: &str = "expected /v1/report, /v1/rules, /v1/rules/versions, /v1/rules/diff, /v1/rules/rollback, \
    /v1/rules/canary, /v1/rules/canary/promote, /v1/enforcement, /v1/fleet, /v1/rates, /v1/live, /v1/overrides, /v1/bans, /v1/allows, \
    /v1/keys, /v1/keys/RULE/VALUE, /v1/check, /v1/settle, \
    /ratelimit/check, /healthz, /readyz or /metrics";

/// Handler of all HTTP requests.
pub(crate) struct Routes {
    pub(crate) exchange: Arc<ReportHandler>,
    /// Handler of checks, if the gateway is on.
    pub(crate) gateway: Option<Arc<Gateway>>,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
    /// Registry that `/metrics` renders.
    pub(crate) registry: Registry,
    /// Credentials of POPs, operators and services.
    pub(crate) secrets: Arc<Secrets>,
    /// Last rendered metrics, with the time.
    pub(crate) page: Mutex<Option<(Instant, Bytes)>>,
    /// Held while a rule set is validated for a trial, so that only one is at a time.
    pub(crate) judging: Arc<Mutex<()>>,
    /// Stream of events for viewers of the console at `/`.
    pub(crate) live: Live,
    /// Minimum interval between two renderings of the metrics.
    pub(crate) metrics_interval: Duration,
    /// Host names that requests may use for this weir-sync.
    pub(crate) hosts: AllowedHosts,
    /// Host names for the operations address.
    pub(crate) ops_hosts: AllowedHosts,
    /// True while this weir-sync drains and asks callers to go elsewhere.
    pub(crate) is_draining: AtomicBool,
    /// True if the operations pages have their own address. Only that address then serves the metrics.
    pub(crate) has_ops: bool,
    /// Time limit for a body.
    pub(crate) body_timeout: Duration,
    /// Maximum size of a body, in bytes.
    pub(crate) body_bytes_max: usize,
}

/// True if a request may change something. A dry run does not, and may take long.
fn is_change(request: &HttpRequest) -> bool {
    let is_change = matches!(*request.method(), Method::PUT | Method::DELETE);
    let is_dry_run = request.uri().query().is_some_and(is_dry_run);
    (is_change && !is_dry_run) || [ROLLBACK_PATH, PROMOTE_PATH].contains(&request.uri().path())
}

/// True if a query asks for a dry run.
fn is_dry_run(query: &str) -> bool {
    form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == "dry_run" && value == "true")
}

impl Routes {
    /// Responds to `request` of `peer`. Never fails: errors become problem responses.
    pub(crate) async fn respond(self: Arc<Self>, request: HttpRequest, peer: Arc<Peer>) -> SentResponse {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let answered = if let Err(problem) = own_host(self.hosts, &request) {
            Err(problem)
        } else if uri.path() == live::PATH {
            match self.live(&request) {
                Ok(stream) => return stream.map(Either::Right),
                // The console polls this before anybody has logged in. It is not counted as a refused token.
                Err(problem)
                    if problem.status == StatusCode::UNAUTHORIZED && bearer(request.headers()).is_none() =>
                {
                    return self.sent(problem.response()).map(Either::Left);
                }
                Err(problem) => Err(problem),
            }
        } else if is_change(&request) {
            // The change runs to its end even if the client disconnects, so that POPs are notified and the
            // audit log records it.
            let (routes, peer) = (Arc::clone(&self), Arc::clone(&peer));
            let changing = tokio::spawn(async move { routes.route(request, &peer).await });
            changing.await.unwrap_or_else(|_| {
                let detail = "the change broke off, and may have been made: look before it is made again";
                Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail))
            })
        } else {
            self.route(request, &peer).await
        };
        let response = answered.unwrap_or_else(|problem| self.refuse(&method, &uri, &peer, &problem));
        self.sent(response).map(Either::Left)
    }

    /// Responds to `request` at the operations address, which serves only the operations pages.
    pub(crate) async fn respond_to_operator(
        self: Arc<Self>,
        request: HttpRequest,
        peer: Arc<Peer>,
    ) -> HttpResponse {
        let answered = match own_host(self.ops_hosts, &request) {
            Ok(()) => self.page(&request).await,
            Err(problem) => Err(problem),
        };
        self.sent(
            answered.unwrap_or_else(|problem| self.refuse(request.method(), request.uri(), &peer, &problem)),
        )
    }

    /// Completes a response. While weir-sync drains, each response asks its caller to go elsewhere.
    fn sent(&self, mut response: HttpResponse) -> HttpResponse {
        if self.is_draining() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            response.headers_mut().insert(GO_ELSEWHERE, HeaderValue::from_static("true"));
        }
        response
    }

    fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    fn refuse(&self, method: &Method, uri: &Uri, peer: &Peer, problem: &Problem) -> HttpResponse {
        let status = problem.status;
        let reason = format!("{} {}: {problem}", told(method.as_str()), told(uri.path()));
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            self.secrets.refusals.log(peer.address.ip(), &reason);
        } else {
            tracing::debug!("refused: {reason}");
        }
        self.metrics.http_errors.get_or_create(&RefusedStatus { status: status.as_u16() }).inc();
        problem.response()
    }

    async fn route(&self, request: HttpRequest, peer: &Peer) -> Answered {
        self.judge_length(&request)?;
        if let Some(place) = OverridePath::at(request.uri().path()) {
            return self.overrides(request, peer, place).await;
        }
        if let Some(file) = Self::file(&request) {
            return file;
        }
        match (request.uri().path(), request.method()) {
            (messages::REPORT_PATH, &Method::POST) => self.report(request, peer).await,
            (messages::RULES_PATH, &Method::GET | &Method::HEAD) => self.get_rules(&request, peer).await,
            (messages::RULES_PATH, &Method::PUT) => self.put_rules(request, peer).await,
            ("/v1/rules/versions", &Method::GET | &Method::HEAD) => self.versions(&request).await,
            (DIFFERENCES_PATH, &Method::GET | &Method::HEAD) => self.differences(&request).await,
            (ROLLBACK_PATH, &Method::POST) => self.roll_back(request, peer).await,
            (CANARY_PATH, &Method::GET | &Method::HEAD) => self.get_canary(&request).await,
            (CANARY_PATH, &Method::DELETE) => self.withdraw(&request, peer).await,
            (PROMOTE_PATH, &Method::POST) => self.promote(&request, peer).await,
            ("/v1/enforcement", &Method::PUT) => self.enforce(request, peer).await,
            ("/v1/fleet", &Method::GET | &Method::HEAD) => self.fleet(&request).await,
            ("/v1/rates", &Method::GET | &Method::HEAD) => self.rates(&request).await,
            ("/v1/keys", &Method::GET | &Method::HEAD) => self.top_keys(&request).await,
            ("/v1/keys", &Method::POST) => self.keys_of(request).await,
            (path, &Method::GET | &Method::HEAD) if path.starts_with(KEY_PATH) => {
                self.one_key(&request).await
            }
            (path, &Method::DELETE) if path.starts_with(KEY_PATH) => self.forget_key(&request, peer).await,
            ("/v1/check", &Method::POST) => self.check(request).await,
            ("/v1/settle", &Method::POST) => self.settle(request).await,
            ("/ratelimit/check", &Method::POST) => self.check_limits(request).await,
            (
                messages::REPORT_PATH
                | ROLLBACK_PATH
                | PROMOTE_PATH
                | "/v1/check"
                | "/v1/settle"
                | "/ratelimit/check",
                _,
            ) => Err(Problem::method_not_allowed("POST")),
            (CANARY_PATH, _) => Err(Problem::method_not_allowed("GET, HEAD, DELETE")),
            ("/v1/keys", _) => Err(Problem::method_not_allowed("GET, HEAD, POST")),
            (messages::RULES_PATH, _) => Err(Problem::method_not_allowed("GET, HEAD, PUT")),
            ("/v1/enforcement", _) => Err(Problem::method_not_allowed("PUT")),
            ("/v1/rules/versions" | DIFFERENCES_PATH | "/v1/fleet" | "/v1/rates", _) => {
                Err(Problem::method_not_allowed("GET, HEAD"))
            }
            (path, _) if path.starts_with(KEY_PATH) => Err(Problem::method_not_allowed("GET, HEAD, DELETE")),
            (METRICS_PATH, _) if self.has_ops => Err(Problem::new(
                StatusCode::NOT_FOUND,
                "the metrics are at the address that ops_listen sets",
            )),
            _ => self.page(&request).await,
        }
    }

    async fn page(&self, request: &HttpRequest) -> Answered {
        self.judge_length(request)?;
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/healthz" | "/readyz" | METRICS_PATH if !reads => Err(Problem::method_not_allowed("GET, HEAD")),
            "/healthz" => Ok(self.health()),
            "/readyz" => Ok(self.readiness().await),
            METRICS_PATH => Ok(text(StatusCode::OK, page::CONTENT_TYPE, self.metrics_page().await)),
            _ => Err(Problem::new(StatusCode::NOT_FOUND, EXPECTED_PATHS)),
        }
    }

    /// Rendered metrics, rebuilt at most once per [`Self::metrics_interval`]. With many budgets that takes
    /// long, and reports wait in the meantime.
    async fn metrics_page(&self) -> Bytes {
        let mut page = self.page.lock().await;
        let is_recent = |(made_at, _): &&(Instant, Bytes)| made_at.elapsed() < self.metrics_interval;
        if let Some((_, known)) = page.as_ref().filter(is_recent) {
            return known.clone();
        }
        self.exchange.refresh_metrics().await;
        page.insert((Instant::now(), page::write(&self.registry).into())).1.clone()
    }

    async fn report(&self, request: HttpRequest, peer: &Peer) -> Answered {
        let reporters = self.reporters(request.headers(), peer);
        let first = reporters.first().ok_or_else(Problem::unauthorized)?;
        if !essence(request.headers()).eq_ignore_ascii_case(messages::CONTENT_TYPE.as_bytes()) {
            return Err(Problem::media_type(messages::CONTENT_TYPE));
        }
        let body = self.read(request.into_body(), self.body_bytes_max).await?;
        let report = Report::decode(&body).map_err(|error| {
            self.metrics.count_report("malformed");
            match error {
                WireError::TooLarge(_) => Problem::too_large(messages::MESSAGE_BYTES_MAX),
                _ => Problem::malformed(error.to_string()),
            }
        })?;
        if report.pop.starts_with(GATEWAY_PREFIX) {
            self.metrics.count_report("forbidden");
            return Err(Problem::gateways_name(&report.pop));
        }
        if let Some(rule) = report.rules.iter().find(|rule| limit::RULES.contains(&rule.name.as_str())) {
            self.metrics.count_report("forbidden");
            return Err(Problem::gateways_rule(&rule.name));
        }
        let reporter = reporters.iter().find(|reporter| reporter.scope.covers(&report.pop));
        let reporter = reporter.ok_or_else(|| {
            self.metrics.count_report("forbidden");
            Problem::another_pop(first, &report.pop)
        })?;
        self.metrics.count_use(&reporter.name);
        Ok(text(StatusCode::OK, messages::CONTENT_TYPE, self.exchange.answer(report).await))
    }

    /// Refuses a body that is longer than any path accepts. A body of unknown length is refused while it is
    /// read, if it is read at all.
    fn judge_length(&self, request: &HttpRequest) -> Result<(), Problem> {
        let bytes_max = self.body_bytes_max.max(DOCUMENT_BYTES_MAX);
        let fits = request.body().size_hint().lower() <= bytes_max as u64;
        if fits { Ok(()) } else { Err(Problem::too_large(bytes_max)) }
    }

    fn health(&self) -> HttpResponse {
        let (status, said) = if self.is_draining() {
            (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
        } else {
            (StatusCode::OK, "ok\n")
        };
        text(status, "text/plain; charset=utf-8", said)
    }

    /// True if this weir-sync can serve reports and checks: the store is in reach, the gateway knows its rules,
    /// and it is not draining.
    pub(crate) async fn is_ready(&self) -> bool {
        let ready = self.exchange.ready().await;
        // Anybody may request `/readyz`, so the store's error goes only to the log.
        if let Err(error) = &ready {
            tracing::debug!(%error, "not ready");
        }
        let has_rules = self.gateway.as_ref().is_none_or(|gateway| gateway.is_ready());
        if !has_rules {
            tracing::debug!("not ready: the gateway does not know its rules");
        }
        ready.is_ok() && has_rules && !self.is_draining()
    }

    async fn readiness(&self) -> HttpResponse {
        let is_ready = self.is_ready().await;
        let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        json(status, "application/json", &serde_json::json!({"ready": is_ready}))
    }

    /// Credentials of a request for reports: that of its token and that of its connection's certificate.
    fn reporters(&self, headers: &HeaderMap, peer: &Peer) -> Vec<Arc<Credential<PopPatterns>>> {
        let token = self.secrets.access.reporter(bearer(headers));
        token.into_iter().chain(peer.certificate.clone()).collect()
    }

    /// Authorizes an operator with the role `needed` or a higher one.
    fn operator(&self, headers: &HeaderMap, needed: Role) -> Result<Arc<Credential<Role>>, Problem> {
        let operator = self.secrets.access.operator(bearer(headers), needed)?;
        self.metrics.count_use(&operator.name);
        Ok(operator)
    }

    /// Authorizes a caller of the gateway's API `api`.
    fn asker(
        &self,
        headers: &HeaderMap,
        api: GatewayApi,
    ) -> Result<Option<Arc<Credential<GatewayApis>>>, Problem> {
        let asker = self.secrets.access.asker(bearer(headers), api)?;
        if let Some(asker) = &asker {
            self.metrics.count_use(&asker.name);
        }
        Ok(asker)
    }

    /// Authorizes POPs and operators.
    fn reader(&self, headers: &HeaderMap, peer: &Peer) -> Result<(), Problem> {
        if self.reporters(headers, peer).is_empty() {
            self.operator(headers, Role::Read).map_err(|_| Problem::unauthorized())?;
        }
        Ok(())
    }

    /// Reads the whole body, of at most `bytes_max` bytes, within the time limit.
    async fn read(&self, body: Arriving, bytes_max: usize) -> Result<Bytes, Problem> {
        if body.size_hint().lower() > bytes_max as u64 {
            return Err(Problem::too_large(bytes_max));
        }
        let collected = timeout(self.body_timeout, Limited::new(body, bytes_max).collect()).await;
        let collected = collected.map_err(|_| {
            let detail = format!("expected the whole body within {} ms", self.body_timeout.as_millis());
            Problem::new(StatusCode::REQUEST_TIMEOUT, detail).that_closes()
        })?;
        match collected {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(Problem::too_large(bytes_max)),
            Err(_) => Err(Problem::malformed("the body broke off").that_closes()),
        }
    }
}

/// Refuses a request for a host that is not the listener's own.
fn own_host(hosts: AllowedHosts, request: &HttpRequest) -> Result<(), Problem> {
    let is_own = hosts.are_own(request.uri(), request.headers());
    is_own.then_some(()).ok_or_else(|| Problem::new(StatusCode::MISDIRECTED_REQUEST, EXPECTED_HOST))
}

/// Media type of the content, without parameters.
fn essence(headers: &HeaderMap) -> &[u8] {
    let value = headers.get(CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
    value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}
