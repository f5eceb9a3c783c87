//! A weir-sync of one POP, in simulated time: the real hub, budgets and strict budgets.

use std::collections::HashMap;

use weir_budget::budget::{Budget, BudgetId, PlanEntry};
use weir_budget::divide::GrantSettings;
use weir_budget::escrow::{AcquireRequest, Escrow, EscrowId};
use weir_budget::hub::{Hub, HubSettings, StoreReplies};
use weir_budget::report_limits::ReporterKind;
use weir_protocol::messages::{Message, Report};
use weir_protocol::time::{SECOND_NS, Time};

/// The region's name, and the only name that budgets are charged by.
const REGION: &str = "eu";

/// A weir-sync and its store.
pub(super) struct Budgets {
    hub: Hub,
    shared: HashMap<BudgetId, Budget>,
    strict: HashMap<EscrowId, Escrow>,
    /// The time of its wall clock at time zero, in microseconds since 1970.
    unix_us: u64,
}

impl Budgets {
    pub(super) fn new(unix_us: u64) -> Self {
        let (replica, terms, pop_ttl_ns) = (REGION.to_owned(), GrantSettings::default(), 10 * SECOND_NS);
        let hub = Hub::new(HubSettings { replica, terms, pop_ttl_ns, pops_expected: 0 });
        Self { hub, shared: HashMap::new(), strict: HashMap::new(), unix_us }
    }

    /// The encoded reply to a report.
    pub(super) fn answer(&mut self, report: &Report, now: Time) -> Vec<u8> {
        let now_us = self.unix_us + now.as_nanos() / 1_000;
        let pending = self.hub.report(ReporterKind::Pop, now, now_us, report.clone());
        let charge = |entry: &PlanEntry| {
            let budget = self.shared.entry(entry.id.clone()).or_default();
            Ok(budget.charge(now_us, &entry.charge(REGION, &pending.report.pop)))
        };
        let accounts = pending.entries().iter().map(charge).collect();
        let acquire = |acquire: &AcquireRequest| {
            let strict = self.strict.entry(acquire.escrow()).or_default();
            Ok(strict.acquire(now_us, &pending.report.pop, acquire))
        };
        let acquired = pending.acquires().iter().map(acquire).collect();
        let answers: StoreReplies<()> = StoreReplies { accounts, acquired, pops: Ok(1) };
        self.hub.settle(now, 0, pending, answers).reply.encode()
    }
}
