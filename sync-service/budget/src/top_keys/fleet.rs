//! Messages between weir-syncs about their top keys, and the fleet's top keys merged from them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use serde::{Deserialize, Serialize};
use weir_protocol::quota::Quota;

use super::meter::KeyRates;
use crate::budget::BudgetId;
use crate::divide::region_of;

/// One weir-sync's figures for a top key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKey {
    pub id: BudgetId,
    pub quota: Quota,
    /// Rates at the POPs that report to that weir-sync.
    pub rates: KeyRates,
    /// The budget's level in thousandths of a token, including the refill since `age_ms`.
    pub level_milli: i64,
    /// Age of the state that the level is based on, in milliseconds.
    pub age_ms: u64,
    /// Time for which it has been limited, in milliseconds, or `None` if it is not.
    pub limited_ms: Option<u64>,
    pub askers: u32,
    pub pops: Vec<(String, KeyRates)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaTopKeys {
    pub keys: Vec<TopKey>,
    /// Upper limits for a key that is not among them.
    pub unseen: Unseen,
}

impl From<TopKey> for ReplicaTopKeys {
    fn from(key: TopKey) -> Self {
        Self { keys: alloc::vec![key], unseen: Unseen::default() }
    }
}

/// Upper limits for a key that is not listed, in thousandths of its burst per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Unseen {
    pub limited_milli: u64,
    pub admitted_milli: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Limited,
    Admitted,
    Debt,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetTopKey {
    pub id: BudgetId,
    pub quota: Quota,
    pub rates: KeyRates,
    pub level_milli: i64,
    pub age_ms: u64,
    pub limited_ms: Option<u64>,
    pub regions: BTreeMap<String, InRegion>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InRegion {
    pub rates: KeyRates,
    pub askers: u32,
    /// POPs with the highest demand, the highest first.
    pub pops: Vec<(String, KeyRates)>,
}

impl TopKey {
    pub(super) fn has_figures(&self) -> bool {
        self.rates != KeyRates::default() || self.limited_ms.is_some() || self.level_milli < 0
    }

    fn in_bursts(&self, milli: u64) -> u64 {
        milli / u64::from(self.quota.burst().max(1))
    }

    fn measure(&self, sort: Sort) -> u64 {
        measure(sort, self.rates, self.level_milli)
    }
}

fn measure(sort: Sort, rates: KeyRates, level_milli: i64) -> u64 {
    match sort {
        Sort::Limited => rates.limited_milli(),
        Sort::Admitted => rates.admitted_milli,
        Sort::Debt => u64::try_from(level_milli.saturating_neg()).unwrap_or(0),
    }
}

/// Selects from `all` the first `most` keys by limited requests, and half as many each by admitted requests and
/// by debt. Half of each are selected by tokens and half by bursts, as rules may count different things.
pub(super) fn first(all: Vec<TopKey>, most: usize) -> ReplicaTopKeys {
    let (mut chosen, mut unseen) = (Vec::new(), Unseen::default());
    chosen.resize(all.len(), false);
    for (sort, most) in [(Sort::Limited, most), (Sort::Admitted, most / 2), (Sort::Debt, most / 2)] {
        for is_by_burst in [false, true] {
            let of = |key: &TopKey| {
                let measure = key.measure(sort);
                if is_by_burst { key.in_bursts(measure) } else { measure }
            };
            let measures = all.iter().map(of).enumerate().filter(|(_, measure)| *measure > 0);
            let mut order: Vec<_> = measures.map(|(at, measure)| (Reverse(measure), at)).collect();
            order.sort_unstable();
            for (_, at) in order.iter().take(most.div_ceil(2)) {
                chosen.get_mut(*at).into_iter().for_each(|chosen| *chosen = true);
            }
        }
    }
    let (chosen, left): (Vec<_>, Vec<_>) = all.into_iter().zip(chosen).partition(|(_, is_chosen)| *is_chosen);
    for (key, _) in left {
        let [limited, admitted] = [Sort::Limited, Sort::Admitted].map(|sort| key.in_bursts(key.measure(sort)));
        unseen.limited_milli = unseen.limited_milli.max(limited);
        unseen.admitted_milli = unseen.admitted_milli.max(admitted);
    }
    ReplicaTopKeys { keys: chosen.into_iter().map(|(key, _)| key).collect(), unseen }
}

/// Sums the messages of replicas (`region/replica`): the figures by key, and the upper limits for keys not listed.
pub fn together<'a>(messages: impl IntoIterator<Item = (&'a str, ReplicaTopKeys)>) -> (Vec<FleetTopKey>, Unseen) {
    let (mut keys, mut unseen) = (BTreeMap::new(), Unseen::default());
    for (replica, ReplicaTopKeys { keys: listed, unseen: there }) in messages {
        unseen.limited_milli = unseen.limited_milli.saturating_add(there.limited_milli);
        unseen.admitted_milli = unseen.admitted_milli.saturating_add(there.admitted_milli);
        for key in listed {
            keys.entry(key.id.clone()).or_insert_with(|| FleetTopKey::new(&key)).add(region_of(replica), key);
        }
    }
    (keys.into_values().map(FleetTopKey::whole).collect(), unseen)
}

pub fn sort(keys: &mut [FleetTopKey], by: Sort) {
    keys.sort_by(|a, b| {
        let order = |key: &FleetTopKey| {
            let measure = measure(by, key.rates, key.level_milli);
            (Reverse(measure), Reverse(key.rates.asked_milli), key.level_milli)
        };
        order(a).cmp(&order(b)).then_with(|| a.id.cmp(&b.id))
    });
}

impl FleetTopKey {
    fn new(key: &TopKey) -> Self {
        Self {
            id: key.id.clone(),
            quota: key.quota,
            rates: KeyRates::default(),
            level_milli: key.level_milli,
            age_ms: key.age_ms,
            limited_ms: None,
            regions: BTreeMap::new(),
        }
    }

    /// Completes the sums, once all messages have been added.
    fn whole(mut self) -> Self {
        self.rates = self.rates.whole();
        for there in self.regions.values_mut() {
            there.rates = there.rates.whole();
            there.pops.iter_mut().for_each(|(_, rates)| *rates = rates.whole());
            there.pops.sort_by_key(|(_, rates)| Reverse(rates.asked_milli));
        }
        self
    }

    fn add(&mut self, region: &str, key: TopKey) {
        self.rates.add(key.rates);
        self.limited_ms = self.limited_ms.max(key.limited_ms);
        if key.age_ms <= self.age_ms {
            (self.quota, self.level_milli, self.age_ms) = (key.quota, key.level_milli, key.age_ms);
        }
        let there = self.regions.entry(region.into()).or_default();
        there.rates.add(key.rates);
        for (pop, rates) in key.pops {
            match there.pops.iter_mut().find(|(known, _)| *known == pop) {
                Some((_, known)) => known.add(rates),
                None => there.pops.push((pop, rates)),
            }
        }
        // Workers of one POP report to several weir-syncs of its region.
        there.askers = there.askers.max(key.askers).max(u32::try_from(there.pops.len()).unwrap_or(u32::MAX));
    }
}
