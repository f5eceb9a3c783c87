//! What an edge has its host do.

use alloc::string::String;
use alloc::vec::Vec;

#[cfg(feature = "takes")]
use alloc::boxed::Box;

use super::site::Site;
use crate::counters::Counters;
#[cfg(feature = "takes")]
use crate::fleet::Take;
use weir_wire::messages::Running;
use weir_wire::time::Time;

/// What to do with a request, and what to note about it.
pub struct Decided<'a> {
    /// What to do with it now.
    pub step: Step<'a>,
    /// What to note for access logs, if the configuration says so.
    pub note: Option<Note<'a>>,
}

impl Decided<'_> {
    pub(super) const CONTINUE: Self = Self { step: Step::Continue, note: None };
}

/// What to do with a request.
pub enum Step<'a> {
    /// Let it go on.
    Continue,
    /// Hold it until [`Effect::Resume`] names it.
    Hold,
    /// Make this call, and hold the request until it is answered: [`super::Edge::answer_request`].
    Call(Call),
    /// Have the budget give this, and hold the request meanwhile: [`super::Edge::taken`].
    #[cfg(feature = "takes")]
    Take(Box<Take>),
    /// Answer the client in place of the upstream. If the host cannot, the request goes on.
    Answer(Answer<'a>),
}

/// An answer to a client.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The status.
    pub status: u16,
    /// What an access log says about it (Envoy's `%RESPONSE_CODE_DETAILS%`).
    pub details: &'a str,
    /// The headers, as [`super::Site::pack`] made them.
    pub headers: &'a [u8],
    /// The body; for a gRPC client, its message.
    pub body: &'a str,
}

/// What access logs say about a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note<'a> {
    /// `allow`, `limit`, `deny` or `block`.
    pub decision: &'static str,
    /// The rule that made it; empty if none did.
    pub rule: &'a str,
}

/// A call to weir-sync: a POST if it has a body, else a GET.
#[derive(Debug)]
pub struct Call {
    /// Names it among the calls of this edge; its answer is given with this number.
    pub number: u64,
    /// The path, with its query.
    pub path: String,
    /// The body, a report ([`weir_wire::messages::CONTENT_TYPE`]).
    pub body: Vec<u8>,
    /// How long to wait for the answer, in milliseconds.
    pub timeout_ms: u32,
}

/// Why a call brought no usable body.
#[derive(Debug)]
pub enum Unread {
    /// There was no good answer; this says why.
    Failed(String),
    /// The host made no call; this says why.
    NotMade(String),
    /// The body has this many bytes, more than [`super::ANSWER_BYTES_MAX`].
    TooLarge(usize),
}

/// The result of a call: the body of a good answer, or why there is none.
pub type Answered = Result<Vec<u8>, Unread>;

/// What a host does after a tick or an answer, in the order given.
pub enum Effect {
    /// Let this held request go on; it may have ended meanwhile.
    Resume(u32),
    /// Make this call. Give its answer, or that it could not be made, to [`super::Edge::answer`].
    Call(Call),
    /// Tick at this interval from now on, in milliseconds. A host that cannot calls [`super::Edge::has_no_timer`].
    SetTimer(u32),
    /// Write this to the log.
    Log(Level, String),
    /// Hand over [`super::Edge::counters`] now.
    Flush,
    /// Other rules are in force: [`super::Edge::rules`]. These counts are those of the rules before.
    NewRules(Counters),
    /// Which pushed rule set runs now, and which was refused.
    Running(Running),
}

/// How serious a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The operator must act.
    Error,
    /// The operator may have to act.
    Warn,
    /// All is well.
    Info,
}

/// One call of the edge by its host: the site, the time, and the effects so far.
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

    pub(super) fn call(&mut self, call: Call) {
        self.effects.push(Effect::Call(call));
    }
}
