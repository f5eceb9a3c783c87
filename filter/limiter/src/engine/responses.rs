//! A request after its decision: response, costs, end.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use crate::RuleIndex;
use crate::check::{Booking, EndAction, EndActionKind, ReservedTokens, book, drop_refusals};
use crate::engine::effects::{RuleReplies, policies, unix_ns_for};
use crate::engine::host::Host;
use crate::engine::requests::{HeadersToAdd, OpenRequest};
use crate::engine::state::Engine;
use crate::response::{HeaderLine, STATED};
use crate::sync::Consume;
use weir_protocol::time::Time;
use weir_rules::after::After;
use weir_rules::request::Request;

/// The header that names the rules in shadow that would have refused a request.
const SHADOW: &str = "x-weir-shadow";

/// The response to an allowed request.
pub trait UpstreamResponse {
    /// Status; 0 if unknown.
    fn status(&mut self) -> u16;

    /// The lines of this header, with a [`LINE_BREAK`](weir_rules::request::LINE_BREAK) between them.
    fn header(&mut self, name: &str) -> Option<Vec<u8>>;

    /// The lines of the headers of these names, each with its name's index. Empty if the host cannot read them.
    fn lines(&mut self, _names: &[&str]) -> Vec<HeaderLine> {
        Vec::new()
    }

    /// Removes all lines of the header of this name.
    fn remove(&mut self, _name: &str) {}

    /// Adds a header. Headers that the host rejects are left out.
    fn add(&mut self, name: &str, value: &str);

    /// Size in bytes, once the response is complete; 0 if unknown.
    fn bytes(&mut self) -> u64 {
        0
    }

    /// Text of the metadata under this namespace and these names, once the response is complete.
    fn metadata(&mut self, _path: &[String]) -> Option<Vec<u8>> {
        None
    }
}

impl Engine {
    /// Gives back the tokens of the last request, an allowed peek, before any other worker is called.
    pub fn take_back(&mut self, open: &mut OpenRequest, host: &mut dyn Host, now: Time) {
        let now = self.clock.time(host, now);
        for done in mem::take(&mut open.afterwards) {
            if let EndActionKind::Charge { reserved: ReservedTokens { epoch: Some(epoch), .. }, .. } = done.what {
                self.limiter.settle_own(epoch, 0);
            }
        }
        self.limiter.take_back(host.slots(), now);
    }

    /// Sets whether the next requests reserve their tokens, because the host states their cost later, to
    /// [`Engine::settle`]. If some requests reserve, the host must call this before each request, at every worker.
    pub fn reserves(&mut self, is_reserving: bool) {
        (self.limiter.current.is_reserving, self.limiter.current.may_reserve) = (is_reserving, true);
    }

    /// Keeps the reserved tokens of the request of `open` charged, because its cost will not be stated.
    pub fn keep_estimates(&mut self, open: &mut OpenRequest, host: &mut dyn Host, now: Time) {
        let now = self.clock.time(host, now);
        self.finish(open, |_, what| reserved(what), host, now);
    }

    /// Handles the response's headers. Must not be called if `open` is done.
    pub fn response(
        &mut self,
        open: &mut OpenRequest,
        response: &mut dyn UpstreamResponse,
        host: &mut dyn Host,
        now: Time,
    ) {
        if !open.afterwards.is_empty() {
            let status = response.status();
            let cost = |after: &After, reserved| match after {
                After::Header { name, .. } => after.of_text(response.header(name).as_deref(), reserved),
                _ => after.of_status(status),
            };
            self.charge(open, cost, host, now);
        }
        self.add_headers(open, response, host);
    }

    /// Adds the quota headers, and the header of rules in shadow, to the response of an allowed request, once.
    pub fn add_headers(&self, open: &mut OpenRequest, response: &mut dyn UpstreamResponse, host: &mut dyn Host) {
        let Some(headers) = open.headers.take() else { return };
        let HeadersToAdd { status, shadow, .. } = *headers;
        if !shadow.is_empty() {
            response.add(SHADOW, &shadow);
        }
        let status = status.filter(|(generation, _)| *generation == self.limiter.rules.generation);
        let Some((_, status)) = status else { return };
        let index = usize::from(status.rule);
        let rule = self.limiter.rules().rules().get(index).zip(self.answers.get(index));
        let Some((rule, RuleReplies { answers, .. })) = rule else { return };
        let lines = response.lines(&STATED);
        let unix_ns = if lines.is_empty() { unix_ns_for(rule, host) } else { host.unix_ns() };
        let policies = policies(&self.answers, rule.response.headers.ratelimit, &status);
        let headers = answers.quota(rule, (&status.bucket, status.partition(), policies), &lines, unix_ns);
        // These replace the upstream's, so that the response has one set.
        for name in lines.iter().filter_map(|(place, _)| STATED.get(*place)) {
            response.remove(name);
        }
        for (name, value) in headers {
            response.add(name, &value);
        }
    }

    /// Handles the end of the response, complete or not: charges costs by its size or its metadata. If the response
    /// never began, a cost that its status or a header would have stated stays as reserved.
    #[cfg_attr(target_arch = "wasm32", inline(never))]
    pub fn response_sent(
        &mut self,
        open: &mut OpenRequest,
        response: &mut dyn UpstreamResponse,
        host: &mut dyn Host,
        now: Time,
    ) {
        if open.afterwards.iter().any(|done| matches!(done.what, EndActionKind::Charge { .. })) {
            let cost = |after: &After, reserved| match after {
                After::Bytes { .. } => after.of_bytes(response.bytes()),
                After::Metadata { path, .. } => after.of_text(response.metadata(path).as_deref(), reserved),
                _ => None,
            };
            self.charge(open, cost, host, now);
        }
    }

