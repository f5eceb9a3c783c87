//! What weir-syncs tell each other of their busy keys, and what that is together.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_wire::quota::Quota;

use super::meter::Rates;
use crate::budget::BudgetId;
use crate::divide::region_of;

/// One weir-sync's word on a busy key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyKey {
    /// Whose budget.
    pub id: BudgetId,
    /// How large it is.
    pub quota: Quota,
    /// What the POPs that report there are asked for.
    pub rates: Rates,
    /// The budget's level, in thousandths of a token, with what has refilled since ...
    pub level_milli: i64,
    /// ... it was heard of, so long ago, in milliseconds.
    pub age_ms: u64,
    /// For how long it has been limited, if it is, in milliseconds.
    pub limited_ms: Option<u64>,
    /// POPs that are asked for it there.
    pub askers: u32,
    /// Those that are asked most.
    pub pops: Vec<(String, Rates)>,
}

/// One weir-sync's word on its busy keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Keys.
    pub keys: Vec<BusyKey>,
    /// What a key may have that is not among them.
    pub unseen: Unseen,
}

impl From<BusyKey> for Said {
    fn from(key: BusyKey) -> Self {
        Self { keys: alloc::vec![key], unseen: Unseen::default() }
    }
}

/// The most that a key has which is not listed, in thousandths of its burst per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Limited.
    pub limited_milli: u64,
    /// Admitted.
    pub admitted_milli: u64,
}

/// By what keys are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Those that are limited most first.
    #[default]
    Limited,
    /// Those that are admitted most first.
    Admitted,
    /// Those that owe most first.
    Debt,
}

/// A key as the whole fleet has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetKey {
    /// Whose budget.
    pub id: BudgetId,
    /// How large it is.
    pub quota: Quota,
    /// What all POPs are asked for.
    pub rates: Rates,
    /// The budget's level, in thousandths of a token, as of the newest word on it.
    pub level_milli: i64,
    /// How old that is, in milliseconds.
    pub age_ms: u64,
    /// For how long it has been limited, if it is, in milliseconds.
    pub limited_ms: Option<u64>,
    /// Where it is asked for, by region.
    pub regions: BTreeMap<String, InRegion>,
}

/// A key in one region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InRegion {
    /// What the region's POPs are asked for.
    pub rates: Rates,
    /// POPs that are asked for it.
    pub askers: u32,
    /// Those that are asked most, the one that is asked most first.
    pub pops: Vec<(String, Rates)>,
}

impl BusyKey {
    /// Whether there is anything to see.
    pub(super) fn is_worth_telling(&self) -> bool {
        self.rates != Rates::default() || self.limited_ms.is_some() || self.level_milli < 0
    }

    /// Thousandths of a token as thousandths of its burst.
    fn in_bursts(&self, milli: u64) -> u64 {
        milli / u64::from(self.quota.burst().max(1))
    }

    fn measure(&self, sort: Sort) -> u64 {
        measure(sort, self.rates, self.level_milli)
    }
}

fn measure(sort: Sort, rates: Rates, level_milli: i64) -> u64 {
    match sort {
        Sort::Limited => rates.limited_milli(),
        Sort::Admitted => rates.admitted_milli,
        Sort::Debt => u64::try_from(level_milli.saturating_neg()).unwrap_or(0),
    }
}

