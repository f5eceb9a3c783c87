//! Actions for the host of an engine.

use alloc::string::String;
use alloc::vec::Vec;

#[cfg(feature = "takes")]
use alloc::boxed::Box;

use super::host::Host;
use crate::counters::Counters;
#[cfg(feature = "takes")]
use crate::fleet::Consume;
use weir_protocol::messages::RunningRules;
use weir_protocol::time::Time;

/// The next action for a request, and a note for access logs.
pub struct RequestDecision<'a> {
    /// The next action.
    pub step: RequestStep<'a>,
    /// The decision for access logs, if the configuration asks for it.
    pub note: Option<AccessLogNote<'a>>,
}

impl RequestDecision<'_> {
    pub(super) const CONTINUE: Self = Self { step: RequestStep::Continue, note: None };
}

/// The next action for a request.
pub enum RequestStep<'a> {
    /// Let it go on.
    Continue,
    /// Hold it until [`Effect::Resume`] names it.
    Hold,
    /// Make this call, and hold the request until the reply: [`super::Engine::answer_request`].
    Call(SyncCall),
    /// Consume this from the budget, and hold the request meanwhile: [`super::Engine::taken`].
    #[cfg(feature = "takes")]
    Take(Box<Consume>),
    /// Answer the client in place of the upstream. If the host cannot, the request goes on.
    Answer(LocalReply<'a>),
}

/// A response to a client.
#[derive(Debug)]
pub struct LocalReply<'a> {
    /// The status.
    pub status: u16,
    /// The reason in access logs (Envoy's `%RESPONSE_CODE_DETAILS%`).
    pub details: &'a str,
    /// The headers, made by [`super::Host::pack`].
    pub headers: &'a [u8],
    /// The body; for a gRPC client, its message.
    pub body: &'a str,
}

/// A decision for access logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessLogNote<'a> {
    /// `allow`, `limit`, `deny` or `block`.
    pub decision: &'static str,
    /// The rule that decided; empty if none did.
    pub rule: &'a str,
}

/// A call to weir-sync: a POST if it has a body, else a GET.
#[derive(Debug)]
pub struct SyncCall {
    /// Number among the calls of this engine; the reply is passed back with it.
    pub number: u64,
    /// The path, with its query.
    pub path: String,
    /// The body, a report ([`weir_protocol::messages::CONTENT_TYPE`]).
    pub body: Vec<u8>,
    /// Time-out of the call, in milliseconds.
    pub timeout_ms: u32,
}

/// The reason why a call has no usable body.
#[derive(Debug)]
pub enum Unread {
    /// There was no good reply; carries a description.
    Failed(String),
    /// The host made no call; carries a description.
    NotMade(String),
    /// The body has this many bytes, more than [`super::ANSWER_BYTES_MAX`].
    TooLarge(usize),
}

/// The result of a call: the body of a good reply, or the reason why there is none.
pub type CallResult = Result<Vec<u8>, Unread>;

/// An action for the host after a tick or a reply, to be done in the order given.
pub enum Effect {
    /// Resume this held request; it may have ended meanwhile.
    Resume(u32),
    /// Make this call. Pass its reply, or the failure to make it, to [`super::Engine::answer`].
    Call(SyncCall),
    /// Tick at this interval from now on, in milliseconds. A host that cannot calls
    /// [`super::Engine::has_no_timer`].
    SetTimer(u32),
    /// Write this to the log.
    Log(LogLevel, String),
    /// Take [`super::Engine::counters`] now.
    Flush,
    /// Use the new rules from [`super::Engine::rules`]. The counts are those of the previous rules.
    NewRules(Counters),
    /// Record the pushed rule set in force, and the one that was refused.
    Running(RunningRules),
}

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// The operator must act.
    Error,
    /// The operator may have to act.
    Warn,
    /// No action is needed.
    Info,
}

/// One call of the engine by its host: the host, the time, and the effects so far.
pub(super) struct EngineCall<'a> {
    pub(super) site: &'a mut dyn Host,
    pub(super) now: Time,
    pub(super) effects: Vec<Effect>,
}

impl<'a> EngineCall<'a> {
    pub(super) fn new(site: &'a mut dyn Host, now: Time) -> Self {
        Self { site, now, effects: Vec::new() }
    }

    pub(super) fn log(&mut self, level: LogLevel, text: impl Into<String>) {
        self.effects.push(Effect::Log(level, text.into()));
    }

    pub(super) fn call(&mut self, call: SyncCall) {
        self.effects.push(Effect::Call(call));
    }
}
