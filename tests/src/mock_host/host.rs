//! The host as one worker's VM sees it.

use std::collections::{BTreeMap, BTreeSet};

use super::script::{Answer, Script};
use super::shared::SharedData;

/// A test's clocks start here, in nanoseconds: the monotonic one an hour after the machine did.
const MONOTONIC_NS: u64 = 3_600_000_000_000;
/// 2026-01-01, as nanoseconds since 1970.
const UNIX_NS: u64 = 1_767_225_600_000_000_000;
/// Headers whose lines Envoy joins by commas; tests/tests/e2e/evasions.rs compares.
const JOINED: [&str; 8] =
    ["accept", "accept-encoding", "authorization", "content-type", "origin", "referer", "user-agent", "via"];
/// The part of the log that a failure shows.
const LOG_TAIL_LINES: usize = 12;

/// A request's side of the host.
#[must_use]
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Header names and values.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Properties; the parts of a path are separated by NUL.
    pub properties: BTreeMap<String, Vec<u8>>,
}

impl Ask {
    /// A plain GET of `/` whose peer is `address`, as a host writes it.
    pub fn from(address: impl AsRef<[u8]>) -> Self {
        let mut ask = Self::default().header(":method", "GET").header(":path", "/");
        ask.properties.insert("source\0address".into(), address.as_ref().to_vec());
        ask.header(":authority", "api.example.com")
    }

    /// The same with this header, in place of one that it has.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.line(name, value)
    }

    /// The same with one more line of this header. As in Envoy, some headers' lines become one.
    pub fn line(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let known = self.headers.iter_mut().find(|(known, _)| known == name && JOINED.contains(&name));
        match known {
            Some((_, joined)) => *joined = [joined, b",".as_slice(), value.as_ref()].concat(),
            None => self.headers.push((name.into(), value.as_ref().to_vec())),
        }
        self
    }
}

/// A response that the filter gave for the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalResponse {
    /// The HTTP status.
    pub status: u32,
    /// Attributes for access logs.
    pub details: String,
    /// Header names and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
    /// The status of a gRPC request.
    pub grpc_status: i32,
}

impl LocalResponse {
    /// A header's value; empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// A request whose headers have not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    pub(super) id: u32,
    pub(super) root: u32,
}

/// The module's functions that a host may call while the module calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callback {
    /// A request begins.
    Begins(Created),
    /// It ends.
    Ends(Created),
}

/// An HTTP call that the filter made.
#[derive(Clone, Debug)]
pub struct HttpCall {
    /// Names the call in its answer.
    pub token: u32,
    /// The cluster.
    pub upstream: String,
    /// Header names and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// In milliseconds.
    pub timeout_ms: u32,
    /// The request that it was made for; none where it was the root context's.
    pub(super) request: Option<u32>,
}

impl HttpCall {
    /// The path with its query.
    pub fn path(&self) -> &str {
        self.headers.iter().find(|(name, _)| name == ":path").map_or("", |(_, path)| path)
    }
}

/// The answer to an HTTP call.
#[derive(Clone, Debug, Default)]
pub struct CallAnswer {
    /// Header names and values; none is a call that failed or timed out.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
    /// A false size of the body, if the host gives one.
    pub claimed_size: Option<u32>,
}

impl CallAnswer {
    /// A status and a body.
    pub fn new(status: &str, body: Vec<u8>) -> Self {
        Self { headers: vec![(":status".into(), status.into())], body, claimed_size: None }
    }

    /// No connection, or no answer in time.
    pub fn timeout() -> Self {
        Self::default()
    }
}

