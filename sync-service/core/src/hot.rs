//! Hot keys: which they are, and who has to be told.
//!
//! A key is hot when the fleet asks for a large part of its quota, or its level has fallen: then every
//! POP must hold an allowance for it before its client arrives there. Regions hear of each other's hot
//! keys through the store, and tell their POPs with the next reply.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_limiter::quota::Quota;
use weir_limiter::time::{SECOND_NS, Time};
use weir_limiter::wire::{Grant, KEYS_MAX, Pushed, Report};

use crate::budget::{Account, BudgetId};

/// The most hot keys a region keeps.
pub const HOT_MAX: usize = 4_096;
/// How long a key stays on the shared list after a region last named it, in microseconds.
pub const LISTED_US: u64 = 1_000_000;
/// A hot key that no account confirms for so long, in nanoseconds, is not pushed any more.
const HOT_NS: u64 = SECOND_NS;
/// A POP that holds the same grant is told again after this, in nanoseconds: well within its lease.
const AGAIN_NS: u64 = SECOND_NS;
/// A grant is the same while its ratio differs by less than one part in this many.
const SAME_PART: u32 = 16;

/// A key is hot when it is asked for more than a half of its rate, or its level is below a half of
/// its burst.
const HOT_PART: u64 = 2;

/// Whether the fleet must hear of a key, asked for `demand_milli` thousandths of a token a second.
pub fn is_hot(quota: Quota, account: &Account, demand_milli: u128) -> bool {
    let rate_milli = u128::from(SECOND_NS) * 1_000 / u128::from(quota.token_ns());
    demand_milli * u128::from(HOT_PART) > rate_milli || account.deficit_ns * HOT_PART > quota.fill_ns()
}

/// A hot key as regions tell each other of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HotKey {
    /// Whose budget.
    pub id: BudgetId,
    /// Nanoseconds in which a token refills.
    pub token_ns: u64,
    /// Tokens that a full bucket holds.
    pub burst: u32,
}

/// The list of hot keys that regions share through a store.
#[derive(Debug, Default)]
pub struct HotList {
    /// Until when each key is on it, on the store's clock in microseconds.
    until_us: BTreeMap<HotKey, u64>,
}

impl HotList {
    /// Puts a region's hot keys on the list at `now_us`; returns all that are on it, at most
    /// [`HOT_MAX`]. Beyond that, those that leave first are dropped.
    pub fn exchange(&mut self, mine: &[HotKey], now_us: u64) -> Vec<HotKey> {
        self.until_us.extend(mine.iter().map(|key| (key.clone(), now_us.saturating_add(LISTED_US))));
        self.until_us.retain(|_, until| *until > now_us);
        while self.until_us.len() > HOT_MAX {
            let first = self.until_us.iter().min_by_key(|(_, until)| **until);
            let Some(first) = first.map(|(key, _)| key.clone()) else { break };
            self.until_us.remove(&first);
        }
        self.until_us.keys().cloned().collect()
    }
}

/// The hot keys a region knows, and what its POPs hold of them.
#[derive(Debug, Default)]
pub struct HotKeys {
    keys: BTreeMap<BudgetId, Hot>,
    told: BTreeMap<String, BTreeMap<BudgetId, Told>>,
}

#[derive(Clone, Copy, Debug)]
struct Hot {
    quota: Quota,
    grant: Grant,
    at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    ratio: u32,
    at: Time,
}

impl HotKeys {
    /// Notes what a budget's newest account says: a key that is hot is kept, one that is not goes.
    pub fn note(&mut self, id: &BudgetId, quota: Quota, grant: Grant, is_hot: bool, now: Time) {
        if !is_hot {
            self.keys.remove(id);
        } else if self.keys.len() < HOT_MAX || self.keys.contains_key(id) {
            self.keys.insert(id.clone(), Hot { quota, grant, at: now });
        }
    }

    /// The hot keys whose accounts are fresh, for the other regions.
    pub fn fresh(&self, now: Time) -> Vec<HotKey> {
        let fresh = self.keys.iter().filter(|(_, hot)| now.nanos_since(hot.at) < HOT_NS);
        fresh
            .map(|(id, hot)| HotKey {
                id: id.clone(),
                token_ns: hot.quota.token_ns(),
                burst: hot.quota.burst(),
            })
            .collect()
    }

    /// Whether the account of `id` is younger than `age_ns`.
    pub fn is_known(&self, id: &BudgetId, age_ns: u64, now: Time) -> bool {
        self.keys.get(id).is_some_and(|hot| now.nanos_since(hot.at) < age_ns)
    }

    /// What the sender of `report` has to be told beside what it asked for: rule names, and grants.
    pub fn pushes(&mut self, report: &Report, now: Time) -> (Vec<String>, Vec<Pushed>) {
        self.forget(now);
        let asked = |id: &BudgetId| {
            report.keys.iter().any(|key| {
                key.value == id.value
                    && report.rules.get(usize::from(key.rule)).is_some_and(|rule| rule.name == id.rule)
            })
        };
        let told = self.told.entry(report.pop.clone()).or_default();
        let (mut rules, mut pushed): (Vec<String>, Vec<Pushed>) = (Vec::new(), Vec::new());
        for (id, hot) in self.keys.iter().filter(|(id, _)| !asked(id)).take(KEYS_MAX) {
            let ratio = hot.grant.ratio.bits();
            let same = told.get(id).is_some_and(|told| {
                now.nanos_since(told.at) < AGAIN_NS
                    && told.ratio.abs_diff(ratio) <= told.ratio.min(ratio) / SAME_PART
            });
            if same {
                continue;
            }
            told.insert(id.clone(), Told { ratio, at: now });
            let rule = rules.iter().position(|rule| *rule == id.rule).unwrap_or_else(|| {
                rules.push(id.rule.clone());
                rules.len() - 1
            });
            let Ok(rule) = u16::try_from(rule) else { break };
            pushed.push(Pushed { rule, value: id.value.clone(), grant: hot.grant });
        }
        (rules, pushed)
    }

    fn forget(&mut self, now: Time) {
        self.keys.retain(|_, hot| now.nanos_since(hot.at) < HOT_NS);
        for told in self.told.values_mut() {
            told.retain(|_, told| now.nanos_since(told.at) < 2 * AGAIN_NS);
        }
        self.told.retain(|_, told| !told.is_empty());
    }
}
