//! Actions for the host of an engine, and responses to refused clients in the host's format.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use super::host::Host;
use crate::algorithms::BucketStatus;
use crate::check::{Beside, QuotaStatus};
use crate::counters::Counters;
use crate::response::{
    BLOCKED_BODY, BLOCKED_STATUS, DENIED_STATUS, GRPC_HTTP_STATUS, Header, LimitedStatus, PreparedResponses,
    blocked_headers, is_grpc, numbers,
};
use crate::sync::Consume;
use weir_protocol::messages::{CONTENT_TYPE, RunningRules};
use weir_protocol::time::Time;
use weir_rules::Rule;
use weir_rules::config::SyncConfig;
use weir_rules::document::DOCUMENT_BYTES_MAX;
use weir_rules::reading::joined;
use weir_rules::request::{Attribute, Request};
use weir_rules::sorting::sorted;
use weir_rules::template::Numbers;

/// Maximum number of bytes of a reply that a host must read.
pub const ANSWER_BYTES_MAX: usize = DOCUMENT_BYTES_MAX;

/// The next action for a request, and the decision for access logs.
pub struct RequestDecision<'a> {
    pub step: RequestStep<'a>,
    /// Decision for access logs, if configured: `allow`, `limit`, `deny` or `block`, and the deciding rule, if any.
    pub logged: Option<(&'static str, &'a str)>,
}

impl RequestDecision<'_> {
    pub(super) const CONTINUE: Self = Self { step: RequestStep::Continue, logged: None };
}

pub enum RequestStep<'a> {
    Continue,
    /// Hold the request until [`Effect::Resume`] names it.
    Hold,
    /// Make this call, and hold the request until [`super::Engine::answer_request`] gets the reply.
    Call(SyncCall),
    /// Consume this from the budget, and hold the request until [`super::Engine::taken`] gets the result.
    Take(Box<Consume>),
    /// Answer the client in place of the upstream. If the host cannot, the request continues.
    Answer(LocalReply<'a>),
}

#[derive(Debug)]
pub struct LocalReply<'a> {
    pub status: u16,
    /// Reason in access logs (Envoy's `%RESPONSE_CODE_DETAILS%`).
    pub details: &'a str,
    /// Headers, made by [`super::Host::pack`].
    pub headers: &'a [u8],
    /// Body; for a gRPC client, its message.
    pub body: &'a str,
}

/// A call to weir-sync: a POST if it has a body, else a GET.
#[derive(Debug)]
pub struct SyncCall {
    /// Number among the calls of this engine, to be passed back with the reply.
    pub number: u64,
    pub path: String,
    /// Body: a report ([`weir_protocol::messages::CONTENT_TYPE`]).
    pub body: Vec<u8>,
    pub timeout_ms: u32,
}

/// Reason why a call has no usable body.
#[derive(Debug)]
pub enum Unread {
    /// There was no good reply; contains a description.
    Failed(String),
    /// The host made no call; contains a description.
    NotMade(String),
    /// The body has this many bytes, more than [`super::ANSWER_BYTES_MAX`].
    TooLarge(usize),
}

/// Result of a call: the body of a good reply, or the reason why there is none.
pub type CallResult = Result<Vec<u8>, Unread>;

/// An action for the host after a tick or a reply. Actions are to be done in the order returned.
pub enum Effect {
    /// Resume this held request, which may have ended meanwhile.
    Resume(u32),
    /// Make this call. Pass its reply, or the failure to make it, to [`super::Engine::answer`].
    Call(SyncCall),
    /// Tick at this interval, in milliseconds, from now on. A host that cannot must
    /// call [`super::Engine::has_no_timer`].
    SetTimer(u32),
    Log(LogLevel, String),
    /// Take [`super::Engine::counters`] now.
    Flush,
    /// Use the new rules from [`super::Engine::rules`]. The counts are those of the previous rules.
    NewRules(Counters),
    /// Record the pushed rule set in force, and the refused one.
    Running(RunningRules),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// The operator must act.
    Error,
    /// The operator may have to act.
    Warn,
    Info,
}

/// State of one call of the engine: its host, the time, and the effects so far.
pub(super) struct EngineCall<'a> {
    pub(super) host: &'a mut dyn Host,
    pub(super) now: Time,
    pub(super) effects: Vec<Effect>,
}

impl<'a> EngineCall<'a> {
    pub(super) fn new(host: &'a mut dyn Host, now: Time) -> Self {
        Self { host, now, effects: Vec::new() }
    }

    pub(super) fn log(&mut self, level: LogLevel, text: impl Into<String>) {
        self.effects.push(Effect::Log(level, text.into()));
    }
}

