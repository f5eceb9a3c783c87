//! A POP or a region that is alone for a while, and what it may admit meanwhile. A POP is alone if it does not reach
//! its weir-sync and its leases have ended; a region, if it does not reach the store.

use weir_limiter::sync::connectivity::FALLBACK_NS;
use weir_protocol::quota::Quota;
use weir_protocol::sharing::OnSyncLoss;
use weir_protocol::time::SECOND_NS;

use super::account::{Meter, Tally};
use super::faults::{Fault, Schedule};
use super::setup::Setup;
use super::stretch::{SHORTEST_NS, Span};

/// Time after the store is out of reach until a region goes by its share, in nanoseconds, beside messages under way.
const ALONE_NS: u64 = 2 * SECOND_NS;

/// The part that is alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A POP.
    Pop(usize),
    /// All POPs of a region, which its weir-sync still answers.
    Region(usize),
}

/// A POP or a region that is alone, with the clients of the one rule.
#[derive(Clone, Debug)]
pub struct Apart {
    /// Which.
    pub who: Who,
    /// From when to when it goes by its own state.
    pub span: Span,
    /// By client; empty until the first request.
    pub own: Vec<Own>,
}

/// One client's tally there.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// The amount that it may be.
    pub quota: Quota,
    /// The tokens that a bucket of its own would have admitted.
    pub ideally: u64,
    /// The tokens asked for and admitted.
    pub tally: Tally,
    meter: Meter,
    withheld_ns: u64,
    /// The price of a token in tokens; `None` if nothing passes.
    price: Option<u64>,
}

impl Own {
    /// At a POP, one of `pops`, whose bucket for the client lacks `meter` and withholds `withheld_ns`.
    pub fn of_pop(quota: Quota, meter: Meter, withheld_ns: u64, when: OnSyncLoss, pops: usize) -> Self {
        let price = match when {
            OnSyncLoss::Local => Some(1),
            OnSyncLoss::Share => Some(pops as u64),
            OnSyncLoss::Deny => None,
        };
        Self { quota, ideally: 0, tally: Tally::default(), meter, withheld_ns, price }
    }

    /// In a region that has `here` of all `pops` POPs.
    pub fn of_region(quota: Quota, here: u32, pops: u32) -> Self {
        let token_ns = quota.token_ns() * u64::from(pops) / u64::from(here);
        let burst = (quota.burst() * here / pops).max(1);
        let quota = Quota::from_token_ns(token_ns, burst).expect("a part of a good quota");
        let (tally, meter) = (Tally::default(), Meter::default());
        Self { quota, ideally: 0, tally, meter, withheld_ns: 0, price: Some(1) }
    }

    /// A request of `cost` tokens.
    pub fn offer(&mut self, cost: u32, now: u64) {
        self.tally.offered += u64::from(cost);
        let Some(price) = self.price else { return };
        let price_ns = self.quota.token_ns() * u64::from(cost) * price;
        let missing_ns = self.meter.deficit_ns(now).max(self.withheld_ns);
        if missing_ns + price_ns <= self.quota.fill_ns().max(price_ns) {
            self.meter.set(missing_ns + price_ns, now);
            self.ideally += u64::from(cost);
        }
    }
}

impl Apart {
    /// True if a request at `pop` and `now` comes to the POP or region that is alone.
    pub fn counts(&self, pop: usize, regions: usize, now: u64) -> bool {
        let is_there = match self.who {
            Who::Pop(alone) => pop == alone,
            Who::Region(region) => pop % regions == region,
        };
        is_there && (self.span.0..self.span.1).contains(&now)
    }
}

/// The parts that are alone, with their times, as far as that can be predicted.
pub fn foreseen(schedule: &Schedule, setup: &Setup) -> Vec<Apart> {
    let [_] = setup.rules.as_slice() else { return Vec::new() };
    let cut = |(i, (at, fault)): (usize, &(u64, Fault))| {
        let later = &schedule[i + 1..];
        let (who, is_end): (Who, fn(&Fault) -> bool) = match *fault {
            Fault::CutPop(pop, true) => (Who::Pop(pop), |fault| matches!(fault, Fault::CutPop(..))),
            Fault::CutRegion(region, true) => (Who::Region(region), |fault| matches!(fault, Fault::CutRegion(..))),
            _ => return None,
        };
        let (until, _) = later.iter().find(|(_, fault)| is_end(fault))?;
        let (alone_ns, mut from) = match who {
            Who::Pop(_) => (FALLBACK_NS + setup.terms.lease_max_ns, *at),
            Who::Region(_) => (ALONE_NS, *at),
        };
        // A weir-sync's crash delays the begin, and other cuts of the same kind do not matter; all else rules it out.
        for (at, fault) in schedule.iter().take_while(|(at, _)| at < until) {
            match (fault, who) {
                (Fault::SyncCrash(_) | Fault::SyncStart(_), _) => from = from.max(*at),
                (Fault::CutPop(..), Who::Pop(_)) | (Fault::CutRegion(..), Who::Region(_)) => {}
                _ => return None,
            }
        }
        let from = from + alone_ns + setup.recovery_ns();
        (from + SHORTEST_NS <= *until).then_some(Apart { who, span: (from, *until), own: Vec::new() })
    };
    schedule.iter().enumerate().filter_map(cut).collect()
}
