//! POPs, weir-sync and budgets in one process and in simulated time, where no host or store is wanted.

mod retry_after;
mod strict;

use weir_budget::budget::BudgetId;
use weir_budget::escrow::{AcquireRequest, Claim, Escrow};
use weir_protocol::messages::{Allowance, Message as _, Reply, Report, Settled};
use weir_protocol::time::Time;
use weir_rules::request::{Attribute, Request};

const SECOND_US: u64 = 1_000_000;

/// The one client.
struct Client;

impl Request for Client {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        (*attribute == Attribute::SourceAddress).then(|| b"192.0.2.1:80".to_vec())
    }
}

fn at(us: u64) -> Time {
    Time::from_nanos((1_000 * SECOND_US + us) * 1_000)
}

/// The reply of a strict rule's budget, at `us` by the store's clock, to `report`.
fn answer(escrow: &mut Escrow, report: &Report, us: u64) -> Vec<u8> {
    let claims: Vec<_> = report.keys.iter().map(|key| Claim::of(report.epoch(key), key.admitted, key.ahead)).collect();
    let mut grants = vec![];
    if let Some(rule) = report.rules.first() {
        let id = BudgetId::new(rule.name.clone(), vec![1]);
        let (lease_us, refill_policy) = (2 * SECOND_US, rule.sharing.refill_policy);
        let acquire = AcquireRequest { id, quota: rule.quota, lease_us, refill_policy, window: None, claims };
        let acquired = escrow.acquire(us, &report.pop, &acquire);
        grants.extend(acquired.leases.into_iter().map(Allowance::Leased));
    }
    Reply { sequence: report.sequence, pops: 3, settled: Settled::All, grants, ..Reply::default() }.encode()
}
