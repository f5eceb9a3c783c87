//! A request: it comes in, is decided, and what is left to do until it ends.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use super::answers::{LimitedClient, RuleAnswers, policies, unix_ns_for};
use super::effect::{Answered, Decided, Note, Step, Unread};
use super::reports;
use super::site::Site;
use super::state::Edge;
use crate::RuleIndex;
#[cfg(feature = "own_memory")]
use crate::decide::Quick;
use crate::decide::{Afterwards, Decision, QuotaStatus, Reason, Reserved, What};
#[cfg(feature = "takes")]
use crate::fleet::{Take, Taken};
use crate::limiter::Drawn;
use crate::response::{Line, STATED};
use weir_rules::Rule;
use weir_rules::after::After;
use weir_rules::request::Request;
use weir_wire::messages::{Message, Report};
use weir_wire::time::Time;

/// The header that names the rules in shadow that would have refused a request.
const SHADOW: &str = "x-weir-shadow";
/// How often a request waits at most: once, unless the rules were replaced meanwhile, or what was drawn was over when it
/// came. Where answers take a tenth of a millisecond, a window's last millisecond takes some more.
const WAITS_MAX: u8 = 12;

/// What is left to do for one request. Unless it is done, the host keeps it as long as the request, and then gives it
/// to [`Edge::end`].
pub struct Open {
    /// The host's number for the request.
    id: u32,
    /// What the response of an allowed request tells its client.
    told: Option<Box<Told>>,
    /// What is to be done when the request ends, each once.
    pub(super) afterwards: Vec<Afterwards>,
    /// The draw that it waits for.
    draw: Option<Box<Draw>>,
    /// What it takes, under which generation of rules.
    #[cfg(feature = "takes")]
    take: Option<(u32, Box<Take>)>,
    /// How often it has waited, and until when it waits at most.
    waits: u8,
    waits_until: Time,
}

/// A draw under way.
struct Draw {
    /// Its number in the limiter.
    number: u64,
    /// The generation of rules under which it was made.
    generation: u32,
    /// If it fails in time, this report is sent once more.
    again: Option<Vec<u8>>,
}

/// What the response of an allowed request tells its client.
struct Told {
    /// Its quota status, and the generation of the rules that say so.
    status: Option<(u32, Box<QuotaStatus>)>,
    /// The rules in shadow that would have refused it, and say so in a header.
    shadow: String,
    /// All rules in shadow that would have, until access logs are told.
    logged: String,
}

impl Open {
    /// A request that the host calls `id`.
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

    /// What the host calls it.
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Whether nothing is left to do for it.
    pub fn is_done(&self) -> bool {
        #[cfg(feature = "takes")]
        if self.take.is_some() {
            return false;
        }
        self.told.is_none() && self.draw.is_none() && self.afterwards.is_empty()
    }

    /// The rules in shadow that would have refused it, with commas between: access logs are told them in any case.
    pub fn take_shadow(&mut self) -> Option<String> {
        let told = self.told.as_mut()?;
        let rules = mem::take(&mut told.logged);
        if told.status.is_none() && told.shadow.is_empty() {
            self.told = None;
        }
        Some(rules).filter(|rules| !rules.is_empty())
    }

    /// Whether its response is to tell a cost, or its end to release something.
    pub fn awaits_cost(&self) -> bool {
        !self.afterwards.is_empty()
    }
}

/// The response to a request that was let through.
pub trait Response {
    /// Its status; 0 if the host does not say.
    fn status(&mut self) -> u16;

    /// The lines of the header of this name, if it has one, with a [`LINE_BREAK`](weir_rules::request::LINE_BREAK)
    /// between them.
    fn header(&mut self, name: &str) -> Option<Vec<u8>>;

    /// The lines of its headers of these names, each with its name's place; none if the host knows none.
    fn lines(&mut self, _names: &[&str]) -> Vec<Line> {
        Vec::new()
    }

    /// Removes all lines of the header of this name.
    fn remove(&mut self, _name: &str) {}

    /// Adds a header. One that the host does not take is left out.
    fn add(&mut self, name: &str, value: &str);

    /// Its size in bytes, once it is complete; 0 if the host does not say.
    fn bytes(&mut self) -> u64 {
        0
    }

    /// What the host found in it, once it is complete: the text of the metadata under this namespace and these names.
    fn metadata(&mut self, _path: &[String]) -> Option<Vec<u8>> {
        None
    }
}