/// The host as one worker's VM sees it. Fields are what a test sets and reads.
#[must_use]
#[derive(Default)]
pub struct Host {
    /// The monotonic clock, in nanoseconds.
    pub monotonic_ns: u64,
    /// The wall clock, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// The proxy's properties, beside a request's.
    pub properties: BTreeMap<String, Vec<u8>>,
    /// Levels (0 trace to 5 critical) and lines.
    pub logs: Vec<(u32, String)>,
    /// HTTP calls that no test has answered yet.
    pub http_calls: Vec<HttpCall>,
    /// As the filter set it, in milliseconds.
    pub tick_period_ms: Option<u32>,
    /// Runs once, before the next write to shared data: another worker's chance to come between.
    pub before_write: Option<Box<dyn FnOnce()>>,
    /// A function in which the host calls back, once, and what it calls.
    pub calls_back: Option<(String, Vec<Callback>)>,
    /// Filter state that the last request left behind.
    pub filter_state: BTreeMap<String, String>,
    /// The number of times that the module was asked for memory to put an answer into: the main cost of most calls.
    pub lent: u32,
    /// The callback that the module is in, and the request it is for; none where that is the root context.
    pub(super) callback: &'static str,
    pub(super) request: Option<u32>,
    pub(super) shared: SharedData,
    pub(super) configuration: Vec<u8>,
    pub(super) ask: Ask,
    /// The contexts that have begun and not ended.
    pub(super) contexts: BTreeSet<u32>,
    /// The number of times that a held request was let go on.
    pub(super) resumed: u32,
    pub(super) responses: Vec<LocalResponse>,
    pub(super) added_headers: Vec<(String, String)>,
    /// The headers that the upstream's responses have, until the filter removes them.
    pub upstream_headers: Vec<(String, String)>,
    pub(super) call_answer: CallAnswer,
    pub(super) last_token: u32,
    pub(super) metrics: Vec<(String, u64)>,
    pub(super) random_state: u64,
    script: Script,
    called: BTreeMap<String, u32>,
}

impl Host {
    /// An Envoy that works, for a worker of the proxy that has this shared data.
    pub fn new(shared: &SharedData) -> Self {
        Self {
            monotonic_ns: MONOTONIC_NS,
            unix_ns: UNIX_NS,
            shared: shared.clone(),
            // Each worker draws other bytes than its neighbours, and the same in every run.
            random_state: shared.next_worker().wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ..Self::default()
        }
    }

    /// The same with these answers.
    pub fn with(mut self, script: Script) -> Self {
        self.follow(script);
        self
    }

    /// Answers by `script` from now on; calls are counted anew.
    pub fn follow(&mut self, script: Script) {
        self.script = script;
        self.called.clear();
    }

    /// The number of calls of `function` by the module, or of the module's by its host, since the script began.
    pub fn called(&self, function: &str) -> u32 {
        self.called.get(function).copied().unwrap_or(0)
    }

    /// The value of a counter; `None` if it is not defined.
    pub fn metric(&self, name: &str) -> Option<u64> {
        self.metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// The names of all counters.
    pub fn metric_names(&self) -> Vec<&str> {
        self.metrics.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// The number of log lines that contain `text`.
    pub fn logged(&self, text: &str) -> usize {
        self.logs.iter().filter(|(_, line)| line.contains(text)).count()
    }

    /// The keys of the shared data.
    pub fn shared_keys(&self) -> Vec<Vec<u8>> {
        self.shared.keys()
    }

    /// The call that the request `id` waits for.
    pub fn call_of(&self, id: u32) -> Option<&HttpCall> {
        self.http_calls.iter().find(|call| call.request == Some(id))
    }

    /// The filter's answer to the request that began last.
    pub fn response(&self) -> Option<&LocalResponse> {
        self.responses.last()
    }

    pub(super) fn log_tail(&self) -> String {
        let tail = self.logs.len().saturating_sub(LOG_TAIL_LINES);
        let lines: Vec<_> = self.logs[tail..].iter().map(|(level, line)| format!("  [{level}] {line}")).collect();
        lines.join("\n")
    }

    pub(super) fn answer(&mut self, function: &str) -> Answer {
        let nth = self.count(function);
        self.script.answer(function, nth)
    }

    /// Counts a call of `function`; returns which one it is, from 1.
    pub(super) fn count(&mut self, function: &str) -> u32 {
        match self.called.get_mut(function) {
            Some(count) => {
                *count += 1;
                *count
            }
            None => *self.called.entry(function.to_owned()).or_insert(1),
        }
    }
}
