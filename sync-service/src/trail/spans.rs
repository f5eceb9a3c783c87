//! Spans of OpenTelemetry: what a report and a draw take, and where.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::event::Line;
use super::otlp::{SPAN, number, text, unix_ns};
use super::queue::Queue;
use crate::random::random;

/// What the kinds of spans are in OTLP: who answers, and who asks.
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// What OTLP says of a span that failed.
const FAILED: u8 = 2;

/// Takes spans. Without a collector it drops them.
#[derive(Debug, Default)]
pub struct Spans {
    queue: Option<Arc<Queue>>,
    /// Of a hundred traces, so many are told.
    percent: u64,
}

/// Something that takes time.
#[derive(Debug)]
pub struct Span {
    trace: (u64, u64),
    id: u64,
    parent: Option<u64>,
    name: &'static str,
    kind: u8,
    began: SystemTime,
    attributes: Vec<Value>,
}

impl Spans {
    /// Into `queue`: of a hundred traces, `percent`.
    pub fn new(queue: Option<Arc<Queue>>, percent: usize) -> Self {
        Self { queue, percent: percent as u64 }
    }

    /// Begins a trace, if it is one of those that are told.
    pub fn begin(&self, name: &'static str) -> Option<Span> {
        self.queue.as_ref()?;
        let is_told = self.percent >= 100 || random() % 100 < self.percent;
        is_told.then(|| Span::new((random(), random()), None, name, SERVER))
    }

    /// Ends a span, now; `error` says what failed.
    pub fn end(&self, span: Option<Span>, error: Option<String>) {
        let (Some(queue), Some(span)) = (&self.queue, span) else { return };
        queue.push(Line { kind: SPAN, json: span.json(SystemTime::now(), error).to_string().into() });
    }
}

impl Span {
    fn new(trace: (u64, u64), parent: Option<u64>, name: &'static str, kind: u8) -> Self {
        // An identity of zeros is none.
        let id = random().max(1);
        Self { trace, id, parent, name, kind, began: SystemTime::now(), attributes: Vec::new() }
    }

    /// Begins a part of it, for which somebody else is asked.
    #[must_use]
    pub fn ask(&self, name: &'static str) -> Self {
        Self::new(self.trace, Some(self.id), name, CLIENT)
    }

    /// Says a text of it.
    #[must_use]
    pub fn text(mut self, key: &str, value: &str) -> Self {
        self.attributes.push(text(key, value));
        self
    }

    /// Says a number of it.
    #[must_use]
    pub fn number(mut self, key: &str, value: usize) -> Self {
        self.attributes.push(number(key, value as u64));
        self
    }

    fn json(self, ended: SystemTime, error: Option<String>) -> Value {
        let Self { trace: (high, low), id, parent, name, kind, began, attributes } = self;
        let mut span = json!({
            "traceId": format!("{:016x}{low:016x}", high.max(1)),
            "spanId": format!("{id:016x}"),
            "name": name,
            "kind": kind,
            "startTimeUnixNano": unix_ns(began).to_string(),
            "endTimeUnixNano": unix_ns(ended.max(began)).to_string(),
            "attributes": attributes,
        });
        if let Some(parent) = parent {
            span["parentSpanId"] = format!("{parent:016x}").into();
        }
        if let Some(error) = error {
            span["status"] = json!({"code": FAILED, "message": error});
        }
        span
    }
}