pub struct Caller {
    pub cluster: String,
    authorization: Option<String>,
}

impl Caller {
    pub fn new(config: &SyncConfig) -> Self {
        Self {
            cluster: config.cluster.clone(),
            authorization: config.token.as_ref().map(|token| format!("Bearer {token}")),
        }
    }

    pub fn headers<'a>(&'a self, call: &'a SyncCall) -> Vec<Header<'a>> {
        let method = if call.body.is_empty() { "GET" } else { "POST" };
        let mut headers: Vec<Header<'a>> = vec![
            (":method", method.into()),
            (":path", call.path.as_str().into()),
            (":authority", self.cluster.as_str().into()),
        ];
        if !call.body.is_empty() {
            headers.push(("content-type", CONTENT_TYPE.into()));
        }
        headers.extend(self.authorization.as_deref().map(|value| ("authorization", value.into())));
        headers
    }
}

const REFUSAL_BYTES_MAX: usize = 300;

pub fn no_answer() -> Unread {
    Unread::Failed("weir-sync did not answer (no connection, or too late)".to_owned())
}

/// Result of a reply with this status and `size` bytes, which `body` reads.
pub fn answered(status: u16, size: usize, body: impl FnOnce() -> CallResult) -> CallResult {
    if status != 200 {
        let body = if size > ANSWER_BYTES_MAX { Vec::new() } else { body().unwrap_or_default() };
        return Err(Unread::Failed(refusal(status, &body)));
    }
    if size > ANSWER_BYTES_MAX {
        return Err(Unread::TooLarge(size));
    }
    body()
}

#[inline(never)]
fn refusal(status: u16, body: &[u8]) -> String {
    // A proxy answers like this if its upstream does not. weir-sync's own refusals are JSON.
    if matches!(status, 502..=504) && !body.starts_with(b"{") {
        return format!(
            "weir-sync did not answer: the proxy did, with status {status} (no weir-sync is up, or in reach)"
        );
    }
    let text = body.get(..REFUSAL_BYTES_MAX).unwrap_or(body);
    format!("weir-sync refused the call: status {status} {}", String::from_utf8_lossy(text))
}

// Responses to refused clients.

/// A rule's responses. The last one to a limited client is kept: in a flood, the next states the same whole seconds.
pub(super) struct RuleReplies {
    pub(super) answers: PreparedResponses,
    limited: Option<LastReply>,
    limited_grpc: Option<LastReply>,
    denied: Vec<u8>,
}

struct LastReply {
    numbers: Numbers,
    is_banned: bool,
    beside: Option<Box<Beside>>,
    headers: Vec<u8>,
    body: String,
}

/// A limited client, with the values that its response depends on besides its rule.
pub(super) struct LimitedClient {
    pub(super) status: QuotaStatus,
    pub(super) jitter_s: u32,
    pub(super) is_banned: bool,
    pub(super) is_grpc: bool,
}

impl LastReply {
    #[inline(never)]
    fn of(all: &[RuleReplies], rule: &Rule, client: LimitedClient, numbers: Numbers, host: &dyn Host) -> Option<Self> {
        let LimitedClient { status, is_banned, is_grpc, .. } = client;
        let policies = &policies(all, rule.response.headers.ratelimit, &status);
        let limited = LimitedStatus { numbers, partition: status.partition(), policies, is_grpc, is_banned };
        let (headers, body) = all.get(usize::from(status.rule))?.answers.limited(rule, &limited);
        let (headers, body) = (host.pack(&headers), body.into_owned());
        Some(Self { numbers, is_banned, beside: status.beside, headers, body })
    }
}

/// Value of `RateLimit-Policy`: the policies in `status` in rule order, including its own rule's if `with_own`. So it
/// stays the same for a client, whichever of its quotas is the strictest.
pub(super) fn policies(all: &[RuleReplies], with_own: bool, status: &QuotaStatus) -> String {
    let others = status.others().iter().map(|other| (usize::from(other.rule), other.partition.as_slice()));
    let own = with_own.then_some((usize::from(status.rule), status.partition()));
    let policy = |(rule, partition): (usize, _)| Some(all.get(rule)?.answers.policy(partition));
    if status.others().is_empty() {
        return own.and_then(policy).unwrap_or_default();
    }
    let mut stated: Vec<_> = others.collect();
    stated.extend(own);
    joined(sorted(stated).into_iter().filter_map(policy), ", ")
}

impl RuleReplies {
    pub(super) fn of(rule: &Rule) -> Self {
        Self { answers: PreparedResponses::of(rule), limited: None, limited_grpc: None, denied: Vec::new() }
    }

