//! Which request does what, and whether it may.

mod rules;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use hyper::{Method, StatusCode};
use tokio::sync::Mutex;
use tokio::time::timeout;
use weir_wire::messages;

use crate::metrics::page::Format;
use crate::metrics::{Metrics, Status};
use crate::problem::{Problem, json, text};
use crate::report::Exchange;
use crate::tokens::Tokens;

/// What is asked.
pub type Request = hyper::Request<Incoming>;
/// What is answered.
pub type Response = hyper::Response<Full<Bytes>>;
/// The same, or what goes wrong.
type Answered = Result<Response, Problem>;

/// Where the metrics are.
const METRICS_PATH: &str = "/metrics";

/// The metrics, in both formats.
#[derive(Debug)]
pub struct Page {
    made_at: Instant,
    open: Bytes,
    text: Bytes,
}

/// Answers requests.
#[derive(Debug)]
pub struct Routes {
    /// Answers the reports.
    pub exchange: Exchange,
    /// What `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// The tokens that reports, and changes of the rule set, must carry.
    pub tokens: Arc<Tokens>,
    /// The metrics as they were made last.
    pub page: Mutex<Option<Page>>,
    /// How often they are made at most.
    pub metrics_interval: Duration,
    /// Whether the pages have an address of their own; the metrics are only there then.
    pub has_ops: bool,
    /// How long a body may take.
    pub body_timeout: Duration,
    /// The largest body, in bytes.
    pub body_bytes_max: usize,
}

impl Routes {
    /// The response to `request`. Never fails: what goes wrong is a problem response.
    pub async fn respond(&self, request: Request) -> Response {
        self.route(request).await.unwrap_or_else(|problem| self.refuse(&problem))
    }

    async fn route(&self, request: Request) -> Answered {
        let method = request.method();
        match request.uri().path() {
            messages::REPORT_PATH if method == Method::POST => self.report(request).await,
            messages::REPORT_PATH => Err(Problem::MethodNotAllowed("POST")),
            METRICS_PATH if self.has_ops => Err(Problem::ElsewhereOnly),
            "/healthz" | "/readyz" | METRICS_PATH => self.page(&request).await,
            _ => self.rules(request).await,
        }
    }

    /// The response to `request` at the address that has the pages only.
    pub async fn respond_to_operator(&self, request: Request) -> Response {
        self.page(&request).await.unwrap_or_else(|problem| self.refuse(&problem))
    }

    fn refuse(&self, problem: &Problem) -> Response {
        let status = problem.status().as_u16();
        tracing::debug!(status, detail = problem.detail(), "refused a request");
        self.metrics.http_errors.get_or_create(&Status { status }).inc();
        problem.response()
    }

    async fn page(&self, request: &Request) -> Answered {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/healthz" | "/readyz" | METRICS_PATH if !reads => Err(Problem::MethodNotAllowed("GET, HEAD")),
            "/healthz" => Ok(text(StatusCode::OK, "text/plain; charset=utf-8", "ok\n")),
            "/readyz" => Ok(self.readiness().await),
            METRICS_PATH => {
                let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
                let format = Format::accepted(accept);
                Ok(text(StatusCode::OK, format.content_type(), self.metrics_page(format).await))
            }
            _ => Err(Problem::NotFound),
        }
    }

    /// The metrics, made at most once in [`Self::metrics_interval`]: with many budgets that takes long, and reports
    /// wait meanwhile.
    async fn metrics_page(&self, format: Format) -> Bytes {
        let mut page = self.page.lock().await;
        let known = page.as_ref().filter(|known| known.made_at.elapsed() < self.metrics_interval);
        let known = if let Some(known) = known {
            known
        } else {
            self.exchange.refresh_metrics().await;
            let of = |format| Bytes::from(self.metrics.page(format));
            let (open, text) = (of(Format::OpenMetrics), of(Format::Text));
            page.insert(Page { made_at: Instant::now(), open, text })
        };
        if format == Format::OpenMetrics { known.open.clone() } else { known.text.clone() }
    }

    async fn report(&self, request: Request) -> Answered {
        self.authorize(request.headers())?;
        if !essence(request.headers()).eq_ignore_ascii_case(messages::CONTENT_TYPE.as_bytes()) {
            return Err(Problem::MediaType(messages::CONTENT_TYPE));
        }
        let body = self.read(request.into_body(), self.body_bytes_max).await?;
        let reply = self.exchange.answer(&body).await;
        let reply = reply.map_err(|error| match error {
            messages::WireError::TooLarge(_) => Problem::TooLarge(messages::MESSAGE_BYTES_MAX),
            _ => Problem::Malformed(error.to_string()),
        })?;
        Ok(text(StatusCode::OK, messages::CONTENT_TYPE, reply))
    }

    async fn readiness(&self) -> Response {
        let ready = self.exchange.ready().await;
        // Anybody may ask; what the store says is for the logs.
        if let Err(error) = &ready {
            tracing::debug!(%error, "not ready");
        }
        let status = if ready.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        json(status, "application/json", &serde_json::json!({"ready": ready.is_ok()}))
    }

    fn authorize(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if self.tokens.let_report(bearer(headers)) { Ok(()) } else { Err(Problem::Unauthorized) }
    }

    /// Lets in requests that may change the rule set.
    fn authorize_admin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if !self.tokens.have_admin() {
            return Err(Problem::NoAdmin);
        }
        if self.tokens.let_change(bearer(headers)) { Ok(()) } else { Err(Problem::Unauthorized) }
    }

    /// Lets in requests that may report, and those that may change the rule set.
    fn authorize_any(&self, headers: &HeaderMap) -> Result<(), Problem> {
        self.authorize(headers).or_else(|problem| self.authorize_admin(headers).map_err(|_| problem))
    }

    async fn read(&self, body: Incoming, bytes_max: usize) -> Result<Bytes, Problem> {
        let too_large = Problem::TooLarge(bytes_max);
        if body.size_hint().lower() > bytes_max as u64 {
            return Err(too_large);
        }
        let collected = timeout(self.body_timeout, Limited::new(body, bytes_max).collect()).await;
        match collected {
            Err(_) => Err(Problem::Slow(self.body_timeout.as_millis())),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large),
            Ok(Err(_)) => Err(Problem::Broken),
            Ok(Ok(body)) => Ok(body.to_bytes()),
        }
    }
}

/// The token that a request carries; the scheme's case does not matter (RFC 9110, 11.1).
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// The content's media type, without its parameters.
fn essence(headers: &HeaderMap) -> &[u8] {
    let value = headers.get(CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
    value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}
