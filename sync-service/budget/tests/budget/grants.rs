//! Grants: ratio, level and lease for what a budget is; floors, remembered fan-out and watch level.

use proptest::prelude::*;
use weir_budget::budget::{Account, BudgetId, Demand, PlanEntry, ReplicaDemand};
use weir_budget::divide::{Division, FloorCapacity, GrantSettings, TARGET_NS, WatchLevel, divide};
use weir_protocol::messages::{AdmitRatio, Allowance, Grant};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::{Floor, Sharing};

fn quota() -> Quota {
    Quota::new(Rate::new(100, Period::Second).unwrap(), 100).unwrap()
}

fn with_floors(floors: &[(&str, u8)]) -> Sharing {
    let floor = |&(region, percent): &(&str, u8)| Floor { region: region.into(), percent };
    Sharing { floors: floors.iter().map(floor).collect(), ..Sharing::of(quota()) }
}

/// A budget of 100/s with a burst of 100, of which `level` tokens are left. Each replica has this demand a
/// second, at two POPs.
fn account(level: i64, replicas: &[(&str, u64)]) -> Account {
    let replica = |&(name, demand): &(&str, u64)| ReplicaDemand {
        name: name.into(),
        demand: Demand { milli: demand * 1_000, askers: 2 * u32::from(demand > 0) },
        age_us: 0,
    };
    let deficit_ns = u64::try_from(100 - level).unwrap() * quota().token_ns();
    Account { deficit_ns, fan_out: 0, charged: 0, now_us: 0, replicas: replicas.iter().map(replica).collect() }
}

fn entry(quota: Quota, sharing: &Sharing) -> PlanEntry {
    PlanEntry::new(BudgetId::new("r".into(), vec![1]), quota, sharing.clone())
}

fn divided(entry: &PlanEntry, account: &Account, own: Option<FloorCapacity>, region: &str) -> Division {
    divide(entry, account, own, region, &GrantSettings::default())
}

fn division(sharing: &Sharing, account: &Account, region: &str) -> Division {
    divided(&entry(quota(), sharing), account, None, region)
}

fn ratio(sharing: &Sharing, account: &Account, region: &str) -> AdmitRatio {
    division(sharing, account, region).asking.ratio
}

// I5
#[test]
fn another_regions_debt_does_not_count_within_a_floor() {
    let sharing = with_floors(&[("eu", 30)]);
    let mut account = account(-300, &[("us", 800)]);
    account.replicas[0].demand.askers = 1;
    let elsewhere = |region| division(&sharing, &account, region).elsewhere;
    assert_eq!((elsewhere("eu").ratio, elsewhere("eu").level_milli), (AdmitRatio::ONE, 0));
    assert_eq!((elsewhere("us").ratio, elsewhere("us").level_milli), (AdmitRatio::ONE, -300_000));
}

// I4
#[test]
fn a_client_at_many_pops_gets_part_of_the_burst_at_each() {
    let sharing = Sharing { local_burst: 60, ..Sharing::of(quota()) };
    let asked = |fan_out, askers: u32, own_milli| {
        let mut account = account(100, &[("eu", 10)]);
        (account.fan_out, account.replicas[0].demand.askers) = (fan_out, askers);
        let entry = PlanEntry { own_milli, ..entry(quota(), &sharing) };
        let division = divided(&entry, &account, None, "eu");
        (at_once(&division.asking), at_once(&division.elsewhere))
    };
    let bursts = |fan_out, askers| asked(fan_out, askers, 0);
    assert_eq!(bursts(0, 1), (100, 60), "alone: the whole; the next one may hold a local burst");
    assert_eq!(bursts(0, 5), (60, 60));
    assert_eq!(asked(6, 1, 10_000), (100, 10), "here alone");
    assert_eq!(bursts(6, 1), (10, 10), "elsewhere");
    assert_eq!(bursts(6, 0), (10, 10), "nowhere now: it may come back to all of them");
    assert_eq!(bursts(6, 3), (20, 10), "no more shares than there are askers");
    assert_eq!(bursts(6, 20), (10, 10));
    assert_eq!(bursts(1_000, 2_000), (2, 2), "a few requests at least");
}

/// Number of requests of one token that a POP with this grant admits at once.
fn at_once(grant: &Grant) -> u32 {
    (grant.burst - 1) / grant.divisor + 1
}

fn watch_level(level: i64, demand: u64, fan_out: u32) -> WatchLevel {
    let account = Account { fan_out, ..account(level, &[("eu", demand)]) };
    division(&Sharing::of(quota()), &account, "eu").watch_level
}

// I4
#[test]
fn a_key_with_high_demand_or_low_level_is_hot() {
    assert_eq!(watch_level(100, 50, 0), WatchLevel::Warm);
    assert_eq!(watch_level(100, 51, 0), WatchLevel::Hot);
    assert_eq!(watch_level(50, 0, 0), WatchLevel::Warm);
    assert_eq!(watch_level(49, 1, 0), WatchLevel::Hot);
    assert_eq!(watch_level(49, 0, 0), WatchLevel::Resting, "without demand");
    assert_eq!(watch_level(100, 0, 2), WatchLevel::Resting);
    assert_eq!(watch_level(100, 51, 2), WatchLevel::Hot);
}