/// A request that is being decided, with the site and the time.
struct Asking<'a> {
    open: &'a mut Open,
    request: &'a mut dyn Request,
    site: &'a mut dyn Site,
    now: Time,
}

impl Edge {
    /// A request's headers are there.
    pub fn request(
        &mut self,
        open: &mut Open,
        request: &mut dyn Request,
        site: &mut dyn Site,
        now: Time,
    ) -> Decided<'_> {
        let now = self.clock.time(site, now);
        #[cfg(feature = "own_memory")]
        match self.limiter.try_quickly(request, site, now) {
            Quick::Passed => {
                let is_untold = !(self.notes_decisions || self.host.hears_decisions || self.limiter.is_told);
                if is_untold {
                    return Decided::CONTINUE;
                }
                let decision = self.limiter.passed(now);
                return self.carry_out(decision, Asking { open, request, site, now });
            }
            Quick::Refused(rule, denial) => {
                let decision = self.limiter.refused_quickly(rule, denial, now);
                return self.carry_out(decision, Asking { open, request, site, now });
            }
            Quick::Left => {}
        }
        let decision = self.limiter.decide_generally(request, site, now);
        self.carry_out(decision, Asking { open, request, site, now })
    }

    /// The answer to call `number`, for which `open` waits; returns what to do now. None if it does not wait for it.
    pub fn answer_request(
        &mut self,
        open: &mut Open,
        (number, answer): (u64, Answered),
        request: &mut dyn Request,
        site: &mut dyn Site,
        now: Time,
    ) -> Option<Decided<'_>> {
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
            // A host that has just made no call would make none now.
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
        // The draw was for the rules before, and new ones may want another; tokens at hand are used first.
        let may_wait = (answered || is_over) && open.waits < WAITS_MAX && now < open.waits_until;
        let decision = if may_wait && has_other_rules {
            self.limiter.decide(request, site, now)
        } else if may_wait && is_over {
            self.limiter.decide_at(Drawn::Over, request, site, now)
        } else {
            self.limiter.decide_again(answered, request, site, now)
        };
        Some(self.carry_out(decision, Asking { open, request, site, now }))
    }

    /// Has requests take their tokens of strict rules, where that is cheaper than to lease them: for a host beside the store.
    #[cfg(feature = "takes")]
    pub fn let_take(&mut self) {
        self.limiter.let_take();
    }

    /// What the budget gave to the [`Step::Take`] that `open` waits for, or none if it is out of reach.
    #[cfg(feature = "takes")]
    pub fn taken(
        &mut self,
        open: &mut Open,
        taken: Option<Taken>,
        request: &mut dyn Request,
        site: &mut dyn Site,
        now: Time,
    ) -> Option<Decided<'_>> {
        let (generation, take) = open.take.take()?;
        let now = self.clock.time(site, now);
        // What was taken under other rules is spent.
        let decision = if generation == self.limiter.generation() {
            self.limiter.decide_taken(&take, taken, request, site, now)
        } else if taken.is_some() && open.waits < WAITS_MAX {
            self.limiter.decide(request, site, now)
        } else {
            self.limiter.decide_again(taken.is_some(), request, site, now)
        };
        Some(self.carry_out(decision, Asking { open, request, site, now }))
    }

    /// Whether the requests that come next only ask. None of them is held, and no refusal counts for a penalty. The host
    /// gives back what those took that are let through: [`Edge::take_back`].
    pub fn only_asks(&mut self, only_asks: bool) {
        self.limiter.only_asks = only_asks;
    }

    /// Gives back what a request took that was let through just now, for a host that only wanted to know. No other worker
    /// may have been called since it was decided.
    pub fn take_back(&mut self, open: &mut Open, site: &mut dyn Site, now: Time) {
        let now = self.clock.time(site, now);
        for done in mem::take(&mut open.afterwards) {
            if let What::Charge { reserved: Reserved { epoch: Some(epoch), .. }, .. } = done.what {
                self.limiter.settle_own(epoch, 0);
            }
        }
        self.limiter.take_back(site, now);
    }

    /// Whether the requests that come next reserve what they take: their host says later what they cost, to
    /// [`Edge::settle`]. A host in which some do calls this before each request, at every worker.
    pub fn reserves(&mut self, is_reserving: bool) {
        (self.limiter.is_reserving, self.limiter.may_reserve) = (is_reserving, true);
    }

    /// Nobody is going to say what the request of `open` cost: what it reserved stays charged.
    pub fn keep_estimates(&mut self, open: &mut Open, site: &mut dyn Site, now: Time) {
        let now = self.clock.time(site, now);
        for done in mem::take(&mut open.afterwards) {
            match done.what {
                What::Charge { reserved, .. } => self.limiter.charge(done, reserved.tokens, site, now),
                What::Release { .. } => open.afterwards.push(done),
            }
        }
    }

    /// The response's headers are there. Not to be called if `open` is done.
    pub fn response(&mut self, open: &mut Open, response: &mut dyn Response, site: &mut dyn Site, now: Time) {
        if !open.afterwards.is_empty() {
            let status = response.status();
            let cost = |after: &After, reserved| match after {
                After::Header { name, .. } => after.of_text(response.header(name).as_deref(), reserved),
                _ => after.of_status(status),
            };
            self.charge(open, cost, site, now);
        }
        self.tell(open, response, site);
    }

    /// Tells the client of a request that was let through how it stands; once, and only if its rule says so.
    pub fn tell(&self, open: &mut Open, response: &mut dyn Response, site: &mut dyn Site) {
        let Some(told) = open.told.take() else { return };
        let Told { status, shadow, .. } = *told;
        if !shadow.is_empty() {
            response.add(SHADOW, &shadow);
        }
        let status = status.filter(|(generation, _)| *generation == self.limiter.generation());
        let Some((_, status)) = status else { return };
        let index = usize::from(status.rule);
        let rule = self.limiter.rules().rules().get(index).zip(self.answers.get(index));
        let Some((rule, RuleAnswers { answers, .. })) = rule else { return };
        let lines = response.lines(&STATED);
        let unix_ns = if lines.is_empty() { unix_ns_for(rule, site) } else { site.unix_ns() };
        let policies = policies(&self.answers, rule.response.headers.ratelimit, &status);
        let headers = answers.quota(rule, (&status.standing, status.partition(), policies), &lines, unix_ns);
        // One set: these replace the upstream's.
        for name in lines.iter().filter_map(|(place, _)| STATED.get(*place)) {
            response.remove(name);
        }
        for (name, value) in headers {
            response.add(name, &value);
        }
    }

    /// The response is complete, or never will be: charges the costs that its size tells, or its metadata. If it never
    /// began, what its status or a header would have told stays reserved.
    pub fn response_sent(
        &mut self,
        open: &mut Open,
        response: &mut dyn Response,
        site: &mut dyn Site,
        now: Time,
    ) {
        if open.afterwards.iter().any(|done| matches!(done.what, What::Charge { .. })) {
            let cost = |after: &After, reserved| match after {
                After::Bytes { .. } => after.of_bytes(response.bytes()),
                After::Metadata { path, .. } => after.of_text(response.metadata(path).as_deref(), reserved),
                _ => None,
            };
            self.charge(open, cost, site, now);
        }
    }

    /// The request ends, be it answered, reset or timed out. What it holds is released, what it reserved is what it cost if
    /// nothing told another cost, and if it waits for a call, it waits no more.
    pub fn end(&mut self, open: &mut Open, site: &mut dyn Site, read: Time) {
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
        open: &mut Open,
        mut cost_of: impl FnMut(&After, u32) -> Option<u32>,
        site: &mut dyn Site,
        now: Time,
    ) {
        let now = self.clock.time(site, now);
        for done in mem::take(&mut open.afterwards) {
            let cost = match &done.what {
                What::Charge { after: Some(after), reserved } => cost_of(after, reserved.tokens),
                _ => None,
            };
            match cost {
                Some(cost) => self.limiter.charge(done, cost, site, now),
                None => open.afterwards.push(done),
            }
        }
    }

    fn carry_out(&mut self, decision: Decision, mut asking: Asking<'_>) -> Decided<'_> {
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
                Decided { step: Step::Take(take), ..Decided::CONTINUE }
            }
            Decision::Block => {
                let answer = self.blocked.answer(self.is_of_grpc(asking.request));
                Decided { step: Step::Answer(answer), note: self.note("block", None) }
            }
            Decision::Refuse { reason, status, jitter_s } => {
                self.refuse(reason, status, jitter_s, &mut asking)
            }
        }
    }

    #[inline(never)]
    fn told(&self, told: Option<Box<QuotaStatus>>, shadow: &[RuleIndex]) -> Told {
        Told {
            status: told.map(|told| (self.limiter.generation(), told)),
            shadow: self.names(shadow, |rule| rule.response.on_shadow),
            logged: self.names(shadow, |_| true),
        }
    }

    fn let_through(
        &mut self,
        strictest: Option<RuleIndex>,
        hold_ns: u64,
        open: &mut Open,
        now: Time,
    ) -> Decided<'_> {
        let Some(index) = strictest else { return Decided::CONTINUE };
        let is_held = hold_ns > 0 && !self.limiter.only_asks && self.holding.hold(open.id, now + hold_ns);
        let step = if is_held { Step::Hold } else { Step::Continue };
        Decided { step, note: self.note("allow", Some(index)) }
    }

    /// A strict rule's tokens must be paid for first.
    fn wait(&self, report: &Report, open: &mut Open, now: Time) -> Decided<'static> {
        if open.waits_until == Time::ZERO {
            // Without `sync` no request waits.
            let timeout_ms = self.sync.as_ref().map_or(1, |sync| sync.timeout_ms);
            open.waits_until = now + u64::from(timeout_ms) * 1_000_000;
        }
        open.waits = open.waits.saturating_add(1);
        let rest_ns = open.waits_until.nanos_since(now);
        let left_ms = u32::try_from(rest_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX);
        // An answer that takes twice as long as usual is still waited for. Nothing is known before the first.
        let is_quick = self.limiter.answers_take_ns().is_some_and(|ns| ns <= rest_ns / 4);
        let first_ms = if is_quick { left_ms.div_ceil(2) } else { left_ms };
        let (number, body) = (report.sequence, report.encode());
        let again = Some(body.clone());
        open.draw = Some(Box::new(Draw { number, generation: self.limiter.generation(), again }));
        Decided { step: Step::Call(reports::call(number, body, first_ms)), ..Decided::CONTINUE }
    }

    /// Sends a draw that failed once more, in the time that is left: another weir-sync may answer. The report names the
    /// epoch and all tokens that it is to have, so the budget is debited only for what is missing.
    fn draw_again(&mut self, mut draw: Box<Draw>, open: &mut Open, now: Time) -> Option<Decided<'static>> {
        let body = draw.again.take().filter(|_| draw.generation == self.limiter.generation())?;
        let rest_ns = open.waits_until.nanos_since(now);
        let left_ms = u32::try_from(rest_ns / 1_000_000).ok().filter(|left_ms| *left_ms > 0)?;
        self.limiter.draw_sent_again(draw.number);
        let call = reports::call(draw.number, body, left_ms);
        open.draw = Some(draw);
        Some(Decided { step: Step::Call(call), ..Decided::CONTINUE })
    }

    fn refuse(
        &mut self,
        reason: Reason,
        status: QuotaStatus,
        jitter_s: u32,
        asking: &mut Asking<'_>,
    ) -> Decided<'_> {
        let is_grpc = self.is_of_grpc(asking.request);
        let (place, all) = (usize::from(status.rule), &mut self.answers);
        let Some(rule) = self.limiter.rules().rules().get(place) else { return Decided::CONTINUE };
        let (word, answer) = if reason == Reason::Deny {
            let answers = all.get_mut(place);
            ("deny", answers.map(|answers| answers.denied(&status.standing, jitter_s, is_grpc, asking.site)))
        } else {
            let client = LimitedClient { status, jitter_s, is_banned: reason == Reason::Ban, is_grpc };
            ("limit", RuleAnswers::limited(all, rule, client, asking.site))
        };
        let Some(answer) = answer else { return Decided::CONTINUE };
        let note = self.notes_decisions.then_some(Note { decision: word, rule: &rule.name });
        Decided { step: Step::Answer(answer), note }
    }

    /// The names of those of these rules, with commas between.
    fn names(&self, rules: &[RuleIndex], is_named: impl Fn(&Rule) -> bool) -> String {
        let all = rules.iter().filter_map(|rule| self.rules().rules().get(usize::from(*rule)));
        let names = all.filter(|rule| is_named(rule)).map(|rule| rule.name.as_str());
        names.collect::<Vec<_>>().join(",")
    }

    fn is_of_grpc(&self, request: &mut dyn Request) -> bool {
        self.host.answers_grpc && self.grpc.are_those_of(request)
    }

    /// What access logs say about a decision, if the configuration says so. Noting it is a good part of a request's
    /// cost, and a refusal names its rule in the response's details anyway.
    fn note(&self, decision: &'static str, rule: Option<RuleIndex>) -> Option<Note<'_>> {
        if !self.notes_decisions {
            return None;
        }
        let rule = rule.and_then(|rule| self.limiter.rules().rules().get(usize::from(rule)));
        Some(Note { decision, rule: rule.map_or("", |rule| &rule.name) })
    }
}
