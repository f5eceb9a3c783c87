//! Routing and authorization of HTTP requests.

mod check;
mod console;
mod keys;
mod rules;
pub mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::Body;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::timeout;
use url::form_urlencoded;
use weir_budget::report_limits::ReporterKind;
use weir_cli::document::{DOCUMENT_BYTES_MAX, source};
use weir_gateway::{GATEWAY_PREFIX, Gateway, limit};
use weir_protocol::messages::{self, Message as _, Report, WireError};

use crate::access::credentials::{Credential, GatewayApi, PopPatterns, Role};
use crate::access::{AllowedHosts, EXPECTED_HOST, bearer};
use crate::config::Config;
use crate::connections::{Arriving, GO_ELSEWHERE, Peer};
use crate::metrics::{Metrics, RefusedStatus, page};
use crate::problem::{Problem, json, text};
use crate::refusals::printable;
use crate::report::ReportHandler;
use crate::secrets::Secrets;
pub(crate) use console::Live;
use table::{Needs, Query, Route};

pub(crate) type HttpRequest = hyper::Request<Arriving>;
pub(crate) type HttpResponse = hyper::Response<Full<Bytes>>;
/// Response as it is sent: a complete body, or a stream of events.
pub(crate) type SentResponse = hyper::Response<Either<Full<Bytes>, console::EventStream>>;
type Answered = Result<HttpResponse, Problem>;

const METRICS_PATH: &str = "/metrics";
const PAGES: [&str; 3] = ["/healthz", "/readyz", METRICS_PATH];
const JSON: &str = "application/json";

pub(crate) struct Routes {
    pub(crate) config: Arc<Config>,
    pub(crate) exchange: Arc<ReportHandler>,
    pub(crate) gateway: Option<Arc<Gateway>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) registry: Registry,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) page: Mutex<Option<(Instant, Bytes)>>,
    /// Held while a rule set is validated for a dry run, so that only one is validated at a time.
    pub(crate) trying: Arc<Mutex<()>>,
    /// Stream of events for viewers of the console at `/`.
    pub(crate) live: Live,
    /// Host names that requests may use for this weir-sync, and for its operations address.
    pub(crate) hosts: AllowedHosts,
    pub(crate) ops_hosts: AllowedHosts,
    pub(crate) is_draining: AtomicBool,
}

pub(crate) struct Call<'a> {
    request: HttpRequest,
    peer: &'a Peer,
    /// Name of the caller's token; empty if none was checked.
    caller: String,
    /// Parts of the path in place of the words in capitals in the route's path.
    parts: Vec<String>,
    query: Query,
}

/// True if a request may change something; false for a dry run, which may take long.
fn is_change(route: &Route, request: &HttpRequest) -> bool {
    let is_dry_run = || {
        let mut pairs = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
        pairs.any(|(name, value)| name == "dry_run" && value == "true")
    };
    route.needs == Needs::Write && !(route.query.contains(&"dry_run") && is_dry_run())
}

