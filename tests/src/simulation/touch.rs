//! Times for which parts of a world are in touch: news from one of them then reaches the others in a stated time.

use super::faults::{Fault, Schedule};
use super::setup::Setup;
use super::stretch::{self, Span};

/// The parts that have to be whole for news to go from one POP to another, or from an operator to a POP.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// Between these POPs of one region, which have one weir-sync: the store is not needed.
    Within(usize, usize),
    /// Between these POPs, through the store.
    Between(usize, usize),
    /// From the store to this POP.
    FromStore(usize),
}

impl Way {
    /// True if a fault is on the way.
    fn is_hurt_by(self, fault: &Fault, setup: &Setup) -> bool {
        let ends = match self {
            Self::Within(from, to) | Self::Between(from, to) => [from, to],
            Self::FromStore(to) => [to, to],
        };
        let is_region = |region: usize| ends.iter().any(|pop| pop % setup.regions == region);
        let by_store = !matches!(self, Self::Within(..));
        match *fault {
            Fault::CutPop(pop, _)
            | Fault::Silence(pop, _)
            | Fault::PopCrash(pop)
            | Fault::PopStart(pop)
            | Fault::PopClock(pop, _)
            | Fault::Reload(pop) => ends.contains(&pop),
            Fault::SyncCrash(sync) | Fault::SyncStart(sync) => is_region(sync / setup.syncs_per_region),
            Fault::CutRegion(region, _) => by_store && is_region(region),
            // A weir-sync answers a report only when its store has answered or timed out.
            Fault::Near(_) | Fault::Far(_) | Fault::StoreSlow(_) => true,
            Fault::StoreUp(_) | Fault::StoreLoses(_) | Fault::StoreFlushed | Fault::StoreClock(_) => by_store,
        }
    }

    /// The times before `end` in which it is whole, each from the moment at which it is repaired.
    pub fn whole(self, schedule: &Schedule, setup: &Setup, end: u64) -> Vec<Span> {
        let mine = schedule.iter().filter(|(_, fault)| self.is_hurt_by(fault, setup)).cloned().collect();
        let settled = stretch::clean(&mine, setup, end).into_iter();
        settled.map(|(from, to)| (from.saturating_sub(setup.recovery_ns()), to)).collect()
    }

    /// Time that existing news takes on it once it is repaired, in nanoseconds: a lost report times out and the next
    /// one has it, and each message is then under way once.
    pub fn takes_ns(self, setup: &Setup) -> u64 {
        let turns = setup.interval_ns * setup.syncs_per_region as u64;
        let store_ns = match self {
            Self::Within(..) => 2 * setup.store_timeout_ns,
            _ => setup.interval_ns + 3 * setup.round_trip_ns(),
        };
        setup.timeout_ns + 2 * (turns + setup.interval_ns) + setup.round_trip_ns() + store_ns
    }

    /// The time at which news of `at` is known at its end, before `until`, allowing `more_ns` for lost messages. `None`
    /// if it is not whole for long enough, or if the news is `lost` by then: nothing has it any more.
    pub fn known_at(
        self,
        (schedule, setup): (&Schedule, &Setup),
        (at, until): Span,
        more_ns: u64,
        lost: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let known = |(from, to): Span| {
            let known_at = from.max(at) + self.takes_ns(setup) + more_ns;
            (known_at <= to.min(until) && !lost(known_at)).then_some(known_at)
        };
        self.whole(schedule, setup, until).into_iter().find_map(known)
    }
}
