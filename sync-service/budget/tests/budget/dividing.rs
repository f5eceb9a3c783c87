//! Grants: the ratio, the level and the lease for what a budget is, and the loop they close.

use proptest::prelude::*;
use weir_budget::budget::{Account, BudgetId, Demand, ReplicaDemand};
use weir_budget::divide::{GrantSettings, SharedBudget, TARGET_NS, divide};
use weir_budget::plan::PlanEntry;
use weir_protocol::messages::{AdmitRatio, Grant};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;

use crate::quota;

fn replica(name: &str, milli: u64, askers: u32, age_us: u64) -> ReplicaDemand {
    ReplicaDemand { name: name.into(), demand: Demand { milli, askers }, age_us }
}

fn account(deficit_ns: u64, replicas: Vec<ReplicaDemand>) -> Account {
    Account { deficit_ns, fan_out: 0, charged: 0, now_us: 0, replicas }
}

/// Grant for POPs with demand, under a rule that has nothing but a quota.
fn asking(quota: Quota, account: &Account) -> Grant {
    let id = BudgetId::new("r".into(), vec![1]);
    let entry = PlanEntry::new(id, quota, Sharing::of(quota));
    divide(&SharedBudget { entry: &entry, account, own: None }, "fra", &GrantSettings::default()).asking
}

/// The same for 100/s with a burst of 100, of which `level` tokens are left. Two POPs are asked.
fn grant(level: i64, demand: u64) -> Grant {
    let quota = quota(100, Period::Second, 100);
    let deficit_ns = u64::try_from(100 - level).unwrap() * quota.token_ns();
    asking(quota, &account(deficit_ns, vec![replica("fra", demand * 1_000, 2, 0)]))
}

#[test]
fn the_ratio_is_the_effective_rate_over_the_demand() {
    assert_eq!(grant(30, 1_000).ratio, AdmitRatio::of(1, 10), "at the target: the rate");
    assert_eq!(grant(60, 1_000).ratio, AdmitRatio::of(22, 100), "above it: the surplus in a quarter second");
    assert_eq!(grant(-20, 1_000).ratio, AdmitRatio::of(5, 100), "below it: the debt within a second");
    assert_eq!(grant(-70, 1_000).ratio, AdmitRatio::ZERO);
    assert_eq!(grant(-900, 1_000).ratio, AdmitRatio::ZERO);
    assert_eq!(grant(30, 50).ratio, AdmitRatio::ONE, "less asked for than there is");
    assert_eq!(grant(30, 0).ratio, AdmitRatio::ONE);
}

#[test]
fn a_pop_alone_keeps_its_exact_bucket() {
    let quota = quota(100, Period::Second, 100);
    let deep = account(150 * quota.token_ns(), vec![replica("fra", 9_000_000, 1, 0)]);
    let grant = asking(quota, &deep);
    assert_eq!((grant.ratio, grant.level_milli), (AdmitRatio::ONE, -50_000), "the debt itself, no advance");
    let shared =
        account(150 * quota.token_ns(), vec![replica("fra", 1_000_000, 1, 0), replica("iad", 1_000_000, 1, 0)]);
    assert_eq!(asking(quota, &shared).ratio, AdmitRatio::of(20, 2_000), "two are not alone");
}

#[test]
fn the_demand_of_a_region_that_fell_silent_fades() {
    let quota = quota(100, Period::Second, 100);
    let with_age = |age_us| {
        let replicas = vec![replica("fra", 500_000, 2, 0), replica("iad", 500_000, 2, age_us)];
        asking(quota, &account(70 * quota.token_ns(), replicas)).ratio
    };
    assert_eq!(with_age(350_000), AdmitRatio::of(1, 10), "it reports again within an interval");
    assert_eq!(with_age(425_000), AdmitRatio::of(2, 15), "half of it is left");
    assert_eq!(with_age(500_000), AdmitRatio::of(1, 5), "its window is over");
}

#[test]
fn the_lease_lasts_as_long_as_the_debt() {
    assert_eq!(grant(100, 1).lease_ms, 2_000);
    assert_eq!(grant(-400, 1).lease_ms, 5_000, "a second, and 400 tokens at 100/s");
    assert_eq!(grant(-40_000, 1).lease_ms, 60_000);
}

#[test]
fn the_slowest_quota_keeps_its_digits() {
    let quota = quota(1, Period::Day, 10);
    // The level is at its target, and two POPs are asked for 1/s. One token a day is 1/86400 of that.
    let replicas = vec![replica("fra", 1_000, 2, 0)];
    let grant = asking(quota, &account(9 * quota.token_ns() - TARGET_NS, replicas));
    assert_eq!(grant.ratio, AdmitRatio::of(1, 86_400));
}

proptest! {
    /// Any account gives a grant. A higher level never gives a smaller ratio, and more demand never gives a larger one.
    #[test]
    fn grants_are_monotonous(
        token_ns in 1..1_000_000_u32,
        burst in 1..1_000_000_u32,
        deficit in any::<u64>(),
        less in any::<u64>(),
        milli in any::<u64>(),
        more in any::<u64>(),
    ) {
        let Some(rate) = Rate::new(token_ns, Period::Minute) else { return Ok(()) };
        let Ok(quota) = Quota::new(rate, burst) else { return Ok(()) };
        let grant = |deficit_ns, milli| asking(quota, &account(deficit_ns, vec![replica("fra", milli, 2, 0)]));
        let base = grant(deficit, milli);
        prop_assert!(grant(deficit.saturating_sub(less), milli).ratio >= base.ratio);
        prop_assert!(grant(deficit, milli.saturating_add(more)).ratio <= base.ratio);
        prop_assert!((2_000..=60_000).contains(&base.lease_ms));
        prop_assert!(base.level_milli >= 0);
    }
}