// I4
#[test]
fn a_seldom_replica_counts_for_the_watch_level_only() {
    let mut account = account(10, &[("eu", 40), ("us", 40)]);
    account.replicas[1].age_us = 2_000_000;
    account.deficit_ns = 0;
    let division = division(&Sharing::of(quota()), &account, "eu");
    assert_eq!((division.watch_level, division.asking.ratio), (WatchLevel::Hot, AdmitRatio::ONE));
    account.replicas[1].age_us = 2_600_000;
    assert_eq!(self::division(&Sharing::of(quota()), &account, "eu").watch_level, WatchLevel::Warm);
}

#[test]
fn warm_keys_get_no_grant_and_resting_ones_the_longest_lease() {
    let sharing = Sharing::of(quota());
    assert_eq!(division(&sharing, &account(100, &[("eu", 10)]), "eu").allowance(), Allowance::Warm);
    let resting = Account { fan_out: 4, ..account(100, &[("eu", 10)]) };
    let division = division(&sharing, &resting, "eu");
    assert_eq!(division.allowance(), Allowance::Hot(division.asking));
    assert_eq!((division.asking.lease_ms, division.elsewhere.lease_ms), (60_000, 60_000));
}

/// Grant for POPs with demand of a budget that lacks `deficit_ns`, for replicas with this demand in thousandths of a
/// token a second, POPs with demand, and age in microseconds.
fn asking(quota: Quota, deficit_ns: u64, replicas: &[(&str, u64, u32, u64)]) -> Grant {
    let replica = |&(name, milli, askers, age_us): &(&str, u64, u32, u64)| ReplicaDemand {
        name: name.into(),
        demand: Demand { milli, askers },
        age_us,
    };
    let replicas = replicas.iter().map(replica).collect();
    let account = Account { deficit_ns, fan_out: 0, charged: 0, now_us: 0, replicas };
    divided(&entry(quota, &Sharing::of(quota)), &account, None, "fra").asking
}

/// The same for 100/s with a burst of 100, of which `level` tokens are left. Two POPs are asked.
fn grant(level: i64, demand: u64) -> Grant {
    asking(quota(), lacking(level), &[("fra", demand * 1_000, 2, 0)])
}

fn lacking(level: i64) -> u64 {
    u64::try_from(100 - level).unwrap() * quota().token_ns()
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
fn the_lease_lasts_as_long_as_the_debt() {
    assert_eq!(grant(100, 1).lease_ms, 2_000);
    assert_eq!(grant(-400, 1).lease_ms, 5_000, "a second, and 400 tokens at 100/s");
    assert_eq!(grant(-40_000, 1).lease_ms, 60_000);
}

#[test]
fn the_slowest_quota_keeps_its_digits() {
    let slow = crate::quota(1, Period::Day, 10);
    // The level is at its target, and two POPs are asked for 1/s. One token a day is 1/86400 of that.
    let grant = asking(slow, 9 * slow.token_ns() - TARGET_NS, &[("fra", 1_000, 2, 0)]);
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
        let grant = |deficit_ns, milli| asking(quota, deficit_ns, &[("fra", milli, 2, 0)]);
        let base = grant(deficit, milli);
        prop_assert!(grant(deficit.saturating_sub(less), milli).ratio >= base.ratio);
        prop_assert!(grant(deficit, milli.saturating_add(more)).ratio <= base.ratio);
        prop_assert!((2_000..=60_000).contains(&base.lease_ms));
        prop_assert!(base.level_milli >= 0);
    }

    /// No budget gives out more than it has, or than the floors. Each region gets its floor, or all that it asks for.
    /// Without floors all regions get the same ratio.
    // I5
    #[test]
    fn parts_add_up(
        level in -2_000..100_i64, demands in prop::collection::vec(0..5_000_u64, 1..6),
        percents in prop::collection::vec(0..=20_u8, 6),
    ) {
        let names = ["r0", "r1", "r2", "r3", "r4", "r5"];
        let replicas: Vec<_> = names.iter().copied().zip(demands.iter().copied()).collect();
        let floors: Vec<_> = names.iter().copied().zip(percents).filter(|(_, percent)| *percent > 0).collect();
        let (sharing, account) = (with_floors(&floors), account(level, &replicas));
        prop_assume!(demands.iter().filter(|demand| **demand > 0).count() > 0);
        let (mut given, mut own) = (0.0, 0.0);
        for &(name, demand) in &replicas {
            let ratio = ratio(&sharing, &account, name);
            #[allow(clippy::cast_precision_loss, reason = "to compare with")]
            let (demand, part) = (demand as f64, demand as f64 * f64::from(ratio.bits()) / f64::from(1 << 30));
            let floor = demand.min(f64::from(sharing.floor(name)));
            prop_assert!(part >= floor - 0.001, "{name} gets {part} and not {floor}");
            own += floor;
            given += part;
            let plain = self::ratio(&with_floors(&[]), &account, name);
            prop_assert_eq!(plain, self::ratio(&with_floors(&[]), &account, "elsewhere"));
        }
        #[allow(clippy::cast_precision_loss, reason = "to compare with")]
        let beyond = level as f64 - 30.0;
        let effective = (100.0 + if beyond > 0.0 { 4.0 * beyond } else { beyond }).max(0.0);
        prop_assert!(given <= f64::max(effective, own) + 0.001, "{given} of {effective}, {own} of it floors");
    }
}
