//! Requests: decided on arrival, followed until they end.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use super::answers::{LimitedClient, RuleReplies, policies, unix_ns_for};
use super::effect::{AccessLogNote, CallResult, RequestDecision, RequestStep, Unread};
use super::host::Host;
use super::reports;
use super::state::Engine;
use crate::RuleIndex;
use crate::decide::FastPath;
use crate::decide::{Decision, EndAction, EndActionKind, LimitReason, QuotaStatus, ReservedTokens};
#[cfg(feature = "takes")]
use crate::fleet::{Consume, ConsumeReply};
use crate::limiter::AcquireState;
use crate::response::{HeaderLine, STATED};
use weir_protocol::messages::{Message, Report};
use weir_protocol::time::Time;
use weir_rules::Rule;
use weir_rules::after::After;
use weir_rules::request::Request;

/// The header that names the rules in shadow that would have refused a request.
const SHADOW: &str = "x-weir-shadow";
/// Most waits of a request. It waits once, unless the rules were replaced meanwhile, the lease of its tokens
/// had ended on arrival, or its epoch ended while the call failed. Where replies take a tenth of a millisecond,
/// the last millisecond of a window takes some more.
const WAITS_MAX: u8 = 12;

/// The pending actions of one request. Unless it [is done](OpenRequest::is_done), the host keeps it as long as the
/// request, and then gives it to [`Engine::end`].
pub struct OpenRequest {
    /// The host's number for the request.
    id: u32,
    /// Headers for the response, if the request was allowed and the rules ask for any.
    told: Option<Box<HeadersToAdd>>,
    /// Actions for the end of the request; each is to be done once.
    pub(super) afterwards: Vec<EndAction>,
    /// The call for tokens that it waits for.
    draw: Option<Box<AcquireCall>>,
    /// Tokens that it consumes, and the generation of rules.
    #[cfg(feature = "takes")]
    take: Option<(u32, Box<Consume>)>,
    /// Number of times it has waited, and the latest end of its wait.
    waits: u8,
    waits_until: Time,
}

/// A call for tokens under way.
struct AcquireCall {
    /// Its number in the limiter.
    number: u64,
    /// The generation of rules under which it was made.
    generation: u32,
    /// The report to send once more if the call fails early.
    again: Option<Vec<u8>>,
}

/// Contents of the headers in the response of an allowed request.
struct HeadersToAdd {
    /// Its quota status, and the generation of rules that it is from.
    status: Option<(u32, Box<QuotaStatus>)>,
    /// Names of the rules in shadow that would have refused it and state that in a header.
    shadow: String,
    /// Names of all rules in shadow that would have refused it, until [`OpenRequest::take_shadow`].
    logged: String,
}

impl OpenRequest {
    /// Creates the state of a request that the host numbers `id`.
    pub const fn new(id: u32) -> Self {
        Self {
            id,
            told: None,
            afterwards: Vec::new(),
            draw: None,
            #[cfg(feature = "takes")]
            take: None,
            waits: 0,
            waits_until: Time::ZERO,
        }
    }

    /// The host's number for it.
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// True if it has no pending actions.
    pub fn is_done(&self) -> bool {
        #[cfg(feature = "takes")]
        if self.take.is_some() {
            return false;
        }
        self.told.is_none() && self.draw.is_none() && self.afterwards.is_empty()
    }

    /// Takes the names of the rules in shadow that would have refused it, separated by commas, for access logs in
    /// any case. None if there are none.
    pub fn take_shadow(&mut self) -> Option<String> {
        let told = self.told.as_mut()?;
        let rules = mem::take(&mut told.logged);
        if told.status.is_none() && told.shadow.is_empty() {
            self.told = None;
        }
        Some(rules).filter(|rules| !rules.is_empty())
    }

    /// True if its response may state a cost, or its end releases something.
    pub fn awaits_cost(&self) -> bool {
        !self.afterwards.is_empty()
    }
}

/// The response to a request that was let through.
pub trait UpstreamResponse {
    /// Its status; 0 if unknown.
    fn status(&mut self) -> u16;

    /// The lines of the header of this name, with a [`LINE_BREAK`](weir_rules::request::LINE_BREAK) between
    /// them; none if it has no such header.
    fn header(&mut self, name: &str) -> Option<Vec<u8>>;

