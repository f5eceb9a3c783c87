//! Top keys: the busiest keys that this weir-sync sees in reports, in bounded memory, for operators.
//!
//! A key that is limited anywhere is in reports, as it is above its fair share there. So reports are enough to list the
//! keys that are limited: POPs are sent no questions for it, and a cold key costs nothing. The rates of each key over
//! the last seconds are measured ([`KeyRates`]), in total and at a few POPs, beside the last state of its budget.
//!
//! There is room for [`KEYS_MAX`] keys. Two weights decide which ones are kept, one of limited and one of
//! admitted tokens ([`meter`]), and a few places are for budgets in debt. [`fleet`] has the messages between
//! weir-syncs, and merges them.

pub mod fleet;
mod meter;

use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_protocol::quota::Quota;
use weir_protocol::time::{SECOND_NS, Time};

use self::fleet::{ReplicaTopKeys, TopKey};
pub use self::meter::{HALF_NS, KEPT, KeyRates, WINDOW_NS};
use self::meter::{KeyMeter, Worn, weight};
use crate::budget::BudgetId;
pub use crate::demand::TokenCounts;
use crate::id::ByBudget;
use crate::offline::LastState;
use crate::report_limits::{FLOOD_PER_S, demand_milli_max};

pub const KEYS_MAX: usize = 4 * KEPT;
/// Maximum number of keys that are kept for their debt alone.
pub const IN_DEBT_MAX: usize = KEPT / 2;
pub const POPS_MAX: usize = 6;
/// Time after which a key without demand is forgotten, unless it is in debt, in nanoseconds.
const IDLE_NS: u64 = 60 * SECOND_NS;
/// Time without a limited request after which a key no longer counts as limited, in nanoseconds.
const UNLIMITED_NS: u64 = 10 * SECOND_NS;

// Keys with a weight, or kept for their debt, fit, and leave room for as many newcomers.
const _: () = assert!(2 * KEPT + IN_DEBT_MAX < KEYS_MAX);

#[derive(Clone, Copy, Debug)]
pub struct Use {
    pub counts: TokenCounts,
    pub last: LastState,
    pub askers: u32,
}

#[derive(Debug, Default)]
pub struct TopKeys {
    keys: ByBudget<Known>,
    worn: [Worn; 2],
    halved_at: Time,
}

#[derive(Debug)]
struct Known {
    meter: KeyMeter,
    pops: Vec<(String, KeyMeter)>,
    askers: u32,
    last: LastState,
    /// Weights of limited and of admitted tokens.
    weights: [u64; 2],
    /// Admitted tokens that are not in the demand yet: their workers report it later.
    early: u64,
    /// Time since which it has been limited, and time of its last limited request.
    limited: Option<(Time, Time)>,
}

impl TopKeys {
    pub fn observe(&mut self, now: Time, pop: &str, id: &BudgetId, used: &Use) {
        self.halve(now);
        if let Some(known) = self.keys.get_mut(id) {
            return known.observe(now, pop, used);
        }
        if used.counts == TokenCounts::default() {
            return;
        }
        if self.keys.len() >= KEYS_MAX {
            self.prune(now);
        }
        let mut known = Known::new(now, used.last);
        known.observe(now, pop, used);
        self.keys.insert(id.clone(), known);
    }

    pub fn look(&mut self, id: &BudgetId, last: LastState) {
        if let Some(known) = self.keys.get_mut(id) {
            known.last = last;
        }
    }

    pub fn forget(&mut self, id: &BudgetId) {
        self.keys.remove(id);
    }

    /// Top keys: up to `most` by limited requests, and half as many each by admissions and by debt.
    pub fn message(&self, now: Time, most: usize) -> ReplicaTopKeys {
        let top_key = |(id, known): (&BudgetId, &Known)| known.top_key(now, id);
        let mut all: Vec<TopKey> = self.keys.iter().map(top_key).filter(TopKey::has_figures).collect();
        // Sorted, so that the choice among equal keys is always the same.
        all.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        let mut message = fleet::first(all, most);
        let [limited, admitted] = self.worn.map(Worn::unseen_milli);
        message.unseen.limited_milli = message.unseen.limited_milli.max(limited);
        message.unseen.admitted_milli = message.unseen.admitted_milli.max(admitted);
        message
    }

    pub fn get(&self, now: Time, id: &BudgetId) -> Option<TopKey> {
        self.keys.get(id).map(|known| known.top_key(now, id))
    }

    fn halve(&mut self, now: Time) {
        if now.nanos_since(self.halved_at) < HALF_NS {
            return;
        }
        self.halved_at = now;
        self.worn.iter_mut().for_each(Worn::halve);
        self.keys.retain(|_, known| {
            known.weights = known.weights.map(|weight| weight / 2);
            known.meter.silent_ns(now) < IDLE_NS || known.last.debt_milli(now) > 0
        });
    }

