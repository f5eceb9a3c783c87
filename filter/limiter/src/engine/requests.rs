//! Requests from their arrival to their end, and the drive loop of hosts within a proxy.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use crate::RuleIndex;
use crate::check::{
    AcquireState, Decision, EndAction, FastPath, LimitReason, QuotaStatus, passed, refused_quickly, try_fast_path,
};
use crate::engine::effects::{
    CallResult, LimitedClient, LocalReply, RequestDecision, RequestStep, RuleReplies, SyncCall, Unread,
};
use crate::engine::host::Host;
use crate::engine::reports;
use crate::engine::state::Engine;
use crate::sync::{Consume, ConsumeReply, decide_taken};
use weir_protocol::messages::{Message, Report};
use weir_protocol::time::Time;
use weir_rules::Rule;
use weir_rules::reading::joined;
use weir_rules::request::Request;

/// Maximum number of waits of a request. It waits once, unless the rules were replaced meanwhile, the lease of its
/// tokens had ended on arrival, or its epoch ended while the call failed.
const WAITS_MAX: u8 = 12;

/// The pending actions of one request. Unless it [is done](OpenRequest::is_done), the host keeps it as long as the
/// request, and then passes it to [`Engine::end`].
pub struct OpenRequest {
    id: u32,
    /// Headers for the response, if the request was allowed and the rules ask for any.
    pub(super) headers: Option<Box<HeadersToAdd>>,
    /// Actions for the end of the request, each to be done once.
    pub(super) afterwards: Vec<EndAction>,
    pub(super) acquire: Option<Box<AcquireCall>>,
    /// Tokens that the request consumes, and the generation of the rules.
    take: Option<(u32, Box<Consume>)>,
    /// Number of times the request has waited, and the latest end of its wait.
    waits: u8,
    waits_until: Time,
}

pub(super) struct AcquireCall {
    pub(super) number: u64,
    /// Generation of the rules under which the call was made.
    generation: u32,
    /// The report to resend if the call fails early.
    again: Option<Vec<u8>>,
}

pub(super) struct HeadersToAdd {
    /// The quota status, and the generation of its rules.
    pub(super) status: Option<(u32, Box<QuotaStatus>)>,
    /// Names of the rules in shadow that would have refused the request and state so in a header.
    pub(super) shadow: String,
    /// Names of all rules in shadow that would have refused the request, until [`OpenRequest::take_shadow`].
    logged: String,
}

impl OpenRequest {
    /// Creates the state of a request that the host numbers `id`.
    pub const fn new(id: u32) -> Self {
        Self { id, headers: None, afterwards: Vec::new(), acquire: None, take: None, waits: 0, waits_until: Time::ZERO }
    }

    pub const fn id(&self) -> u32 {
        self.id
    }

    /// True if there are no pending actions.
    pub fn is_done(&self) -> bool {
        self.headers.is_none() && self.acquire.is_none() && self.take.is_none() && self.afterwards.is_empty()
    }

    /// Takes the names of the rules in shadow that would have refused the request, separated by commas.
    pub fn take_shadow(&mut self) -> Option<String> {
        let headers = self.headers.as_mut()?;
        let rules = mem::take(&mut headers.logged);
        if headers.status.is_none() && headers.shadow.is_empty() {
            self.headers = None;
        }
        Some(rules).filter(|rules| !rules.is_empty())
    }

    /// True if the response may state a cost, or the end of the request releases something.
    pub fn awaits_cost(&self) -> bool {
        !self.afterwards.is_empty()
    }
}

struct Asking<'a> {
    open: &'a mut OpenRequest,
    request: &'a mut dyn Request,
    host: &'a mut dyn Host,
    now: Time,
}