impl Routes {
    /// Responds to `request` from `peer`. Never fails: errors become problem responses.
    pub(crate) async fn respond(self: Arc<Self>, request: HttpRequest, peer: Arc<Peer>) -> SentResponse {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let found = table::find(&method, uri.path());
        let answered = if let Err(problem) = own_host(self.hosts, &request) {
            Err(problem)
        } else if uri.path() == console::LIVE_PATH {
            match self.live(&request) {
                Ok(stream) => return stream.map(Either::Right),
                // The console polls this before anybody has logged in: not counted as a refused token.
                Err(problem) if problem.status == StatusCode::UNAUTHORIZED && bearer(request.headers()).is_none() => {
                    return self.sent(problem.response()).map(Either::Left);
                }
                Err(problem) => Err(problem),
            }
        } else if found.as_ref().is_ok_and(|(route, _)| is_change(route, &request)) {
            // Runs to its end even if the client disconnects, so that POPs and the audit log get the change.
            let (routes, peer) = (Arc::clone(&self), Arc::clone(&peer));
            let changing = tokio::spawn(async move { routes.route(request, &peer, found).await });
            changing.await.unwrap_or_else(|_| {
                let detail = "request interrupted; the change may have been applied: check before retrying";
                Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail))
            })
        } else {
            self.route(request, &peer, found).await
        };
        let response = answered.unwrap_or_else(|problem| self.refuse(&method, &uri, &peer, &problem));
        self.sent(response).map(Either::Left)
    }

    /// Responds to `request` at the operations address, which serves only the operations pages.
    pub(crate) async fn respond_to_operator(self: Arc<Self>, request: HttpRequest, peer: Arc<Peer>) -> HttpResponse {
        let answered = match own_host(self.ops_hosts, &request) {
            Ok(()) => self.page(&request).await,
            Err(problem) => Err(problem),
        };
        self.sent(answered.unwrap_or_else(|problem| self.refuse(request.method(), request.uri(), &peer, &problem)))
    }

    /// Completes a response. While weir-sync drains, each response sends its caller elsewhere.
    fn sent(&self, mut response: HttpResponse) -> HttpResponse {
        if self.is_draining() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            response.headers_mut().insert(GO_ELSEWHERE, HeaderValue::from_static("true"));
        }
        response
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    fn refuse(&self, method: &Method, uri: &Uri, peer: &Peer, problem: &Problem) -> HttpResponse {
        let status = problem.status;
        let reason = format!("{} {}: {problem}", printable(method.as_str()), printable(uri.path()));
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            self.secrets.refusals.log(peer.address.ip(), &reason);
        } else {
            tracing::debug!("refused: {reason}");
        }
        self.metrics.http_errors.get_or_create(&RefusedStatus { status: status.as_u16() }).inc();
        problem.response()
    }

    /// Responds to `request`, whose route was `found`. Pages and files have none.
    async fn route(
        &self,
        request: HttpRequest,
        peer: &Peer,
        found: Result<(&Route, Vec<String>), Problem>,
    ) -> Answered {
        self.check_length(&request)?;
        if let Some(file) = Self::file(&request) {
            return file;
        }
        let path = request.uri().path();
        // Only the operations address serves the metrics, if there is one.
        if self.config.ops_listen.is_some() && path == METRICS_PATH {
            let detail = "the metrics are at the address that ops_listen sets";
            return Err(Problem::new(StatusCode::NOT_FOUND, detail));
        }
        if PAGES.contains(&path) {
            return self.page(&request).await;
        }
        let (route, parts) = found?;
        let caller = self.authorize(route, &request, peer)?;
        let query = Query::read(request.uri().query(), route.query)?;
        (route.handler)(self, Call { request, peer, caller, parts, query }).await
    }

    /// Name of the caller's token, if the caller may use `route`; empty if none is needed.
    fn authorize(&self, route: &Route, request: &HttpRequest, peer: &Peer) -> Result<String, Problem> {
        let headers = request.headers();
        let operator = |role| self.operator(headers, role).map(|operator| operator.name.clone());
        match route.needs {
            // The POP named in the report decides which token is needed.
            Needs::Pop | Needs::Reader if !self.reporters(headers, peer).is_empty() => Ok(String::new()),
            Needs::Pop => Err(Problem::unauthorized()),
            Needs::Reader => operator(Role::Read).map_err(|_| Problem::unauthorized()),
            Needs::Write if is_change(route, request) => operator(Role::Write),
            Needs::Read | Needs::Write => operator(Role::Read),
            Needs::Check => self.asker(headers, GatewayApi::Check),
            Needs::Limit => self.asker(headers, GatewayApi::Limit),
        }
    }

    async fn page(&self, request: &HttpRequest) -> Answered {
        self.check_length(request)?;
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/healthz" | "/readyz" | METRICS_PATH if !reads => Err(Problem::method_not_allowed("GET, HEAD")),
            "/healthz" => Ok(self.health()),
            "/readyz" => Ok(self.readiness().await),
            METRICS_PATH => Ok(text(StatusCode::OK, page::CONTENT_TYPE, self.metrics_page().await)),
            _ => Err(table::unknown()),
        }
    }

    /// Rendered metrics, rebuilt at most once per `metrics_interval`: with many budgets, reports wait for that.
    async fn metrics_page(&self) -> Bytes {
        let mut page = self.page.lock().await;
        let is_recent = |(made_at, _): &&(Instant, Bytes)| made_at.elapsed() < self.config.metrics_interval;
        if let Some((_, known)) = page.as_ref().filter(is_recent) {
            return known.clone();
        }
        self.exchange.refresh_metrics().await;
        page.insert((Instant::now(), page::write(&self.registry).into())).1.clone()
    }

    async fn report(&self, Call { request, peer, .. }: Call<'_>) -> Answered {
        let reporters = self.reporters(request.headers(), peer);
        let first = reporters.first().ok_or_else(Problem::unauthorized)?;
        if !essence(request.headers()).eq_ignore_ascii_case(messages::CONTENT_TYPE.as_bytes()) {
            return Err(Problem::media_type(messages::CONTENT_TYPE));
        }
        let body = self.read(request.into_body(), self.config.body_bytes_max).await?;
        let report = Report::decode(&body).map_err(|error| {
            self.metrics.count_report("malformed");
            match error {
                WireError::TooLarge(_) => Problem::too_large(messages::MESSAGE_BYTES_MAX),
                _ => Problem::malformed(error.to_string()),
            }
        })?;
        let reporter = may_report(&reporters, first, &report).map_err(|detail| {
            self.metrics.count_report("forbidden");
            Problem::new(StatusCode::FORBIDDEN, detail)
        })?;
        self.metrics.count_use(&reporter.name);
        Ok(text(StatusCode::OK, messages::CONTENT_TYPE, self.exchange.answer(ReporterKind::Pop, report).await))
    }

    /// Refuses a body that is longer than any path accepts. A body of unknown length is refused while it is read.
    fn check_length(&self, request: &HttpRequest) -> Result<(), Problem> {
        let bytes_max = self.config.body_bytes_max.max(DOCUMENT_BYTES_MAX);
        let fits = request.body().size_hint().lower() <= bytes_max as u64;
        if fits { Ok(()) } else { Err(Problem::too_large(bytes_max)) }
    }

    fn health(&self) -> HttpResponse {
        let (status, body) =
            if self.is_draining() { (StatusCode::SERVICE_UNAVAILABLE, "draining\n") } else { (StatusCode::OK, "ok\n") };
        text(status, "text/plain; charset=utf-8", body)
    }

    /// True if the store is in reach, the gateway, if any, has its rules, and weir-sync is not draining.
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
        json(status, JSON, &serde_json::json!({"ready": is_ready}))
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

    /// Name of the token of a caller of the gateway's API `api`; empty if no token is needed.
    fn asker(&self, headers: &HeaderMap, api: GatewayApi) -> Result<String, Problem> {
        self.open_gateway()?;
        let asker = self.secrets.access.asker(bearer(headers), api)?;
        let name = asker.map_or_else(String::new, |asker| asker.name.clone());
        if !name.is_empty() {
            self.metrics.count_use(&name);
        }
        Ok(name)
    }

    async fn json(&self, request: HttpRequest, bytes_max: usize) -> Result<Value, Problem> {
        if !essence(request.headers()).eq_ignore_ascii_case(JSON.as_bytes()) {
            return Err(Problem::media_type(JSON));
        }
        let body = self.read(request.into_body(), bytes_max).await?;
        source::json(&body).map_err(|error| Problem::malformed(format!("expected JSON: {error}")))
    }

    /// Reads the whole body, of at most `bytes_max` bytes, within the time limit.
    async fn read(&self, body: Arriving, bytes_max: usize) -> Result<Bytes, Problem> {
        if body.size_hint().lower() > bytes_max as u64 {
            return Err(Problem::too_large(bytes_max));
        }
        let body_timeout = self.config.body_timeout;
        let collected = timeout(body_timeout, Limited::new(body, bytes_max).collect()).await;
        let collected = collected.map_err(|_| {
            let detail = format!("expected the whole body within {} ms", body_timeout.as_millis());
            Problem::new(StatusCode::REQUEST_TIMEOUT, detail).that_closes()
        })?;
        match collected {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(Problem::too_large(bytes_max)),
            Err(_) => Err(Problem::malformed("the body broke off").that_closes()),
        }
    }
}

