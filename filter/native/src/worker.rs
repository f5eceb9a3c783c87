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

/// What Envoy does as a host.
const RULES: HostRules =
    HostRules { calls_from_answers: true, answers_grpc: true, has_heirs: true, hears_decisions: false };

/// An edge, with what it needs of the process.
pub(crate) struct Worker {
    pub(crate) edge: Edge,
    pub(crate) seat: Seat,
    /// The rules that it counts for, by their names.
    pub(crate) counted: Vec<String>,
    /// Requests that wait for their turns.
    pub(crate) held: HashMap<u32, StreamScheduler>,
    numbered: u32,
    /// None if the POP is on its own.
    caller: Option<Arc<Caller>>,
}

/// What is next for a request.
pub(crate) enum Next {
    GoOn,
    /// It waits for its turn.
    Hold,
    /// It waits for a call: Envoy's number for that, and the edge's.
    Call(u64, u64),
    Answer(Reply),
}

/// An answer to a client. It is a copy, because a request may end while it is answered, and call the worker again.
pub(crate) struct Reply {
    status: u16,
    /// The details, the headers and the body.
    bytes: Vec<u8>,
    headers_at: usize,
    body_at: usize,
}

/// A larger answer's memory is given back, in bytes.
const SPARE_BYTES_MAX: usize = 16 * 1_024;

thread_local! {
    /// The memory of this thread's last answer, for the next.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Worker {
    /// A worker with this configuration, of a filter of this name, and what to do first; or every error, with its place.
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

    /// Decides a request whose headers are there, or that has waited for the call that is `answered`. None if it does not wait
    /// for it.
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
            if let Some(rules) = decided.shadow {
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

    /// A request's response has begun.
    pub(crate) fn response(&mut self, open: &mut Open, stream: Stream) {
        self.edge.response(open, &mut HostResponse(stream), &mut self.seat, now());
    }

    /// It is complete, or never will be.
    pub(crate) fn response_sent(&mut self, open: &mut Open, stream: Stream) {
        self.edge.response_sent(open, &mut HostResponse(stream), &mut self.seat, now());
    }

    /// A request ends, for whatever reason.
    pub(crate) fn end(&mut self, open: &mut Open) {
        self.held.remove(&open.id());
        self.edge.end(open, &mut self.seat, now());
    }

    /// The way to weir-sync; none if the POP is on its own.
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

    /// Sends it.
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

/// Writes what an edge has to say to Envoy's log.
pub(crate) fn write_log(level: weir_limiter::edge::Level, text: &str) {
    use weir_limiter::edge::Level as Said;
    let level = match level {
        Said::Error => Level::Error,
        Said::Warn => Level::Warn,
        Said::Info => Level::Info,
    };
    log(level, &format!("weir: {text}"));
}