impl Engine {
    /// Decides a request whose headers have arrived.
    pub fn request(
        &mut self,
        open: &mut OpenRequest,
        request: &mut dyn Request,
        host: &mut dyn Host,
        now: Time,
    ) -> RequestDecision<'_> {
        let now = self.clock.time(host, now);
        let is_told = self.logs_decisions || self.is_observed || self.limiter.rules.sends_status;
        let decision = match try_fast_path(&mut self.limiter, request, host.slots(), now) {
            Some(FastPath::Passed) if !is_told => return RequestDecision::CONTINUE,
            Some(FastPath::Passed) => passed(&self.limiter, now),
            Some(FastPath::Refused(rule, denial)) => refused_quickly(&mut self.limiter, rule, denial, now),
            None => self.limiter.decide_at(AcquireState::NotYet, request, host.slots(), now),
        };
        self.carry_out(decision, Asking { open, request, host, now })
    }

    /// Decides the request of `open` again, with the reply to call `number`; `None` if it does not wait for that call.
    pub fn answer_request(
        &mut self,
        open: &mut OpenRequest,
        (number, answer): (u64, CallResult),
        request: &mut dyn Request,
        host: &mut dyn Host,
        now: Time,
    ) -> Option<RequestDecision<'_>> {
        let acquire = open.acquire.take_if(|acquire| acquire.number == number)?;
        let now = self.clock.time(host, now);
        self.limiter.current.may_hold = self.holding.has_room();
        let has_other_rules = acquire.generation != self.limiter.rules.generation;
        let is_made = !matches!(answer, Err(Unread::NotMade(_)));
        let mut is_over = false;
        let acquired = reports::reply(answer).ok().map(|body| self.limiter.acquired(number, &body, host.slots(), now));
        let answered = if let Some(Ok(answered)) = acquired {
            self.share_contact(host);
            answered
        } else {
            is_over = is_made && self.limiter.is_in_vain(number, host.slots(), now);
            // A host that has just failed to make a call would fail again.
            if is_made
                && !is_over
                && let Some(again) = self.acquire_again(acquire, open, now)
            {
                return Some(again);
            }
            self.limiter.acquire_failed(number, host.slots(), now);
            false
        };
        is_over |= answered && self.limiter.current.acquired.iter().any(|tokens| tokens.is_over);
        // The tokens were acquired for the previous rules. New ones may need others, and use those held here first.
        let may_wait = (answered || is_over) && open.waits < WAITS_MAX && now < open.waits_until;
        let decision = if may_wait && has_other_rules {
            self.limiter.decide(request, host.slots(), now)
        } else if may_wait && is_over {
            self.limiter.decide_at(AcquireState::Over, request, host.slots(), now)
        } else {
            self.limiter.decide_again(answered, request, host.slots(), now)
        };
        Some(self.carry_out(decision, Asking { open, request, host, now }))
    }

    /// Lets requests consume tokens of strict rules where that is cheaper than leasing. Only for a host next to the
    /// store, which handles [`RequestStep::Take`].
    pub fn let_take(&mut self) {
        self.limiter.takes = Some(Box::default());
    }

    /// Decides the request of `open` again after its [`RequestStep::Take`]. `taken` is `None` if that failed.
    pub fn taken(
        &mut self,
        open: &mut OpenRequest,
        taken: Option<ConsumeReply>,
        request: &mut dyn Request,
        host: &mut dyn Host,
        now: Time,
    ) -> Option<RequestDecision<'_>> {
        let (generation, take) = open.take.take()?;
        let now = self.clock.time(host, now);
        // Tokens consumed under other rules are spent.
        let decision = if generation == self.limiter.rules.generation {
            decide_taken(&mut self.limiter, &take, taken, request, host.slots(), now)
        } else if taken.is_some() && open.waits < WAITS_MAX {
            self.limiter.decide(request, host.slots(), now)
        } else {
            self.limiter.decide_again(taken.is_some(), request, host.slots(), now)
        };
        Some(self.carry_out(decision, Asking { open, request, host, now }))
    }

    /// Sets whether the next requests are peeks. A peek is never held, and its refusal does not count for a penalty.
    /// The host gives back the tokens of allowed peeks by [`Engine::take_back`].
    pub fn only_asks(&mut self, only_asks: bool) {
        self.limiter.current.only_asks = only_asks;
    }

    fn carry_out(&mut self, decision: Decision, mut asking: Asking<'_>) -> RequestDecision<'_> {
        if self.is_observed {
            asking.host.decided(&decision);
        }
        match decision {
            Decision::Allow { strictest, status, shadow, hold_ns, afterwards } => {
                asking.open.afterwards = afterwards;
                if status.is_some() || !shadow.is_empty() {
                    asking.open.headers = Some(Box::new(self.headers_to_add(status, &shadow)));
                }
                let Some((rule, _)) = strictest else { return RequestDecision::CONTINUE };
                let may_hold = hold_ns > 0 && !self.limiter.current.only_asks;
                let is_held = may_hold && self.holding.hold(asking.open.id, asking.now + hold_ns);
                let step = if is_held { RequestStep::Hold } else { RequestStep::Continue };
                RequestDecision { step, logged: self.logged("allow", Some(rule)) }
            }
            Decision::Wait(report) => self.wait(&report, asking.open, asking.now),
            Decision::Take(take) => {
                asking.open.waits = asking.open.waits.saturating_add(1);
                asking.open.take = Some((self.limiter.rules.generation, take.clone()));
                RequestDecision { step: RequestStep::Take(take), ..RequestDecision::CONTINUE }
            }
            Decision::Block => {
                let answer = self.blocked.answer(self.is_of_grpc(&mut asking));
                RequestDecision { step: RequestStep::Answer(answer), logged: self.logged("block", None) }
            }
            Decision::Refuse { reason, status, jitter_s } => self.refuse(reason, status, jitter_s, &mut asking),
        }
    }

    #[inline(never)]
    fn headers_to_add(&self, status: Option<Box<QuotaStatus>>, shadow: &[RuleIndex]) -> HeadersToAdd {
        HeadersToAdd {
            status: status.map(|status| (self.limiter.rules.generation, status)),
            shadow: self.names(shadow, |rule| rule.response.on_shadow),
            logged: self.names(shadow, |_| true),
        }
    }

    fn wait(&self, report: &Report, open: &mut OpenRequest, now: Time) -> RequestDecision<'static> {
        if open.waits_until == Time::ZERO {
            // Without `sync` no request waits.
            let timeout_ms = self.sync.as_ref().map_or(1, |sync| sync.timeout_ms);
            open.waits_until = now + u64::from(timeout_ms) * 1_000_000;
        }
        open.waits = open.waits.saturating_add(1);
        let rest_ns = open.waits_until.nanos_since(now);
        let left_ms = u32::try_from(rest_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX);
        // Waits for a reply that takes a third longer than the longest recent one.
        let usual_ns = self.limiter.sync.as_ref().and_then(|client| client.answers_take_ns);
        let is_quick = usual_ns.is_some_and(|ns| ns <= rest_ns / 8 * 3);
        let first_ms = if is_quick { left_ms.div_ceil(2) } else { left_ms };
        let (number, body) = (report.sequence, report.encode());
        let again = Some(body.clone());
        open.acquire = Some(Box::new(AcquireCall { number, generation: self.limiter.rules.generation, again }));
        RequestDecision { step: RequestStep::Call(reports::call(number, body, first_ms)), ..RequestDecision::CONTINUE }
    }

    /// Resends a failed call once in the remaining time, because another weir-sync may reply. The report states all
    /// tokens that the epoch should have, so the budget is debited only for the missing ones.
    fn acquire_again(
        &mut self,
        mut acquire: Box<AcquireCall>,
        open: &mut OpenRequest,
        now: Time,
    ) -> Option<RequestDecision<'static>> {
        let body = acquire.again.take().filter(|_| acquire.generation == self.limiter.rules.generation)?;
        let rest_ns = open.waits_until.nanos_since(now);
        let left_ms = u32::try_from(rest_ns / 1_000_000).ok().filter(|left_ms| *left_ms > 0)?;
        self.limiter.acquire_sent_again(acquire.number);
        let call = reports::call(acquire.number, body, left_ms);
        open.acquire = Some(acquire);
        Some(RequestDecision { step: RequestStep::Call(call), ..RequestDecision::CONTINUE })
    }

    fn refuse(
        &mut self,
        reason: LimitReason,
        status: QuotaStatus,
        jitter_s: u32,
        asking: &mut Asking<'_>,
    ) -> RequestDecision<'_> {
        let is_grpc = self.is_of_grpc(asking);
        let (place, all) = (usize::from(status.rule), &mut self.answers);
        let Some(rule) = self.limiter.rules().rules().get(place) else { return RequestDecision::CONTINUE };
        let (decision, answer) = if reason == LimitReason::Deny {
            let answers = all.get_mut(place);
            ("deny", answers.map(|answers| answers.denied(&status.bucket, jitter_s, is_grpc, asking.host)))
        } else {
            let client = LimitedClient { status, jitter_s, is_banned: reason == LimitReason::Ban, is_grpc };
            ("limit", RuleReplies::limited(all, rule, client, asking.host))
        };
        let Some(answer) = answer else { return RequestDecision::CONTINUE };
        let logged = self.logs_decisions.then_some((decision, rule.name.as_str()));
        RequestDecision { step: RequestStep::Answer(answer), logged }
    }

    /// The names of those of these rules for which `is_named` is true, separated by commas.
    fn names(&self, rules: &[RuleIndex], is_named: impl Fn(&Rule) -> bool) -> String {
        let all = rules.iter().filter_map(|rule| self.rules().rules().get(usize::from(*rule)));
        let names = all.filter(|rule| is_named(rule)).map(|rule| rule.name.as_str());
        joined(names, ",")
    }

    fn is_of_grpc(&self, asking: &mut Asking<'_>) -> bool {
        asking.host.answers_grpc() && self.grpc.are_those_of(asking.request)
    }

    /// The decision for access logs, if configured. Setting it is a good part of a request's cost.
    fn logged(&self, decision: &'static str, rule: Option<RuleIndex>) -> Option<(&'static str, &str)> {
        if !self.logs_decisions {
            return None;
        }
        let rule = rule.and_then(|rule| self.limiter.rules().rules().get(usize::from(rule)));
        Some((decision, rule.map_or("", |rule| &rule.name)))
    }
}

