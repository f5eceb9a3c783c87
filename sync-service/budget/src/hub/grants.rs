//! Turns the store's accounts into grants: the state of a region's keys between reports.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_protocol::messages::Allowance;
use weir_protocol::time::Time;

use crate::budget::{Account, BudgetId};
use crate::demand::Demands;
use crate::divide::{Division, GrantSettings, WatchLevel, divide, region_of};
use crate::floors::Floors;
use crate::hot::{HotKey, HotKeys};
use crate::offline::{LastState, OfflineBudgets, RuleDebts, Share, UnfilledBudgets};
use crate::plan::PlanEntry;

/// State of a region's keys between reports.
#[derive(Debug)]
pub(super) struct Grants {
    replica: String,
    pub(super) region: String,
    pub(super) terms: GrantSettings,
    pub(super) demands: Demands,
    pub(super) hot: HotKeys,
    pub(super) floors: Floors,
    pub(super) unfilled: UnfilledBudgets,
    offline: OfflineBudgets,
}

impl Grants {
    pub(super) fn new(replica: &str, terms: GrantSettings) -> Self {
        Self {
            replica: replica.into(),
            region: region_of(replica).into(),
            terms,
            demands: Demands::default(),
            hot: HotKeys::default(),
            floors: Floors::default(),
            unfilled: UnfilledBudgets::default(),
            offline: OfflineBudgets::default(),
        }
    }

    pub(super) fn of_account(&mut self, now: Time, entry: &PlanEntry, account: &Account) -> Allowance {
        self.offline.end(&entry.id);
        // This replica is in the account, too.
        let is_another = |name: &str| *name != *self.replica && region_of(name) == self.region;
        if account.replicas.len() > 1 && account.replicas.iter().any(|replica| is_another(&replica.name)) {
            self.demands.observe_others(now);
        }
        self.allow(now, entry, entry, account)
    }

    /// Grant at `now` for an entry that the store did not charge (see [`crate::offline`]).
    pub(super) fn offline(&mut self, now: Time, pop: &str, whole: &PlanEntry, share: Share) -> Allowance {
        let entry = part(whole, share);
        let last = self.unfilled.last(&entry.id);
        let account = self.offline.charge(now, &entry, last, &self.replica, pop);
        self.allow(now, whole, &entry, &account)
    }

    /// Grant at `now` for an entry that its POP may not claim now, from this region's `share`. Nothing of it is stored.
    pub(super) fn uncharged(&self, now: Time, pop: &str, whole: &PlanEntry, share: Share) -> Allowance {
        let entry = part(whole, share);
        let last = self.unfilled.last(&entry.id);
        self.divide(&entry, &OfflineBudgets::evaluate(now, &entry, last, &self.replica, pop)).allowance()
    }

    pub(super) fn divide(&self, entry: &PlanEntry, account: &Account) -> Division {
        divide(entry, account, None, &self.region, &self.terms)
    }

    /// Allowance for an entry after `account` was charged. For a region that is offline, `entry` has its share of
    /// the quota; other regions know a hot key by `whole`.
    fn allow(&mut self, now: Time, whole: &PlanEntry, entry: &PlanEntry, account: &Account) -> Allowance {
        self.unfilled.record(&entry.id, LastState::of(entry, account, now));
        let own = self.floors.charge(now, entry, entry.sharing.floor(&self.region), account);
        let division = divide(entry, account, own, &self.region, &self.terms);
        self.hot.record(whole, &division, now);
        let is_in_debt = account.deficit_ns > entry.quota.fill_ns();
        self.demands.record(&entry.id, is_in_debt, division.watch_level == WatchLevel::Warm);
        division.allowance()
    }

    pub(super) fn forget(&mut self, id: &BudgetId) {
        self.hot.forget(id);
        self.unfilled.forget(id);
        self.offline.end(id);
        self.floors.forget(id);
    }

    pub(super) fn owed(&self, now: Time) -> BTreeMap<String, RuleDebts> {
        self.unfilled.owed(now)
    }

    /// Entries that charge nothing, to read budgets: of the fleet's hot keys and of the keys that rest here, those
    /// whose accounts this region has not seen recently.
    pub(super) fn peeks(&mut self, now: Time, fleet: &[HotKey]) -> Vec<PlanEntry> {
        let unseen = self.hot.to_look_at(now, fleet, self.terms.interval_ns);
        let entry = |HotKey { id, quota, sharing, .. }| {
            let demand = self.demands.current(now, &id);
            PlanEntry { demand, ..PlanEntry::new(id, quota, sharing) }
        };
        unseen.into_iter().map(entry).collect()
    }
}

fn part(whole: &PlanEntry, share: Share) -> PlanEntry {
    let (quota, sharing) = (share.of(whole.quota), share.of_sharing(&whole.sharing, whole.quota));
    PlanEntry { quota, sharing, ..whole.clone() }
}