    /// Ends the request and its wait. Releases what it holds; reserved tokens stay charged if no cost was stated.
    #[cfg_attr(target_arch = "wasm32", inline(never))]
    pub fn end(&mut self, open: &mut OpenRequest, host: &mut dyn Host, read: Time) {
        let now = self.clock.time(host, read);
        if let Some(acquire) = open.acquire.take() {
            self.limiter.give_up_acquire(acquire.number, host.slots(), now);
        }
        self.finish(open, |_, what| reserved(what).or(Some(0)), host, now);
    }

    /// Charges the costs that are known now; the others stay pending.
    fn charge(
        &mut self,
        open: &mut OpenRequest,
        mut cost_of: impl FnMut(&After, u32) -> Option<u32>,
        host: &mut dyn Host,
        now: Time,
    ) {
        let now = self.clock.time(host, now);
        let known = |_, what: &EndActionKind| match what {
            EndActionKind::Charge { after: Some(after), reserved } => cost_of(after, reserved.tokens),
            _ => None,
        };
        self.finish(open, known, host, now);
    }

    /// Carries out the actions for which `cost_of` returns a cost (any cost for a release), and keeps the others.
    fn finish(
        &mut self,
        open: &mut OpenRequest,
        mut cost_of: impl FnMut(usize, &EndActionKind) -> Option<u32>,
        host: &mut dyn Host,
        now: Time,
    ) {
        for (number, done) in mem::take(&mut open.afterwards).into_iter().enumerate() {
            let is_release = matches!(done.what, EndActionKind::Release { .. });
            match cost_of(number, &done.what) {
                None => open.afterwards.push(done),
                Some(_) if is_release => self.limiter.release(done, host.slots(), now),
                Some(cost) => self.limiter.charge(done, cost, host.slots(), now),
            }
        }
    }

    /// Sets whether the next requests have already happened. Their refusals do not count for a penalty, and the host
    /// [books](Engine::book) the refused ones.
    pub fn books(&mut self, is_booking: bool) {
        self.limiter.current.is_booking = is_booking;
    }

    /// Books the cost of `request` under each rule that counts it, even if too few tokens are left. Returns the amounts
    /// that the host must book to strict rules' budgets. If a rule cannot refund, fails with it and books nothing.
    pub fn book(
        &mut self,
        booking: Booking,
        request: &mut dyn Request,
        host: &mut dyn Host,
        now: Time,
    ) -> Result<Vec<Consume>, RuleIndex> {
        let now = self.clock.time(host, now);
        book(&mut self.limiter, booking, request, host.slots(), now)
    }

    /// Drops cached refusals of the keys of `request`, whose tokens were refunded at another worker.
    pub fn given_back(&mut self, request: &mut dyn Request, host: &mut dyn Host, now: Time) {
        let now = self.clock.time(host, now);
        drop_refusals(&mut self.limiter, request, host.slots(), now);
    }

    /// The tokens that the request of `open` cost beyond those it had acquired, under strict rules, with numbers for
    /// [`Engine::settle`]. A host next to the store books them to the budgets first.
    pub fn beyond(&self, open: &OpenRequest, cost: u32, times: u32) -> Vec<(usize, Consume)> {
        let beyond = |(number, done): (usize, &EndAction)| {
            let EndActionKind::Charge { reserved, .. } = &done.what else { return None };
            let tokens = cost_of(&done.what, cost, times).checked_sub(reserved.tokens).filter(|tokens| *tokens > 0);
            let tokens = tokens.filter(|_| reserved.epoch.is_some())?;
            let rule = self.limiter.rules.with_salt(done.salt)?;
            Some((number, Consume { rule, value: done.value, tokens, tag: done.place.tag }))
        };
        open.afterwards.iter().enumerate().filter_map(beyond).collect()
    }

    /// Settles the request of `open`, which is over. It stood for `times` requests, and cost as much as `cost` of them.
    /// A rule whose responses state the cost is charged `cost` tokens. `booked` contains the numbers for which the cost
    /// beyond the acquired tokens is already booked.
    pub fn settle(
        &mut self,
        open: &mut OpenRequest,
        (cost, times): (u32, u32),
        booked: &[usize],
        host: &mut dyn Host,
        now: Time,
    ) {
        let now = self.clock.time(host, now);
        let cost_of = |number, what: &EndActionKind| match what {
            EndActionKind::Charge { reserved, .. } if booked.contains(&number) => Some(reserved.tokens),
            _ => Some(cost_of(what, cost, times)),
        };
        self.finish(open, cost_of, host, now);
    }
}

/// Tokens that the request reserved until its cost is known; `None` for a release.
fn reserved(what: &EndActionKind) -> Option<u32> {
    if let EndActionKind::Charge { reserved, .. } = what { Some(reserved.tokens) } else { None }
}

/// Cost of a request that stood for `times` requests and cost as much as `cost` of them, rounded up; `cost` tokens if
/// the rule's responses state the cost.
fn cost_of(what: &EndActionKind, cost: u32, times: u32) -> u32 {
    match what {
        EndActionKind::Charge { after: None, reserved } => {
            let all = u64::from(reserved.tokens) * u64::from(cost);
            u32::try_from(all.div_ceil(u64::from(times.max(1)))).unwrap_or(u32::MAX)
        }
        _ => cost,
    }
}