/// A proxy's side of one request.
pub trait Proxy {
    /// Sets a value for access logs under this name in the filter state.
    fn set_filter_state(&mut self, name: &str, value: &str);

    /// Makes a call; the error describes why it was not made.
    fn call(&mut self, call: &SyncCall) -> Result<(), String>;

    /// Answers the client in place of the upstream; false if the proxy cannot.
    fn answer(&mut self, answer: &LocalReply<'_>) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Continues,
    /// The request is held until [`super::Effect::Resume`] names it.
    Held,
    Waits,
    Answered,
}

impl Engine {
    /// Decides a request whose headers have arrived, or that has waited for the call in `answered`, and has `proxy`
    /// carry out the decision. `None` if the request does not wait for that call.
    #[allow(clippy::match_wildcard_for_single_variants, reason = "a gateway's engine has one more step")]
    pub fn drive(
        &mut self,
        open: &mut OpenRequest,
        mut answered: Option<(u64, CallResult)>,
        request: &mut dyn Request,
        (host, now): (&mut dyn Host, Time),
        proxy: &mut dyn Proxy,
    ) -> Option<Progress> {
        loop {
            let decided = match answered.take() {
                None => self.request(open, request, host, now),
                Some(answer) => self.answer_request(open, answer, request, host, now)?,
            };
            // Access logs read them as `%FILTER_STATE(wasm.weir.decision:PLAIN)%`.
            if let Some((decision, rule)) = decided.logged {
                proxy.set_filter_state("wasm.weir.decision", decision);
                proxy.set_filter_state("wasm.weir.rule", rule);
            }
            if let Some(rules) = open.take_shadow() {
                proxy.set_filter_state("wasm.weir.shadow", &rules);
            }
            return Some(match decided.step {
                // An answered request must not continue, except if the proxy cannot answer.
                RequestStep::Answer(answer) if proxy.answer(&answer) => Progress::Answered,
                RequestStep::Continue | RequestStep::Answer(_) => Progress::Continues,
                RequestStep::Call(call) => match proxy.call(&call) {
                    Ok(()) => Progress::Waits,
                    Err(trouble) => {
                        answered = Some((call.number, Err(Unread::NotMade(trouble))));
                        continue;
                    }
                },
                _ => Progress::Held,
            });
        }
    }
}
