//! One worker of a configuration: its edge, and the requests that it holds.

use std::cell::Cell;
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use weir_limiter::edge::{Answer, Answered, Caller, Edge, Effect, HostRules, Open, Step, Unread};
use weir_rules::config::Config;

use crate::abi::{Level, Stream, StreamScheduler, log};
use crate::calls;
use crate::http::{HostRequest, HostResponse, unpacked};
use crate::process::{Seat, now};

/// Properties of Envoy as a host.
const RULES: HostRules = HostRules { answers_grpc: true, has_heirs: true, hears_decisions: false };

/// An edge, with its host state.
pub(crate) struct Worker {
    pub(crate) edge: Edge,
    pub(crate) seat: Seat,
    /// Names under which the rules are counted, by rule index.
    pub(crate) counted: Vec<String>,
    /// Requests that wait for their turns.
    pub(crate) held: HashMap<u32, StreamScheduler>,
    numbered: u32,
    /// `None` if no weir-sync is configured.
    caller: Option<Arc<Caller>>,
}

/// Next step of a request.
pub(crate) enum Next {
    GoOn,
    /// The request waits for its turn.
    Hold,
    /// The request waits for a call: Envoy's id, and the edge's number of it.
    Call(u64, u64),
    Answer(Reply),
}

/// A response to a client. It owns its bytes, because a request may end while it is answered, which calls the
/// worker again.
pub(crate) struct Reply {
    status: u16,
    /// Details, headers and body, one after the other.
    bytes: Vec<u8>,
    headers_at: usize,
    body_at: usize,
}

/// Maximum size of a buffer that is kept for reuse, in bytes.
const SPARE_BYTES_MAX: usize = 16 * 1_024;

thread_local! {
    /// Buffer of this thread's last response, for the next one.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Worker {
    /// Creates a worker of the filter `name` with its first effects. Returns all errors, each with its place.
    pub(crate) fn begin(name: &str, config: &Config) -> Result<(Self, Vec<Effect>), Vec<String>> {
        let mut seat = Seat::new(name);
        let (edge, effects) = Edge::begin(config.clone(), RULES, &mut seat, now())?;
        let caller = edge.sync().map(Caller::new).map(Arc::new);
        let worker = Self { edge, seat, counted: Vec::new(), held: HashMap::new(), numbered: 0, caller };
        Ok((worker, effects))
    }

    /// Begins a request.
    pub(crate) fn open(&mut self) -> Open {
        self.numbered = self.numbered.wrapping_add(1);
        Open::new(self.numbered)
    }

    /// Decides a request whose headers have arrived, or that has waited for the call in `answered`. `None` if
    /// it does not wait for that call.
    pub(crate) fn decide(
        &mut self,
        open: &mut Open,
        mut request: HostRequest,
        mut answered: Option<(u64, Answered)>,
    ) -> Option<Next> {
        let (now, stream) = (now(), request.stream);
        let Self { edge, seat, caller, held, .. } = self;
        loop {
            let decided = match answered.take() {
                None => edge.request(open, &mut request, seat, now),
                Some(answer) => edge.answer_request(open, answer, &mut request, seat, now)?,
            };
            if let Some(note) = decided.note {
                stream.note("wasm.weir.decision", note.decision);
                stream.note("wasm.weir.rule", note.rule);
            }
            if let Some(rules) = open.take_shadow() {
                stream.note("wasm.weir.shadow", &rules);
            }
            return Some(match decided.step {
                Step::Continue => Next::GoOn,
                Step::Hold => {
                    held.insert(open.id(), stream.scheduler());
                    Next::Hold
                }
                Step::Answer(answer) => Next::Answer(Reply::of(&answer)),
                Step::Call(call) => {
                    let made = match caller {
                        Some(caller) => calls::make(caller, &call, |callout| stream.call(callout)),
                        None => return Some(Next::GoOn),
                    };
                    match made {
                        Ok(callout) => Next::Call(callout, call.number),
                        Err(trouble) => {
                            answered = Some((call.number, Err(Unread::NotMade(trouble))));
                            continue;
                        }
                    }
                }
            });
        }
    }

    /// Handles the response headers of a request.
    pub(crate) fn response(&mut self, open: &mut Open, stream: Stream) {
        self.edge.response(open, &mut HostResponse(stream), &mut self.seat, now());
    }

    /// Handles the end of the response, complete or not.
    pub(crate) fn response_sent(&mut self, open: &mut Open, stream: Stream) {
        self.edge.response_sent(open, &mut HostResponse(stream), &mut self.seat, now());
    }

    /// Ends a request, for whatever reason.
    pub(crate) fn end(&mut self, open: &mut Open) {
        self.held.remove(&open.id());
        self.edge.end(open, &mut self.seat, now());
    }

    /// The caller of weir-sync; `None` if no weir-sync is configured.
    pub(crate) fn caller(&self) -> Option<Arc<Caller>> {
        self.caller.clone()
    }
}

impl Reply {
    fn of(answer: &Answer<'_>) -> Self {
        let mut bytes = SPARE.try_with(Cell::take).unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(answer.details.as_bytes());
        let headers_at = bytes.len();
        bytes.extend_from_slice(answer.headers);
        let body_at = bytes.len();
        bytes.extend_from_slice(answer.body.as_bytes());
        Self { status: answer.status, bytes, headers_at, body_at }
    }

    /// Sends the response.
    pub(crate) fn send(&self, stream: Stream) {
        let (rest, body) = self.bytes.split_at_checked(self.body_at).unwrap_or_default();
        let (details, headers) = rest.split_at_checked(self.headers_at).unwrap_or_default();
        stream.respond(self.status, details, unpacked(headers), body);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let bytes = mem::take(&mut self.bytes);
        if bytes.capacity() <= SPARE_BYTES_MAX {
            let _ = SPARE.try_with(|spare| spare.set(bytes));
        }
    }
}

/// Writes a message of an edge to Envoy's log.
pub(crate) fn write_log(level: weir_limiter::edge::Level, text: &str) {
    use weir_limiter::edge::Level as Said;
    let level = match level {
        Said::Error => Level::Error,
        Said::Warn => Level::Warn,
        Said::Info => Level::Info,
    };
    log(level, &format!("weir: {text}"));
}
