//! What an edge has its host do.

use alloc::string::String;
use alloc::vec::Vec;

use super::site::Site;
use crate::counters::Counters;
use weir_wire::messages::Running;
use weir_wire::time::Time;

/// What is to become of a request.
pub struct Decided<'a> {
    /// What to do with it now.
    pub step: Step<'a>,
    /// What to note of it for access logs, where the configuration says so.
    pub note: Option<Note<'a>>,
}

impl Decided<'_> {
    pub(super) const CONTINUE: Self = Self { step: Step::Continue, note: None };
}

/// What to do with a request.
pub enum Step<'a> {
    /// It goes on.
    Continue,
    /// It is held until [`Effect::Resume`] names it.
    Hold,
    /// It is held until this call is answered: [`super::Edge::answer_request`].
    Call(Call),
    /// Its client is answered for the upstream. If the host cannot, the request goes on.
    Answer(Answer<'a>),
}

/// An answer to a client.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The status.
    pub status: u16,
    /// What an access log is told of it (Envoy's `%RESPONSE_CODE_DETAILS%`).
    pub details: &'a str,
    /// The headers, as [`super::Site::pack`] made them.
    pub headers: &'a [u8],
    /// The body; to a gRPC client its message.
    pub body: &'a str,
}

/// What access logs are told of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note<'a> {
    /// `allow`, `limit`, `deny` or `block`.
    pub decision: &'static str,
    /// The rule that made it; empty where none did.
    pub rule: &'a str,
}

/// A call to weir-sync: a POST where it has a body, and else a GET.
#[derive(Debug)]
pub struct Call {
    /// Names it among the calls of this edge, for its answer.
    pub number: u64,
    /// The path, with its query.
    pub path: String,
    /// The body, a report ([`weir_wire::messages::CONTENT_TYPE`]).
    pub body: Vec<u8>,
    /// For how long to wait for the answer, in milliseconds.
    pub timeout_ms: u32,
}

/// Why a call has no body of a good answer.
#[derive(Debug)]
pub enum Unread {
    /// There was no good answer, and so it came to nothing.
    Failed(String),
    /// It has so many bytes, more than [`super::ANSWER_BYTES_MAX`].
    TooLarge(usize),
}

/// What came of a call: the body of a good answer, or why there is none.
pub type Answered = Result<Vec<u8>, Unread>;

/// What a host does that ticked, or had an answer, in this order.
pub enum Effect {
    /// This request was held, and goes on; it may have ended meanwhile.
    Resume(u32),
    /// Make this call. What is answered, or that the host could not make it, goes to [`super::Edge::answer`].
    Call(Call),
    /// Tick every so many milliseconds from now on. A host that cannot says so: [`super::Edge::has_no_timer`].
    SetTimer(u32),
    /// Write this to the log.
    Log(Level, String),
    /// Hand over [`super::Edge::counters`] now.
    Flush,
    /// Other rules are in force: [`super::Edge::rules`]. This was counted under those before.
    NewRules(Counters),
    /// Which pushed rule set runs, and which was refused.
    Running(Running),
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The operator has to do something.
    Error,
    /// The operator may have to.
    Warn,
    /// It is as it should be.
    Info,
}

/// A host's call of the edge: where and when, and what it has the host do.
pub(super) struct Turn<'a> {
    pub(super) site: &'a mut dyn Site,
    pub(super) now: Time,
    pub(super) effects: Vec<Effect>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(site: &'a mut dyn Site, now: Time) -> Self {
        Self { site, now, effects: Vec::new() }
    }

    pub(super) fn log(&mut self, level: Level, text: impl Into<String>) {
        self.effects.push(Effect::Log(level, text.into()));
    }

    pub(super) fn call(&mut self, number: u64, path: impl Into<String>, body: Vec<u8>, timeout_ms: u32) {
        self.effects.push(Effect::Call(Call { number, path: path.into(), body, timeout_ms }));
    }
}
