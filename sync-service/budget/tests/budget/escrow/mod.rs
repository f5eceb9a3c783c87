//! Strict budgets: what an acquire does, that no more than the quota is ever spent, and that all of it can be spent.

mod cases;
mod held;
mod pop;
mod random;
mod turns;
mod windows;

use weir_budget::budget::BudgetId;
use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, Escrow};
use weir_protocol::calendar::{Calendar, DAY_US};
use weir_protocol::messages::Leased;
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;

use crate::{SECOND_US, quota};

/// Length of a lease without windows, in microseconds.
const LEASE_US: u64 = 2 * SECOND_US;
/// Time for which the tokens of such a lease count as outstanding, in microseconds.
const HELD_US: u64 = LEASE_US + LEASE_US / 64;
/// Begin of a day, at which tests begin.
const DAY: u64 = 20_000 * DAY_US;
const MINUTE: Calendar = Calendar::every(60, 0);

fn claim(epoch: u64, admitted: u64, ahead: u32) -> Claim {
    Claim::of(epoch, admitted, ahead)
}

/// A strict budget.
#[derive(Clone)]
struct Store {
    escrow: Escrow,
    refill_policy: RefillPolicy,
    quota: Quota,
}

impl Store {
    fn new(refill_policy: RefillPolicy, quota: Quota) -> Self {
        Self { escrow: Escrow::default(), refill_policy, quota }
    }

    fn request(&self, claims: &[Claim]) -> AcquireRequest {
        let (id, claims) = (BudgetId::new("login".into(), vec![1]), claims.to_vec());
        let lease_us = if self.refill_policy.windows().is_some() { 600 * SECOND_US } else { LEASE_US };
        let (quota, refill_policy) = (self.quota, self.refill_policy);
        AcquireRequest { id, quota, lease_us, refill_policy, window: None, claims }
    }

    fn acquire(&mut self, at_us: u64, pop: &str, claims: &[Claim]) -> AcquireResult {
        let request = self.request(claims);
        self.escrow.acquire(DAY + at_us, pop, &request)
    }

    /// Answer to one claim of POP "a".
    fn claim(&mut self, at_us: u64, claim: Claim) -> Leased {
        self.acquire(at_us, "a", &[claim]).leases[0]
    }

    /// Tokens given to one claim of POP "a".
    fn given(&mut self, at_us: u64, claim: Claim) -> u64 {
        self.acquire(at_us, "a", &[claim]).given
    }

    /// Whole tokens that are missing.
    fn lacking(&self) -> u64 {
        self.escrow.deficit_ns().div_ceil(self.request(&[]).token_ns())
    }
}
