//! Costs of requests that are over, from a host next to the store: those of requests that had reserved
//! tokens, and those of requests that were never decided.

use alloc::vec::Vec;
use core::mem;

use super::host::Host;
use super::requests::OpenRequest;
use super::state::Engine;
use crate::RuleIndex;
use crate::decide::{Booking, EndAction, EndActionKind};
use crate::fleet::Consume;
use weir_protocol::time::Time;
use weir_rules::request::Request;

impl Engine {
    /// Sets whether the next requests have happened already. Their refusals do not count for a penalty; a
    /// refused one is to be booked ([`Engine::book`]).
    pub fn books(&mut self, is_booking: bool) {
        self.limiter.is_booking = is_booking;
    }

    /// Books the cost of `request` under each rule that counts it, as a charge or a refund, even if too few
    /// tokens are left. Returns the amounts that the host is to book to the budgets of strict rules. Fails
    /// with a rule that cannot refund; nothing is booked then.
    pub fn book(
        &mut self,
        booking: Booking,
        request: &mut dyn Request,
        site: &mut dyn Host,
        now: Time,
    ) -> Result<Vec<Consume>, RuleIndex> {
        let now = self.clock.time(site, now);
        self.limiter.book(booking, request, site, now)
    }

    /// Drops cached refusals of the keys of `request`, whose tokens were refunded at another worker.
    pub fn given_back(&mut self, request: &mut dyn Request, site: &mut dyn Host, now: Time) {
        let now = self.clock.time(site, now);
        self.limiter.believe_again(request, site, now);
    }

    /// The tokens that the request of `open` cost beyond those it had acquired, under strict rules, by number
    /// for [`Engine::settle`]. A host next to the store books them to the budgets first.
    pub fn beyond(&self, open: &OpenRequest, cost: u32, times: u32) -> Vec<(usize, Consume)> {
        let beyond = |(number, done): (usize, &EndAction)| {
            let EndActionKind::Charge { reserved, .. } = &done.what else { return None };
            let tokens = cost_of(&done.what, cost, times).checked_sub(reserved.tokens)?;
            let take = self.limiter.book_beyond(done, tokens).filter(|_| reserved.epoch.is_some())?;
            Some((number, take))
        };
        open.afterwards.iter().enumerate().filter_map(beyond).collect()
    }

    /// Settles the request of `open`, which is over. It stood for `times` requests, and cost as much as
    /// `cost` of them. A rule whose responses state the cost is charged `cost` tokens. The numbers in
    /// `booked` are those for which the cost beyond the acquired tokens is booked already.
    pub fn settle(
        &mut self,
        open: &mut OpenRequest,
        (cost, times): (u32, u32),
        booked: &[usize],
        site: &mut dyn Host,
        now: Time,
    ) {
        let now = self.clock.time(site, now);
        for (number, done) in mem::take(&mut open.afterwards).into_iter().enumerate() {
            let cost = match done.what {
                EndActionKind::Charge { reserved, .. } if booked.contains(&number) => reserved.tokens,
                _ => cost_of(&done.what, cost, times),
            };
            match done.what {
                EndActionKind::Charge { .. } => self.limiter.charge(done, cost, site, now),
                EndActionKind::Release { .. } => self.limiter.release(done, site, now),
            }
        }
    }
}

/// Cost of a request that stood for `times` requests and cost as much as `cost` of them; `cost` tokens under
/// a rule whose responses state the cost.
fn cost_of(what: &EndActionKind, cost: u32, times: u32) -> u32 {
    match what {
        EndActionKind::Charge { after: None, reserved } => part(reserved.tokens, cost, times),
        _ => cost,
    }
}

/// Cost of `cost` requests, if `times` of them took `tokens`; rounded up.
fn part(tokens: u32, cost: u32, times: u32) -> u32 {
    let all = u64::from(tokens) * u64::from(cost);
    u32::try_from(all.div_ceil(u64::from(times.max(1)))).unwrap_or(u32::MAX)
}