    /// The lines of its headers of these names, each with its name's place. Empty if the host cannot read
    /// them.
    fn lines(&mut self, _names: &[&str]) -> Vec<HeaderLine> {
        Vec::new()
    }

    /// Removes all lines of the header of this name.
    fn remove(&mut self, _name: &str) {}

    /// Adds a header. One that the host rejects is left out.
    fn add(&mut self, name: &str, value: &str);

    /// Its size in bytes, once it is complete; 0 if unknown.
    fn bytes(&mut self) -> u64 {
        0
    }

    /// The text of the metadata under this namespace and these names, once the response is complete.
    fn metadata(&mut self, _path: &[String]) -> Option<Vec<u8>> {
        None
    }
}

/// A request that is being decided, with the host and the time.
struct Asking<'a> {
    open: &'a mut OpenRequest,
    request: &'a mut dyn Request,
    site: &'a mut dyn Host,
    now: Time,
}

impl Engine {
    /// Decides a request whose headers have arrived.
    pub fn request(
        &mut self,
        open: &mut OpenRequest,
        request: &mut dyn Request,
        site: &mut dyn Host,
        now: Time,
    ) -> RequestDecision<'_> {
        let now = self.clock.time(site, now);
        match self.limiter.try_fast_path(request, site, now) {
            FastPath::Passed => {
                let is_untold = !(self.notes_decisions || self.host.hears_decisions || self.limiter.is_told);
                if is_untold {
                    return RequestDecision::CONTINUE;
                }
                let decision = self.limiter.passed(now);
                return self.carry_out(decision, Asking { open, request, site, now });
            }
            FastPath::Refused(rule, denial) => {
                let decision = self.limiter.refused_quickly(rule, denial, now);
                return self.carry_out(decision, Asking { open, request, site, now });
            }
            FastPath::Left => {}
        }
        let decision = self.limiter.decide_generally(request, site, now);
        self.carry_out(decision, Asking { open, request, site, now })
    }

    /// Decides the request of `open` again, with the reply to call `number`. None if it does not wait for
    /// that call.
    pub fn answer_request(
        &mut self,
        open: &mut OpenRequest,
        (number, answer): (u64, CallResult),
        request: &mut dyn Request,
        site: &mut dyn Host,
        now: Time,
    ) -> Option<RequestDecision<'_>> {
        let draw = open.draw.take_if(|draw| draw.number == number)?;
        let now = self.clock.time(site, now);
        self.limiter.may_hold = self.holding.has_room();
        let has_other_rules = draw.generation != self.limiter.generation();
        let is_made = !matches!(answer, Err(Unread::NotMade(_)));
        let mut is_over = false;
        let drawn = reports::reply(answer).ok().map(|body| self.limiter.drawn(number, &body, site, now));
        let answered = if let Some(Ok(answered)) = drawn {
            self.share_what_was_heard(site);
            answered
        } else {
            is_over = is_made && self.limiter.is_in_vain(number, site, now);
            // A host that has just failed to make a call would fail again.
            if is_made
                && !is_over
                && let Some(again) = self.draw_again(draw, open, now)
            {
                return Some(again);
            }
            self.limiter.draw_failed(number, site, now);
            false
        };
        is_over |= answered && self.limiter.is_draw_over();
        // The tokens were acquired for the previous rules, and new ones may need others. Tokens held here are
        // used first.
        let may_wait = (answered || is_over) && open.waits < WAITS_MAX && now < open.waits_until;
        let decision = if may_wait && has_other_rules {
            self.limiter.decide(request, site, now)
        } else if may_wait && is_over {
            self.limiter.decide_at(AcquireState::Over, request, site, now)
        } else {
            self.limiter.decide_again(answered, request, site, now)
        };
        Some(self.carry_out(decision, Asking { open, request, site, now }))
    }

    /// Lets requests consume tokens of strict rules directly where that is cheaper than to lease them, in a
    /// host next to the store.
    #[cfg(feature = "takes")]
    pub fn let_take(&mut self) {
        self.limiter.let_take();
    }

    /// Decides the request of `open` again, with the budget's answer to its [`RequestStep::Take`]; `taken` is none
    /// if the budget is out of reach.
    #[cfg(feature = "takes")]
    pub fn taken(
        &mut self,
        open: &mut OpenRequest,
        taken: Option<ConsumeReply>,
        request: &mut dyn Request,
        site: &mut dyn Host,
        now: Time,
    ) -> Option<RequestDecision<'_>> {
        let (generation, take) = open.take.take()?;
        let now = self.clock.time(site, now);
        // Tokens consumed under other rules are spent.
        let decision = if generation == self.limiter.generation() {
            self.limiter.decide_taken(&take, taken, request, site, now)
        } else if taken.is_some() && open.waits < WAITS_MAX {
            self.limiter.decide(request, site, now)
        } else {
            self.limiter.decide_again(taken.is_some(), request, site, now)
        };
        Some(self.carry_out(decision, Asking { open, request, site, now }))
    }

    /// Sets whether the next requests are peeks. A peek is never held, and its refusal does not count for a
    /// penalty. The host gives back the tokens of those that were let through, by [`Engine::take_back`].
    pub fn only_asks(&mut self, only_asks: bool) {
        self.limiter.only_asks = only_asks;
    }

    /// Gives back the tokens of the last request, which was let through, for a host that only peeked. No
    /// other worker may have been called since it was decided.
    pub fn take_back(&mut self, open: &mut OpenRequest, site: &mut dyn Host, now: Time) {
        let now = self.clock.time(site, now);
        for done in mem::take(&mut open.afterwards) {
            if let EndActionKind::Charge { reserved: ReservedTokens { epoch: Some(epoch), .. }, .. } =
                done.what
            {
                self.limiter.settle_own(epoch, 0);
            }
        }
        self.limiter.take_back(site, now);
    }

    /// Sets whether the next requests reserve their tokens, because the host states their cost later, to
    /// [`Engine::settle`]. A host in which some do calls this before each request, at every worker.
    pub fn reserves(&mut self, is_reserving: bool) {
        (self.limiter.is_reserving, self.limiter.may_reserve) = (is_reserving, true);
    }

    /// Keeps the reserved tokens of the request of `open` charged, because its cost will not be stated.
    pub fn keep_estimates(&mut self, open: &mut OpenRequest, site: &mut dyn Host, now: Time) {
        let now = self.clock.time(site, now);
        for done in mem::take(&mut open.afterwards) {
            match done.what {
                EndActionKind::Charge { reserved, .. } => {
                    self.limiter.charge(done, reserved.tokens, site, now);
                }
                EndActionKind::Release { .. } => open.afterwards.push(done),
            }
        }
    }

    /// Handles the response's headers. Not to be called if `open` is done.
    pub fn response(
        &mut self,
        open: &mut OpenRequest,
        response: &mut dyn UpstreamResponse,
        site: &mut dyn Host,
        now: Time,
    ) {
        if !open.afterwards.is_empty() {
            let status = response.status();
            let cost = |after: &After, reserved| match after {
                After::Header { name, .. } => after.of_text(response.header(name).as_deref(), reserved),
                _ => after.of_status(status),
            };
            self.charge(open, cost, site, now);
        }
        self.add_headers(open, response, site);
    }

    /// Adds the quota headers, and the header of rules in shadow, to the response of a request that was let
    /// through; once, and as far as the rules ask for them.
    pub fn add_headers(
        &self,
        open: &mut OpenRequest,
        response: &mut dyn UpstreamResponse,
        site: &mut dyn Host,
    ) {
        let Some(told) = open.told.take() else { return };
        let HeadersToAdd { status, shadow, .. } = *told;
        if !shadow.is_empty() {
            response.add(SHADOW, &shadow);
        }
        let status = status.filter(|(generation, _)| *generation == self.limiter.generation());
        let Some((_, status)) = status else { return };
        let index = usize::from(status.rule);
        let rule = self.limiter.rules().rules().get(index).zip(self.answers.get(index));
        let Some((rule, RuleReplies { answers, .. })) = rule else { return };
        let lines = response.lines(&STATED);
        let unix_ns = if lines.is_empty() { unix_ns_for(rule, site) } else { site.unix_ns() };
        let policies = policies(&self.answers, rule.response.headers.ratelimit, &status);
        let headers = answers.quota(rule, (&status.standing, status.partition(), policies), &lines, unix_ns);
        // These replace the upstream's, so that the response has one set.
        for name in lines.iter().filter_map(|(place, _)| STATED.get(*place)) {
            response.remove(name);
        }
        for (name, value) in headers {
            response.add(name, &value);
        }
    }

    /// Handles the end of the response, complete or not: charges the costs from its size or its metadata. If
    /// it never began, a cost that its status or a header would have stated stays as reserved.
    pub fn response_sent(
        &mut self,
        open: &mut OpenRequest,
        response: &mut dyn UpstreamResponse,
        site: &mut dyn Host,
        now: Time,
    ) {
        if open.afterwards.iter().any(|done| matches!(done.what, EndActionKind::Charge { .. })) {
            let cost = |after: &After, reserved| match after {
                After::Bytes { .. } => after.of_bytes(response.bytes()),
                After::Metadata { path, .. } => after.of_text(response.metadata(path).as_deref(), reserved),
                _ => None,
            };
            self.charge(open, cost, site, now);
        }
    }

    /// Ends the request, whether answered, reset or timed out. Releases what it holds, keeps reserved tokens
    /// charged if no cost was stated, and ends its wait for a call.
    pub fn end(&mut self, open: &mut OpenRequest, site: &mut dyn Host, read: Time) {
        let now = self.clock.time(site, read);
        if let Some(draw) = open.draw.take() {
            self.limiter.draw_abandoned(draw.number, site, now);
        }
        self.keep_estimates(open, site, read);
        for done in mem::take(&mut open.afterwards) {
            self.limiter.release(done, site, now);
        }
    }

    /// Charges the request's costs that are known now; the others stay.
    fn charge(
        &mut self,
        open: &mut OpenRequest,
        mut cost_of: impl FnMut(&After, u32) -> Option<u32>,
        site: &mut dyn Host,
        now: Time,
    ) {
        let now = self.clock.time(site, now);
        for done in mem::take(&mut open.afterwards) {
            let cost = match &done.what {
                EndActionKind::Charge { after: Some(after), reserved } => cost_of(after, reserved.tokens),
                _ => None,
            };
            match cost {
                Some(cost) => self.limiter.charge(done, cost, site, now),
                None => open.afterwards.push(done),
            }
        }
    }

    fn carry_out(&mut self, decision: Decision, mut asking: Asking<'_>) -> RequestDecision<'_> {
        if self.host.hears_decisions {
            asking.site.decided(&decision);
        }
        match decision {
            Decision::Allow { strictest, told, shadow, hold_ns, afterwards } => {
                asking.open.afterwards = afterwards;
                if told.is_some() || !shadow.is_empty() {
                    asking.open.told = Some(Box::new(self.told(told, &shadow)));
                }
                let rule = strictest.map(|(rule, _)| rule);
                self.let_through(rule, hold_ns, asking.open, asking.now)
            }
            Decision::Wait(report) => self.wait(&report, asking.open, asking.now),
            #[cfg(feature = "takes")]
            Decision::Take(take) => {
                asking.open.waits = asking.open.waits.saturating_add(1);
                asking.open.take = Some((self.limiter.generation(), take.clone()));
                RequestDecision { step: RequestStep::Take(take), ..RequestDecision::CONTINUE }
            }
            Decision::Block => {
                let answer = self.blocked.answer(self.is_of_grpc(asking.request));
                RequestDecision { step: RequestStep::Answer(answer), note: self.note("block", None) }
            }
            Decision::Refuse { reason, status, jitter_s } => {
                self.refuse(reason, status, jitter_s, &mut asking)
            }
        }
    }

    #[inline(never)]
    fn told(&self, told: Option<Box<QuotaStatus>>, shadow: &[RuleIndex]) -> HeadersToAdd {
        HeadersToAdd {
            status: told.map(|told| (self.limiter.generation(), told)),
            shadow: self.names(shadow, |rule| rule.response.on_shadow),
            logged: self.names(shadow, |_| true),
        }
    }

    fn let_through(
        &mut self,
        strictest: Option<RuleIndex>,
        hold_ns: u64,
        open: &mut OpenRequest,
        now: Time,
    ) -> RequestDecision<'_> {
        let Some(index) = strictest else { return RequestDecision::CONTINUE };
        let is_held = hold_ns > 0 && !self.limiter.only_asks && self.holding.hold(open.id, now + hold_ns);
        let step = if is_held { RequestStep::Hold } else { RequestStep::Continue };
        RequestDecision { step, note: self.note("allow", Some(index)) }
    }

    /// Starts the wait for a strict rule's tokens.
    fn wait(&self, report: &Report, open: &mut OpenRequest, now: Time) -> RequestDecision<'static> {
        if open.waits_until == Time::ZERO {
            // Without `sync` no request waits.
            let timeout_ms = self.sync.as_ref().map_or(1, |sync| sync.timeout_ms);
            open.waits_until = now + u64::from(timeout_ms) * 1_000_000;
        }
        open.waits = open.waits.saturating_add(1);
        let rest_ns = open.waits_until.nanos_since(now);
        let left_ms = u32::try_from(rest_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX);
        // A reply that takes a third longer than the longest of late is still waited for. Before the first reply
        // the usual time is unknown.
        let is_quick = self.limiter.answers_take_ns().is_some_and(|ns| ns <= rest_ns / 8 * 3);
        let first_ms = if is_quick { left_ms.div_ceil(2) } else { left_ms };
        let (number, body) = (report.sequence, report.encode());
        let again = Some(body.clone());
        open.draw = Some(Box::new(AcquireCall { number, generation: self.limiter.generation(), again }));
        RequestDecision {
            step: RequestStep::Call(reports::call(number, body, first_ms)),
            ..RequestDecision::CONTINUE
        }
    }

    /// Sends a failed call once more, in the time that is left, because another weir-sync may reply. The
    /// report names the epoch and all tokens that it is to have, so the budget is debited only for the
    /// missing ones.
    fn draw_again(
        &mut self,
        mut draw: Box<AcquireCall>,
        open: &mut OpenRequest,
        now: Time,
    ) -> Option<RequestDecision<'static>> {
        let body = draw.again.take().filter(|_| draw.generation == self.limiter.generation())?;
        let rest_ns = open.waits_until.nanos_since(now);
        let left_ms = u32::try_from(rest_ns / 1_000_000).ok().filter(|left_ms| *left_ms > 0)?;
        self.limiter.draw_sent_again(draw.number);
        let call = reports::call(draw.number, body, left_ms);
        open.draw = Some(draw);
        Some(RequestDecision { step: RequestStep::Call(call), ..RequestDecision::CONTINUE })
    }

    fn refuse(
        &mut self,
        reason: LimitReason,
        status: QuotaStatus,
        jitter_s: u32,
        asking: &mut Asking<'_>,
    ) -> RequestDecision<'_> {
        let is_grpc = self.is_of_grpc(asking.request);
        let (place, all) = (usize::from(status.rule), &mut self.answers);
        let Some(rule) = self.limiter.rules().rules().get(place) else { return RequestDecision::CONTINUE };
        let (word, answer) = if reason == LimitReason::Deny {
            let answers = all.get_mut(place);
            ("deny", answers.map(|answers| answers.denied(&status.standing, jitter_s, is_grpc, asking.site)))
        } else {
            let client = LimitedClient { status, jitter_s, is_banned: reason == LimitReason::Ban, is_grpc };
            ("limit", RuleReplies::limited(all, rule, client, asking.site))
        };
        let Some(answer) = answer else { return RequestDecision::CONTINUE };
        let note = self.notes_decisions.then_some(AccessLogNote { decision: word, rule: &rule.name });
        RequestDecision { step: RequestStep::Answer(answer), note }
    }

    /// The names of those of these rules for which `is_named` is true, separated by commas.
    fn names(&self, rules: &[RuleIndex], is_named: impl Fn(&Rule) -> bool) -> String {
        let all = rules.iter().filter_map(|rule| self.rules().rules().get(usize::from(*rule)));
        let names = all.filter(|rule| is_named(rule)).map(|rule| rule.name.as_str());
        names.collect::<Vec<_>>().join(",")
    }

    fn is_of_grpc(&self, request: &mut dyn Request) -> bool {
        self.host.answers_grpc && self.grpc.are_those_of(request)
    }

    /// The decision for access logs, if the configuration asks for it. Setting it is a good part of a
    /// request's cost, and a refusal names its rule in the response's details anyway.
    fn note(&self, decision: &'static str, rule: Option<RuleIndex>) -> Option<AccessLogNote<'_>> {
        if !self.notes_decisions {
            return None;
        }
        let rule = rule.and_then(|rule| self.limiter.rules().rules().get(usize::from(rule)));
        Some(AccessLogNote { decision, rule: rule.map_or("", |rule| &rule.name) })
    }
}
