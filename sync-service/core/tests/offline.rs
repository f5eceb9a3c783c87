//! A region whose store is out of reach: what it grants, and what it lets others know.

use weir_budget::budget::Budget;
use weir_budget::divide::GrantSettings;
use weir_budget::offline::Share;
use weir_budget::plan::Plan;
use weir_budget::region::Region;
use weir_protocol::messages::{Allowance, BudgetRule, Key, Report};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;
use weir_protocol::time::Time;

fn quota() -> Quota {
    Quota::new(Rate::new(10, Period::Second).unwrap(), 100).unwrap()
}

/// A report of `pop`, which admitted all that it was asked for and has had none of it confirmed.
fn report(pop: &str, admitted: u64) -> Report {
    let rules = vec![BudgetRule { name: "r".into(), quota: quota(), sharing: Sharing::of(quota()) }];
    let key = Key {
        value: vec![1],
        epoch: 1,
        admitted,
        unconfirmed: admitted,
        asked: admitted,
        asked_recently: admitted,
        ..Key::default()
    };
    Report { pop: pop.into(), worker: 1, sequence: 1, table: 1, rules, keys: vec![key], ..Report::default() }
}

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn plan(region: &mut Region, report: &Report) -> Plan {
    region.observe(at(1_000), report)
}

#[test]
fn other_regions_hear_of_a_hot_key_by_its_whole_quota() {
    let mut region = Region::new("eu/1", GrantSettings::default());
    let said = report("fra1", 40);
    let plan = plan(&mut region, &said);
    let allowance = region.grant_offline(at(1_000), &said.pop, &plan.entries[0], Share::new(1, 2));
    assert_eq!(allowance.grant().unwrap().burst, 50);
    let hot = region.hot.to_list(at(1_000));
    assert_eq!(hot[0].quota, quota());
}

// I5
#[test]
fn pops_of_a_region_share_its_part_by_one_ratio() {
    let mut region = Region::new("eu/1", GrantSettings::default());
    let mut last = Allowance::Warm;
    for pop in ["fra1", "fra2"] {
        let said = report(pop, 20);
        let plan = plan(&mut region, &said);
        last = region.grant_offline(at(1_000), pop, &plan.entries[0], Share::new(2, 4));
    }
    // 40 of 50 are gone, and both POPs are asked for 40 a second: x is 4 above the target, of which four times
    // as much is given out, beside the 5 of the rate.
    let Allowance::Hot(grant) = last else { panic!("not hot") };
    let ratio = f64::from(grant.ratio.bits()) / f64::from(1 << 30);
    assert!((ratio - 21.0 / 80.0).abs() < 1e-6, "{ratio}");
    assert_eq!(grant.level_milli, 10_000);
}

// I7
#[test]
fn what_is_owed_alone_is_dropped_when_the_store_answers() {
    let mut region = Region::new("eu/1", GrantSettings::default());
    let said = report("fra1", 80);
    let plan = plan(&mut region, &said);
    region.grant_offline(at(1_000), &said.pop, &plan.entries[0], Share::new(1, 2));
    assert_eq!(region.owed(at(1_000))["r"].sum_milli, 30_000);
    // Somebody else has taken 30.
    let mut budget = Budget::default();
    let mut other = plan.entries[0].clone();
    (other.counts[0].admitted, other.counts[0].unconfirmed) = (30, 30);
    budget.charge(1_000_000, &other.charge("iad/a", "iad1"));
    let account = budget.charge(1_000_000, &plan.entries[0].charge("fra/a", "fra1"));
    region.grant(at(1_000), &plan.entries, &[account]);
    let owed = region.owed(at(1_000))["r"];
    assert_eq!((owed.sum_milli, owed.deepest_milli, owed.most_milli), (10_000, 10_000, 30_000));
}