/// Credential that covers the POP of `report`, or the reason why there is none. POPs and rules of gateways are refused.
fn may_report<'a>(
    reporters: &'a [Arc<Credential<PopPatterns>>],
    first: &Credential<PopPatterns>,
    report: &Report,
) -> Result<&'a Credential<PopPatterns>, String> {
    let pop = &report.pop;
    if pop.starts_with(GATEWAY_PREFIX) {
        return Err(format!(
            "found a report of {pop}: names that begin with `gateway/` are those of the gateways in weir-syncs; give \
             this POP another name (sync.pop)"
        ));
    }
    if let Some(rule) = report.rules.iter().find(|rule| limit::RULES.contains(&rule.name.as_str())) {
        return Err(format!(
            "found a report of {}: these budgets are for POST /ratelimit/check and for limits of descriptors",
            rule.name
        ));
    }
    let reporter = reporters.iter().find(|reporter| reporter.scope.covers(pop));
    let Credential { name, scope } = first;
    reporter.map(AsRef::as_ref).ok_or_else(|| {
        format!(
            "the token or certificate `{name}` is for reports of {}, found a report of {pop}: give this POP one of its \
             own, or add its name to that line of token_file",
            scope.as_str()
        )
    })
}

fn own_host(hosts: AllowedHosts, request: &HttpRequest) -> Result<(), Problem> {
    let is_own = hosts.are_own(request.uri(), request.headers());
    is_own.then_some(()).ok_or_else(|| Problem::new(StatusCode::MISDIRECTED_REQUEST, EXPECTED_HOST))
}

/// Media type of the content, without parameters.
fn essence(headers: &HeaderMap) -> &[u8] {
    let value = headers.get(CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
    value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}