/// Of `all`, the first `most` that are limited, and half as many that are admitted and that owe; half of each by
/// tokens, and half by bursts, as rules may count different things.
pub(super) fn first(all: Vec<BusyKey>, most: usize) -> Said {
    let (mut told, mut unseen) = (Vec::new(), Unseen::default());
    told.resize(all.len(), false);
    for (sort, most) in [(Sort::Limited, most), (Sort::Admitted, most / 2), (Sort::Debt, most / 2)] {
        for is_by_burst in [false, true] {
            let of = |key: &BusyKey| {
                let measure = key.measure(sort);
                if is_by_burst { key.in_bursts(measure) } else { measure }
            };
            let measures = all.iter().map(of).enumerate().filter(|(_, measure)| *measure > 0);
            let mut order: Vec<_> = measures.map(|(at, measure)| (Reverse(measure), at)).collect();
            order.sort_unstable();
            for (_, at) in order.iter().take(most.div_ceil(2)) {
                told.get_mut(*at).into_iter().for_each(|told| *told = true);
            }
        }
    }
    let (told, left): (Vec<_>, Vec<_>) = all.into_iter().zip(told).partition(|(_, is_told)| *is_told);
    for (key, _) in left {
        let [limited, admitted] =
            [Sort::Limited, Sort::Admitted].map(|sort| key.in_bursts(key.measure(sort)));
        unseen.limited_milli = unseen.limited_milli.max(limited);
        unseen.admitted_milli = unseen.admitted_milli.max(admitted);
    }
    Said { keys: told.into_iter().map(|(key, _)| key).collect(), unseen }
}

/// What members (`region/replica`) said of their keys, together: each key with what all of them heard of it, and the most
/// that another one may have.
pub fn together<'a>(said: impl IntoIterator<Item = (&'a str, Said)>) -> (Vec<FleetKey>, Unseen) {
    let (mut keys, mut unseen) = (BTreeMap::new(), Unseen::default());
    for (member, Said { keys: of_member, unseen: there }) in said {
        unseen.limited_milli = unseen.limited_milli.saturating_add(there.limited_milli);
        unseen.admitted_milli = unseen.admitted_milli.saturating_add(there.admitted_milli);
        for key in of_member {
            keys.entry(key.id.clone()).or_insert_with(|| FleetKey::new(&key)).add(region_of(member), key);
        }
    }
    (keys.into_values().map(FleetKey::whole).collect(), unseen)
}

/// Sorts `keys`.
pub fn sort(keys: &mut [FleetKey], by: Sort) {
    keys.sort_by(|a, b| {
        let order = |key: &FleetKey| {
            let measure = measure(by, key.rates, key.level_milli);
            (Reverse(measure), Reverse(key.rates.asked_milli), key.level_milli)
        };
        order(a).cmp(&order(b)).then_with(|| a.id.cmp(&b.id))
    });
}

impl FleetKey {
    fn new(key: &BusyKey) -> Self {
        Self {
            id: key.id.clone(),
            quota: key.quota,
            rates: Rates::default(),
            level_milli: key.level_milli,
            age_ms: key.age_ms,
            limited_ms: None,
            regions: BTreeMap::new(),
        }
    }

    /// Once all have been added.
    fn whole(mut self) -> Self {
        self.rates = self.rates.whole();
        for there in self.regions.values_mut() {
            there.rates = there.rates.whole();
            there.pops.iter_mut().for_each(|(_, rates)| *rates = rates.whole());
            there.pops.sort_by_key(|(_, rates)| Reverse(rates.asked_milli));
        }
        self
    }

    /// Adds what a weir-sync of `region` said.
    fn add(&mut self, region: &str, said: BusyKey) {
        self.rates.add(said.rates);
        self.limited_ms = self.limited_ms.max(said.limited_ms);
        if said.age_ms <= self.age_ms {
            (self.quota, self.level_milli, self.age_ms) = (said.quota, said.level_milli, said.age_ms);
        }
        let there = self.regions.entry(region.into()).or_default();
        there.rates.add(said.rates);
        for (pop, rates) in said.pops {
            match there.pops.iter_mut().find(|(known, _)| *known == pop) {
                Some((_, known)) => known.add(rates),
                None => there.pops.push((pop, rates)),
            }
        }
        // Workers of one POP report to several weir-syncs of its region.
        there.askers = there.askers.max(said.askers).max(u32::try_from(there.pops.len()).unwrap_or(u32::MAX));
    }
}