    /// Makes room: drops the keys with the lowest weights, except those with the largest debts.
    fn prune(&mut self, now: Time) {
        for of in 0..self.worn.len() {
            let weights = self.keys.values().filter_map(|known| known.weights.get(of).copied());
            let taken = self.worn.get_mut(of).map_or(0, |worn| worn.wear(weights));
            for weight in self.keys.values_mut().filter_map(|known| known.weights.get_mut(of)) {
                *weight = weight.saturating_sub(taken);
            }
        }
        let light = self.keys.values().filter(|known| known.weights == [0, 0]);
        let mut debts: Vec<_> = light.map(|known| Reverse(known.owes(now))).collect();
        let least = if debts.len() > IN_DEBT_MAX { debts.select_nth_unstable(IN_DEBT_MAX).1.0 } else { 0 };
        self.keys.retain(|_, known| known.weights != [0, 0] || known.owes(now) > least);
    }
}

impl Known {
    fn new(now: Time, last: LastState) -> Self {
        Self { meter: KeyMeter::new(now), pops: Vec::new(), askers: 0, last, weights: [0, 0], early: 0, limited: None }
    }

    fn observe(&mut self, now: Time, pop: &str, used: &Use) {
        let Use { counts, last, askers } = *used;
        (self.last, self.askers) = (last, askers);
        self.meter.add(now, counts);
        let had = counts.admitted.saturating_add(self.early);
        let limited = counts.asked.saturating_sub(had);
        self.early = had.saturating_sub(counts.asked);
        if self.early > 0 {
            let early_max = u64::from(last.quota.burst()) + SECOND_NS / last.quota.token_ns();
            self.early = self.early.min(early_max);
        }
        let of = [limited, counts.admitted];
        for (known, tokens) in self.weights.iter_mut().zip(of) {
            *known = known.saturating_add(weight(tokens, last.quota.burst())).min(1 << 62);
        }
        if limited > 0 {
            let since = self.limited.filter(|(_, at)| now.nanos_since(*at) < UNLIMITED_NS);
            self.limited = Some((since.map_or(now, |(since, _)| since), now));
        }
        self.observe_pop(now, pop, counts);
    }

    /// Adds counts at `pop`. If there are too many POPs, the one with the least demand is replaced.
    fn observe_pop(&mut self, now: Time, pop: &str, counts: TokenCounts) {
        if let Some((_, meter)) = self.pops.iter_mut().find(|(name, _)| name == pop) {
            return meter.add(now, counts);
        }
        if self.pops.len() >= POPS_MAX {
            let asked = self.pops.iter().map(|(_, meter)| meter.rates(now).asked_milli).enumerate();
            let least = asked.min_by_key(|(_, asked)| *asked).map_or(0, |(at, _)| at);
            self.pops.swap_remove(least);
        }
        let mut meter = KeyMeter::new(now);
        meter.add(now, counts);
        self.pops.push((pop.into(), meter));
    }

    fn owes(&self, now: Time) -> u64 {
        self.last.debt_milli(now) / u64::from(self.last.quota.burst().max(1))
    }

    fn top_key(&self, now: Time, id: &BudgetId) -> TopKey {
        let LastState { quota, at, .. } = self.last;
        let limited = self.limited.filter(|(_, last)| now.nanos_since(*last) < UNLIMITED_NS);
        // Rates beyond the accepted maximum are cut.
        let most_milli = demand_milli_max(quota).saturating_add(FLOOD_PER_S * 1_000);
        let pops = self.pops.iter().map(|(pop, meter)| (pop.clone(), meter.rates(now).at_most(most_milli)));
        let mut pops: Vec<_> = pops.filter(|(_, rates)| rates.asked_milli > 0).collect();
        pops.sort_by_key(|(_, rates)| Reverse(rates.asked_milli));
        TopKey {
            id: id.clone(),
            quota,
            rates: self.meter.rates(now).at_most(most_milli.saturating_mul(self.askers.max(1).into())),
            level_milli: level_milli(quota, self.last.deficit_ns_at(now)),
            age_ms: now.nanos_since(at) / 1_000_000,
            limited_ms: limited.map(|(since, _)| now.nanos_since(since) / 1_000_000),
            askers: self.askers,
            pops,
        }
    }
}

/// Level of a budget with a deficit of `deficit_ns`, in thousandths of a token; negative if it is in debt.
pub fn level_milli(quota: Quota, deficit_ns: u64) -> i64 {
    let lacks = u128::from(deficit_ns) * 1_000 / u128::from(quota.token_ns());
    let lacks = i64::try_from(lacks).unwrap_or(i64::MAX);
    (i64::from(quota.burst()) * 1_000).saturating_sub(lacks)
}

#[cfg(test)]
mod tests;