    /// Makes the response to a limited request; `None` if `all` has none for `rule`.
    pub(super) fn limited<'a>(
        all: &'a mut [Self],
        rule: &Rule,
        client: LimitedClient,
        host: &mut dyn Host,
    ) -> Option<LocalReply<'a>> {
        let LimitedClient { status, jitter_s, is_banned, is_grpc } = &client;
        let (place, is_banned, is_grpc) = (usize::from(status.rule), *is_banned, *is_grpc);
        let numbers = numbers(rule, &status.bucket, unix_ns_for(rule, host), *jitter_s);
        let is_same =
            |kept: &LastReply| (kept.numbers, kept.is_banned) == (numbers, is_banned) && kept.beside == status.beside;
        if !all.get_mut(place)?.last(is_grpc).as_ref().is_some_and(is_same) {
            let kept = LastReply::of(all, rule, client, numbers, host)?;
            *all.get_mut(place)?.last(is_grpc) = Some(kept);
        }
        let Self { answers, limited, limited_grpc, .. } = all.get(place)?;
        let kept = if is_grpc { limited_grpc } else { limited }.as_ref()?;
        let status = if is_grpc { GRPC_HTTP_STATUS } else { rule.response.status };
        Some(LocalReply { status, details: &answers.limited_details, headers: &kept.headers, body: &kept.body })
    }

    fn last(&mut self, is_grpc: bool) -> &mut Option<LastReply> {
        if is_grpc { &mut self.limited_grpc } else { &mut self.limited }
    }

    pub(super) fn denied(
        &mut self,
        bucket: &BucketStatus,
        jitter_s: u32,
        is_grpc: bool,
        host: &dyn Host,
    ) -> LocalReply<'_> {
        self.denied = host.pack(&self.answers.denied(bucket, jitter_s, is_grpc));
        let (status, body) =
            if is_grpc { (GRPC_HTTP_STATUS, "") } else { (DENIED_STATUS, self.answers.denial.as_str()) };
        LocalReply { status, details: &self.answers.denied_details, headers: &self.denied, body }
    }
}

pub(super) struct Blocked {
    headers: Vec<u8>,
    grpc_headers: Vec<u8>,
}

impl Blocked {
    pub(super) fn new(host: &dyn Host) -> Self {
        Self { headers: host.pack(&blocked_headers(false)), grpc_headers: host.pack(&blocked_headers(true)) }
    }

    pub(super) fn answer(&self, is_grpc: bool) -> LocalReply<'_> {
        let (status, headers, body) = if is_grpc {
            (GRPC_HTTP_STATUS, &self.grpc_headers, "")
        } else {
            (BLOCKED_STATUS, &self.headers, BLOCKED_BODY)
        };
        LocalReply { status, details: "weir_blocked", headers, body }
    }
}

pub(super) struct GrpcSigns {
    te: Attribute,
    content_type: Attribute,
}

impl GrpcSigns {
    pub(super) fn new() -> Self {
        let header = |name: &str| Attribute::Header(name.into());
        Self { te: header("te"), content_type: header("content-type") }
    }

    /// True if the request is gRPC. Every gRPC request has a body: its last frame is a data frame, even if empty (gRPC
    /// over HTTP2, "EOS"). It also has `te: trailers`, which few others have. So in a flood of POSTs the content type
    /// is not read, and in one of GETs nothing is.
    pub(super) fn are_those_of(&self, request: &mut dyn Request) -> bool {
        !request.is_without_body()
            && request.first_line(&self.te).is_some()
            && request.first_line(&self.content_type).is_some_and(|kind| is_grpc(&kind))
    }
}

/// The wall clock in nanoseconds since 1970 if the rule's responses depend on it, else 0.
pub(super) fn unix_ns_for(rule: &Rule, host: &mut dyn Host) -> u64 {
    if PreparedResponses::is_by_wall_clock(rule) { host.unix_ns() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxys_own_answer_is_not_attributed_to_weir_sync() {
        let trouble = |status, body: &str| match answered(status, body.len(), || Ok(body.as_bytes().to_vec())) {
            Err(Unread::Failed(trouble)) => trouble,
            _ => panic!("{status} is a failure"),
        };
        let own = trouble(503, "no healthy upstream");
        assert!(own.starts_with("weir-sync did not answer: the proxy did, with status 503"), "{own}");
        for (status, body) in [(503, r#"{"detail": "the store is out of reach"}"#), (403, "")] {
            assert!(trouble(status, body).starts_with("weir-sync refused the call"), "{body}");
        }
    }
}
