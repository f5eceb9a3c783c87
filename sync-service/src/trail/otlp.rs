//! Lines to an OpenTelemetry collector, by OTLP over HTTP in its form of JSON: the trail as log records, and spans.
//!
//! The form is small, and written here: the libraries for it bring an SDK with its own queues, clocks and contexts, of which
//! nothing would be used.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, StatusCode};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsConnector;

use super::event::Line;
use super::fault::Fault;
use super::queue::BATCH_MAX;
use crate::config::OtlpUrl;
use crate::http_client::Peer;

/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time from one request to the next: lines gather meanwhile.
const PAUSE: Duration = Duration::from_millis(200);
/// What an answer says that is worth another try, beside all that say so by themselves (OTLP, "Failures").
const TRY_AGAIN: [StatusCode; 4] = [
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];

/// What lines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Events of the trail.
    Logs,
    /// Spans.
    Spans,
}

/// A collector.
pub struct Otlp {
    signal: Signal,
    url: OtlpUrl,
    peer: Peer,
    /// Who writes.
    resource: Value,
    last: Option<Instant>,
}

impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Otlp").field("signal", &self.signal).field("url", &self.url).finish_non_exhaustive()
    }
}

impl Otlp {
    /// The one at `url`; `member` writes: `region/replica`, or only the region.
    pub fn new(signal: Signal, url: OtlpUrl, member: &str) -> Self {
        let region = member.split_once('/').map_or(member, |(region, _)| region);
        let attributes = [
            text("service.name", "weir-sync"),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", member),
            text("weir.region", region),
        ];
        let tls = url.server_name().filter(|_| url.is_tls()).map(|name| (connector(), name));
        let peer = Peer { host: url.host().into(), port: url.port(), tls, patience: PATIENCE };
        Self { signal, url, peer, resource: json!({ "attributes": attributes }), last: None }
    }

    /// Sends `lines`. What the collector will never take is not sent again.
    pub async fn send(&mut self, lines: &[Line]) -> Result<(), Fault> {
        if let Some(at) = self.due(lines.len()) {
            sleep_until(at).await;
        }
        self.last = Some(Instant::now());
        let (refused, reason) = match self.peer.exchange(self.request(lines)).await {
            Ok(answer) if answer.status().is_success() => return Ok(()),
            Ok(answer) => {
                let status = answer.status();
                let is_refused = !TRY_AGAIN.contains(&status);
                (if is_refused { lines.len() } else { 0 }, format!("the collector answered {status}"))
            }
            Err(error) => (0, error.to_string()),
        };
        Err(Fault::refusal(refused, &format!("{}: {reason}", self.url)))
    }

    /// When so many lines may be sent: as many as are given at once need not wait for more.
    fn due(&self, lines: usize) -> Option<Instant> {
        self.last.filter(|_| lines < BATCH_MAX).map(|last| last + PAUSE)
    }

    fn request(&self, lines: &[Line]) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body(lines).into()));
        *request.method_mut() = hyper::Method::POST;
        // Read from a URL, and so fine as parts of a request.
        *request.uri_mut() = self.url.path().parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Ok(host) = HeaderValue::try_from(self.url.authority()) {
            headers.insert(HOST, host);
        }
        request
    }

    fn body(&self, lines: &[Line]) -> String {
        let scope = json!({"name": "weir-sync", "version": env!("CARGO_PKG_VERSION")});
        let body = match self.signal {
            Signal::Logs => {
                let records: Vec<Value> = lines.iter().map(record).collect();
                let logs = json!({"resource": self.resource, "scopeLogs": [{"scope": scope, "logRecords": records}]});
                json!({ "resourceLogs": [logs] })
            }
            Signal::Spans => {
                // What tells of losses is no span; the metric counts them.
                let spans = lines.iter().filter(|line| line.kind == SPAN);
                let spans: Vec<Value> =
                    spans.filter_map(|line| serde_json::from_str(&line.json).ok()).collect();
                let spans =
                    json!({"resource": self.resource, "scopeSpans": [{"scope": scope, "spans": spans}]});
                json!({ "resourceSpans": [spans] })
            }
        };
        body.to_string()
    }
}

/// The kind of a line that is a span.
pub const SPAN: &str = "span";

/// An event as a log record: its JSON is the body.
fn record(line: &Line) -> Value {
    let is_odd = matches!(line.kind, "anomaly" | "lost");
    let (number, severity) = if is_odd { (13, "WARN") } else { (9, "INFO") };
    json!({
        "observedTimeUnixNano": unix_ns(SystemTime::now()).to_string(),
        "severityNumber": number,
        "severityText": severity,
        "eventName": format!("weir.{}", line.kind),
        "body": {"stringValue": &*line.json},
    })
}

/// An attribute that is a text.
pub fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// An attribute that is a number.
pub fn number(key: &str, value: u64) -> Value {
    // JSON has no integers of 64 bits, so protobuf's form of it has them as texts.
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

/// Nanoseconds since 1970.
pub fn unix_ns(at: SystemTime) -> u128 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos()
}

/// Trusts the authorities of the system.
fn connector() -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_gather_for_a_moment_unless_there_are_as_many_as_fit() {
        let url = OtlpUrl::read("http://127.0.0.1:4318/v1/x").unwrap();
        let mut otlp = Otlp::new(Signal::Spans, url, "fra/a");
        assert_eq!(otlp.due(1), None, "nothing was sent yet");
        let sent_at = Instant::now();
        otlp.last = Some(sent_at);
        assert_eq!((otlp.due(BATCH_MAX - 1), otlp.due(BATCH_MAX)), (Some(sent_at + PAUSE), None));
    }

    #[test]
    fn events_are_records_and_spans_are_spans() {
        let line = |kind, json: &str| Line { kind, json: json.into() };
        let body = |signal, lines: &[Line]| -> Value {
            let otlp = Otlp::new(signal, OtlpUrl::read("http://127.0.0.1:4318/v1/x").unwrap(), "fra/a");
            serde_json::from_str(&otlp.body(lines)).unwrap()
        };
        let logs = body(Signal::Logs, &[line("change", "{}"), line("anomaly", "{\"a\":1}")]);
        let of = &logs["resourceLogs"][0];
        assert_eq!(of["resource"]["attributes"][2], text("service.instance.id", "fra/a"));
        let records = of["scopeLogs"][0]["logRecords"].as_array().unwrap();
        assert_eq!(
            (&records[0]["severityText"], &records[1]["severityText"]),
            (&json!("INFO"), &json!("WARN"))
        );
        assert_eq!(records[1]["body"], json!({"stringValue": "{\"a\":1}"}));
        let spans = body(Signal::Spans, &[line("lost", "{}"), line(SPAN, "{\"name\":\"x\"}")]);
        assert_eq!(spans["resourceSpans"][0]["scopeSpans"][0]["spans"], json!([{"name": "x"}]));
    }
}
