//! Keys of strict rules among others in one report.

use weir_budget::budget::Budget;
use weir_budget::divide::GrantSettings;
use weir_budget::escrow::{Claim, Escrow, NO_LEASE};
use weir_budget::region::Region;
use weir_protocol::messages::{Allowance, BudgetRule, Key, Leased, Report};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;
use weir_protocol::time::Time;

fn quota() -> Quota {
    Quota::new(Rate::new(1, Period::Day).unwrap(), 100).unwrap()
}

fn rule(name: &str, strict: bool) -> BudgetRule {
    BudgetRule { name: name.into(), quota: quota(), sharing: Sharing { strict, ..Sharing::of(quota()) } }
}

fn key(rule: u16, value: u8, epoch: u32, ahead: u32) -> Key {
    Key { rule, value: vec![value], epoch, ahead, ..Key::default() }
}

/// Keys of a bounded rule and of two strict ones, mixed. One strict key is there twice, in two epochs.
fn report() -> Report {
    let rules = vec![rule("bounded", false), rule("login", true), rule("payment", true)];
    let keys = vec![
        key(1, 1, 1, 10),
        key(0, 1, 1, 0),
        key(2, 1, 1, 20),
        key(0, 2, 1, 0),
        key(1, 1, 2, 30),
        key(1, 2, 1, 40),
    ];
    Report { pop: "fra1".into(), worker: 1, sequence: 1, table: 7, rules, keys, ..Report::default() }
}

#[test]
fn strict_keys_are_drawn_and_the_others_charged() {
    let mut region = Region::new("eu/1", GrantSettings::default());
    let plan = region.observe(Time::ZERO, &report());
    assert_eq!(plan.entries.iter().map(|entry| entry.id.value[0]).collect::<Vec<_>>(), [1, 2]);
    let drawn: Vec<_> =
        plan.draws.iter().map(|draw| (draw.id.rule.as_str(), draw.id.value[0], draw.claims.len())).collect();
    assert_eq!(drawn, [("login", 1, 2), ("payment", 1, 1), ("login", 2, 1)]);
    let first = &plan.draws[0];
    assert_eq!(first.claims[0], Claim::of(7 << 32 | 1, 0, 10));
    assert_eq!((first.quota, first.lease_us, first.leased_us()), (quota(), 2_000_000, 2_000_000));
}

#[test]
fn every_key_is_answered_in_the_reports_order() {
    let mut region = Region::new("eu/1", GrantSettings::default());
    let plan = region.observe(Time::ZERO, &report());
    let accounts: Vec<_> =
        plan.entries.iter().map(|entry| Budget::default().charge(1, &entry.charge("fra", "fra1"))).collect();
    let grants = region.grant(Time::ZERO, &plan.entries, &accounts);
    let drawn: Vec<_> =
        plan.draws.iter().map(|draw| Ok::<_, ()>(Escrow::default().acquire(1, "fra1", draw))).collect();
    let all = plan.of_keys(&grants, &[], &drawn);
    let charged: Vec<_> = all
        .iter()
        .map(|allowance| if let Allowance::Leased(lease) = allowance { lease.charged } else { 0 })
        .collect();
    assert_eq!(charged, [10, 0, 20, 0, 30, 40]);
    // What both of its epochs were given is gone.
    let left = quota().burst() - 10 - 30;
    assert_eq!(all[0], Allowance::Leased(Leased { left, ..Leased::of(10, 2_000) }));
}

// I6
#[test]
fn with_the_store_out_of_reach_strict_keys_are_leased_nothing() {
    let mut region = Region::new("eu/1", GrantSettings::default());
    let plan = region.observe(Time::ZERO, &report());
    let accounts: Vec<_> =
        plan.entries.iter().map(|entry| Budget::default().charge(1, &entry.charge("fra", "fra1"))).collect();
    let grants = region.grant(Time::ZERO, &plan.entries, &accounts);
    let all = plan.of_keys::<()>(&grants, &[], &[]);
    assert_eq!(all.len(), 6);
    for at in [0, 2, 4, 5] {
        assert_eq!(all[at], Allowance::Leased(NO_LEASE), "key {at}");
    }
    assert_eq!((all[1], all[3]), (Allowance::Warm, Allowance::Warm));
}
