//! A weir-sync of one POP, in simulated time: the real region, budgets and strict budgets.

use std::collections::HashMap;

use weir_budget::alone::Share;
use weir_budget::budget::{Budget, BudgetId};
use weir_budget::divide::Terms;
use weir_budget::region::Region;
use weir_budget::strict::{Strict, StrictId};
use weir_limiter::time::Time;
use weir_limiter::wire::{Message, Reply, Report};

/// The region's name, and the only name that budgets are charged by.
const REGION: &str = "eu";

/// A weir-sync and its store.
pub(super) struct Budgets {
    region: Region,
    shared: HashMap<BudgetId, Budget>,
    strict: HashMap<StrictId, Strict>,
    /// What its wall clock reads at time zero, in microseconds since 1970.
    unix_us: u64,
}

impl Budgets {
    pub(super) fn new(unix_us: u64) -> Self {
        let region = Region::new(REGION, Terms::default());
        Self { region, shared: HashMap::new(), strict: HashMap::new(), unix_us }
    }

    /// The encoded reply to a report.
    pub(super) fn answer(&mut self, report: &Report, now: Time) -> Vec<u8> {
        let now_us = self.unix_us + now.as_nanos() / 1_000;
        let mut plan = self.region.hear(now, report);
        plan.draws.date(now_us);
        let accounts: Vec<_> = plan
            .entries
            .iter()
            .map(|entry| {
                let budget = self.shared.entry(entry.id.clone()).or_default();
                budget.charge(now_us, &entry.charge(REGION, &report.pop))
            })
            .collect();
        let drawn: Vec<_> = plan
            .draws
            .list()
            .iter()
            .map(|draw| {
                let strict = self.strict.entry(Strict::id(draw)).or_insert_with(|| Strict::of(draw));
                strict.draw(now_us, &report.pop, draw)
            })
            .collect();
        let grants = plan.of_keys(&self.region.grant(now, &plan.entries, &accounts), &drawn);
        let (rules, pushed) = self.region.pushes(now, report);
        let pops = Share::new(1, 1).fleet();
        let sequence = report.sequence;
        Reply { sequence, pops, settled: true, grants, rules, pushed, ..Reply::default() }.encode()
    }
}
