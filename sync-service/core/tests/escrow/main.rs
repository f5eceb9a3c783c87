//! Strict budgets: what an acquire does, that no more than the quota is ever spent, and that what there is
//! can be spent.

mod acquiring;
mod held;
mod in_flight;
mod liveness;
mod log;
mod overshoot;
mod pop;
mod sliding;
mod take;
mod turns;
mod window;
mod windows;

use weir_budget::budget::BudgetId;
use weir_budget::escrow::{AcquireRequest, Claim};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::refill_policy::RefillPolicy;

const SECOND_US: u64 = 1_000_000;
/// The lease in these tests, in microseconds.
const LEASE_US: u64 = 2 * SECOND_US;

fn quota(count: u32, period: Period, burst: u32) -> Quota {
    Quota::new(Rate::new(count, period).unwrap(), burst).unwrap()
}

fn acquire(quota: Quota, claims: &[Claim]) -> AcquireRequest {
    let id = BudgetId::new("login".into(), vec![1]);
    AcquireRequest {
        id,
        quota,
        lease_us: LEASE_US,
        refill_policy: RefillPolicy::Continuous,
        window: None,
        claims: claims.to_vec(),
    }
}
