//! What a host that is beside the store says of a request that is over: what it cost that reserved, or what has happened unasked.

use alloc::vec::Vec;
use core::mem;

use super::requests::Open;
use super::site::Site;
use super::state::Edge;
use crate::RuleIndex;
use crate::decide::{Afterwards, Booking, What};
use crate::fleet::Take;
use weir_rules::request::Request;
use weir_wire::time::Time;

impl Edge {
    /// Whether the requests that come next say what has happened already: no refusal counts for a penalty. What is refused is
    /// to be booked ([`Edge::book`]).
    pub fn books(&mut self, is_booking: bool) {
        self.limiter.is_booking = is_booking;
    }

    /// Charges what `request` costs under each rule that counts it, or gives it back, whatever is left. Returns what the host is
    /// to book to the budgets of strict rules. Fails with a rule whose tokens cannot be given back; then nothing is booked.
    pub fn book(
        &mut self,
        booking: Booking,
        request: &mut dyn Request,
        site: &mut dyn Site,
        now: Time,
    ) -> Result<Vec<Take>, RuleIndex> {
        let now = self.clock.time(site, now);
        self.limiter.book(booking, request, site, now)
    }

    /// At another worker, the tokens of `request` were given back: what is remembered of refusals of its keys is out of date.
    pub fn given_back(&mut self, request: &mut dyn Request, site: &mut dyn Site, now: Time) {
        let now = self.clock.time(site, now);
        self.limiter.believe_again(request, site, now);
    }

    /// What the request of `open` cost beyond what it drew, under strict rules, by its number for [`Edge::settle`]: a host that
    /// is beside the store books that to their budgets before.
    pub fn beyond(&self, open: &Open, cost: u32, times: u32) -> Vec<(usize, Take)> {
        let beyond = |(number, done): (usize, &Afterwards)| {
            let What::Charge { reserved, .. } = &done.what else { return None };
            let tokens = cost_of(&done.what, cost, times).checked_sub(reserved.tokens)?;
            let take = self.limiter.book_beyond(done, tokens).filter(|_| reserved.epoch.is_some())?;
            Some((number, take))
        };
        open.afterwards.iter().enumerate().filter_map(beyond).collect()
    }

    /// The request of `open` stood for so many `times` a request, and is over: it cost what `cost` of them do. A rule whose
    /// responses tell the cost is charged `cost` tokens. What it cost beyond what it drew is `booked` already for these numbers.
    pub fn settle(
        &mut self,
        open: &mut Open,
        (cost, times): (u32, u32),
        booked: &[usize],
        site: &mut dyn Site,
        now: Time,
    ) {
        let now = self.clock.time(site, now);
        for (number, done) in mem::take(&mut open.afterwards).into_iter().enumerate() {
            let cost = match done.what {
                What::Charge { reserved, .. } if booked.contains(&number) => reserved.tokens,
                _ => cost_of(&done.what, cost, times),
            };
            match done.what {
                What::Charge { .. } => self.limiter.charge(done, cost, site, now),
                What::Release { .. } => self.limiter.release(done, site, now),
            }
        }
    }
}

/// What a request cost that stood for so many `times` a request and cost what `cost` of them do: under a rule whose responses
/// tell the cost, so many tokens.
fn cost_of(what: &What, cost: u32, times: u32) -> u32 {
    match what {
        What::Charge { after: None, reserved } => part(reserved.tokens, cost, times),
        _ => cost,
    }
}

/// What `cost` of the requests cost of which `times` took `tokens`.
fn part(tokens: u32, cost: u32, times: u32) -> u32 {
    let all = u64::from(tokens) * u64::from(cost);
    u32::try_from(all.div_ceil(u64::from(times.max(1)))).unwrap_or(u32::MAX)
}
