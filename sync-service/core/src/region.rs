//! One region's side of the budget loop, without its IO: a report comes in and becomes charges, the
//! store's accounts come back and become grants.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_limiter::quota::Quota;
use weir_limiter::time::Time;
use weir_limiter::wire::{Grant, Report};

use crate::budget::{Account, BudgetId, Charge, Count, Demand, SourceId};
use crate::demand::Demands;
use crate::divide::{Terms, debt_milli, divide};

/// What one report says about one budget.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Which budget.
    pub id: BudgetId,
    /// How large it is.
    pub quota: Quota,
    /// What the region is asked for.
    pub demand: Demand,
    /// What the POP's buckets admitted.
    pub counts: Vec<Count>,
}

impl Entry {
    /// The entry as a charge by `pop` in the name of region `member`.
    pub fn charge<'a>(&self, member: &'a str, pop: &'a str) -> Charge<'a> {
        Charge { quota: self.quota, member, demand: self.demand, pop, counts: self.counts.clone() }
    }
}

/// A report's keys as entries: several keys may fall to one budget (a bucket that was made anew).
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// An entry per budget.
    pub entries: Vec<Entry>,
    /// For each key of the report, its entry.
    entry_of_key: Vec<usize>,
}

/// What a region knows between reports.
#[derive(Debug)]
pub struct Region {
    terms: Terms,
    demands: Demands,
}

impl Region {
    /// A region that has heard nothing yet, and grants by `terms`.
    pub fn new(terms: Terms) -> Self {
        Self { terms, demands: Demands::default() }
    }

    /// Takes in a report at `now`: what is to be charged for it.
    pub fn hear(&mut self, now: Time, report: &Report) -> Plan {
        let mut plan = Plan::default();
        let mut known: BTreeMap<(u16, &[u8]), usize> = BTreeMap::new();
        for key in &report.keys {
            // Checked when the report was read; a key without its rule gets no entry and no grant.
            let Some(rule) = report.rules.get(usize::from(key.rule)) else { continue };
            let at = *known.entry((key.rule, &key.value)).or_insert_with(|| {
                let id = BudgetId { rule: rule.name.clone(), value: key.value.clone() };
                let demand = Demand::default();
                plan.entries.push(Entry { id, quota: rule.quota, demand, counts: Vec::new() });
                plan.entries.len() - 1
            });
            let Some(entry) = plan.entries.get_mut(at) else { continue };
            let source = SourceId { epoch: key.epoch, pop: report.pop.clone() };
            entry.demand = self.demands.observe(now, &entry.id, source, key.asked, key.asked_recently);
            entry.counts.push(Count {
                epoch: key.epoch,
                admitted: key.admitted,
                unconfirmed: key.unconfirmed,
                span_us: u64::from(key.span_ms) * 1_000,
            });
            plan.entry_of_key.push(at);
        }
        plan
    }

    /// What the POP is granted once the plan's entries are charged: a grant per entry.
    pub fn grant(&mut self, plan: &Plan, accounts: &[Account]) -> Vec<Grant> {
        let charged = plan.entries.iter().zip(accounts);
        let grants = charged.map(|(entry, account)| {
            self.demands.note_debt(&entry.id, debt_milli(entry.quota, account));
            divide(entry.quota, account, &self.terms)
        });
        grants.collect()
    }

    /// Budgets heard of lately, how many of those are in debt, and their debts' sum in thousandths
    /// of a token.
    pub fn debts(&mut self, now: Time) -> (usize, usize, u64) {
        self.demands.debts(now)
    }
}

impl Plan {
    /// The grants of entries as grants of the report's keys, in its order.
    pub fn of_keys(&self, grants: &[Grant]) -> Vec<Grant> {
        self.entry_of_key.iter().filter_map(|at| grants.get(*at).copied()).collect()
    }
}
