//! Pushes of hot keys to POPs, their frequency, and the budgets that a region reads for them.

mod bounds;
mod looking;

use weir_budget::budget::{Account, BudgetId, Count, Demand, PlanEntry, ReplicaDemand};
use weir_budget::divide::{GrantSettings, divide};
use weir_budget::hot::{HotKey, HotKeys};
use weir_protocol::messages::{BudgetRule, Key, PushedGrant, Replies, Report, RunningRules};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;
use weir_protocol::time::{SECOND_NS, Time};

const MS: u64 = 1_000_000;
/// When these tests begin, in milliseconds.
const BEGIN: u64 = 1_000_000;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

fn quota() -> Quota {
    Quota::new(Rate::new(100, Period::Second).unwrap(), 100).unwrap()
}

fn entry(value: u64) -> PlanEntry {
    let id = BudgetId::new("r".into(), value.to_be_bytes().to_vec());
    PlanEntry::new(id, quota(), Sharing::of(quota()))
}

/// The same key in a report of a POP.
fn reported(value: u64) -> PlanEntry {
    let count = Count { epoch: 1, admitted: 1, unconfirmed: 1, span_us: 0, missing: 0, made_ms: 0 };
    PlanEntry { counts: vec![count], ..entry(value) }
}

/// An account with `level` of 100 tokens left. If that is less than half, the key is asked for.
fn account(level: u64, fan_out: u32) -> Account {
    let milli = if level < 50 { 1_000 } else { 0 };
    asked_account(level, fan_out, milli)
}

/// The account of a key that is asked for `milli` thousandths of a token a second.
fn asked_account(level: u64, fan_out: u32, milli: u64) -> Account {
    let demand = Demand { milli, askers: u32::from(milli > 0) };
    let replica = ReplicaDemand { name: "eu/1".into(), demand, age_us: 0 };
    let deficit_ns = (100 - level) * quota().token_ns();
    Account { deficit_ns, fan_out, charged: 0, now_us: 0, replicas: vec![replica] }
}

/// A report of a worker that has received every reply.
fn report(pop: &str, table: u32) -> Report {
    let replies = Replies { done: 1, lost: 0 };
    Report { pop: pop.into(), worker: 1, sequence: 1, table, replies, ..Report::default() }
}

/// The hot keys of a region, none of which its POPs are asked for.
#[derive(Default)]
struct Region {
    hot: HotKeys,
}

impl Region {
    fn grant(&mut self, now: Time, entries: &[PlanEntry], accounts: &[Account]) {
        for (entry, account) in entries.iter().zip(accounts) {
            self.hot.record(entry, &divide(entry, account, None, "eu", &GrantSettings::default()), now);
        }
    }

    fn pushes(&mut self, now: Time, report: &Report) -> (Vec<String>, Vec<PushedGrant>) {
        let id = |key: &Key| BudgetId::new(report.rules[usize::from(key.rule)].name.clone(), key.value.clone());
        let asked: Vec<_> = report.keys.iter().map(id).collect();
        self.hot.pushes(now, report, false, asked.iter(), |_| false)
    }

    /// The keys whose budgets are read, beside the list of the fleet.
    fn peeks(&mut self, now: Time, fleet: &[HotKey]) -> Vec<PlanEntry> {
        let entry = |HotKey { id, quota, sharing, .. }| PlanEntry::new(id, quota, sharing);
        self.hot.to_look_at(now, fleet, SECOND_NS * 35 / 100).into_iter().map(entry).collect()
    }
}

fn region() -> Region {
    Region::default()
}

/// Grants that are pushed to the POP at `ms`.
fn pushed(region: &mut Region, ms: u64, pop: &str, table: u32) -> Vec<PushedGrant> {
    region.pushes(at(ms), &report(pop, table)).1
}

fn resting(value: u64) -> HotKey {
    HotKey { rests: true, ..listed(value) }
}

fn listed(value: u64) -> HotKey {
    let PlanEntry { id, quota, sharing, .. } = entry(value);
    HotKey { id, quota, sharing, rests: false, rank: 0 }
}

/// A report that asks about these keys, of the rules `q` (0) and `r` (1).
fn asking(keys: &[(u16, u64)]) -> Report {
    let rule = |name: &str| BudgetRule { name: name.into(), quota: quota(), sharing: Sharing::of(quota()) };
    let key =
        |&(rule, value): &(u16, u64)| Key { rule, value: value.to_be_bytes().to_vec(), epoch: 1, ..Key::default() };
    let (rules, keys) = (vec![rule("q"), rule("r")], keys.iter().map(key).collect());
    Report { rules, keys, ..report("pop", 1) }
}

#[test]
fn keys_in_a_report_are_not_pushed_in_any_order() {
    let mut region = region();
    let hot: Vec<PlanEntry> = (0..10).map(entry).collect();
    let resting: Vec<PlanEntry> = (10..20).map(entry).collect();
    region.grant(at(BEGIN), &hot, &vec![account(0, 4); 10]);
    region.grant(at(BEGIN), &resting, &vec![account(100, 4); 10]);
    // Key 12 of another rule and a key that is not hot change nothing.
    let report = asking(&[(1, 17), (1, 3), (0, 12), (1, 99), (1, 0), (1, 9), (1, 10), (0, 0), (1, 4)]);
    let pushed = region.pushes(at(BEGIN), &report).1;
    let pushed: Vec<u64> =
        pushed.iter().map(|pushed| u64::from_be_bytes(pushed.value.clone().try_into().unwrap())).collect();
    assert_eq!(pushed, [1, 2, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 18, 19]);
}

#[test]
fn a_resting_key_is_pushed_at_once_and_at_half_its_lease() {
    let mut region = region();
    let mut pushed_at = Vec::new();
    for ms in (0..100_000).step_by(250) {
        if ms % 2_000 == 0 {
            region.grant(at(BEGIN + ms), &[entry(1)], &[account(100, 4)]);
        }
        let pushed = pushed(&mut region, BEGIN + ms, "pop", 1);
        assert!(pushed.iter().all(|pushed| pushed.grant.burst == 25 && pushed.grant.lease_ms == 60_000));
        pushed_at.extend(pushed.iter().map(|_| ms));
    }
    assert_eq!(pushed_at, [0, 30_000, 60_000, 90_000]);
}

#[test]
fn new_rules_lost_grants_and_changed_quotas_are_pushed_at_once() {
    let mut region = region();
    region.grant(at(BEGIN), &[entry(1)], &[account(100, 4)]);
    assert_eq!(pushed(&mut region, BEGIN, "pop", 1).len(), 1);
    let newer = Report { running: RunningRules { version: 2, refused: 0 }, ..report("pop", 1) };
    assert_eq!(region.pushes(at(BEGIN + 250), &newer).1.len(), 1);
    let lost = Report { sequence: 2, replies: Replies { done: 1, lost: 1 }, ..newer.clone() };
    assert_eq!(region.pushes(at(BEGIN + 300), &lost).1.len(), 1, "the reply was lost");
    assert_eq!(region.pushes(at(BEGIN + 500), &newer).1.len(), 0);
    let raised = PlanEntry { quota: Quota::new(Rate::new(200, Period::Second).unwrap(), 100).unwrap(), ..entry(1) };
    region.grant(at(BEGIN + 500), std::slice::from_ref(&raised), &[account(100, 4)]);
    let pushed = region.pushes(at(BEGIN + 750), &newer).1;
    assert_eq!(pushed.iter().map(|pushed| pushed.quota).collect::<Vec<_>>(), [raised.quota]);
}

#[test]
fn a_hot_key_that_is_no_longer_listed_rests() {
    let mut region = region();
    region.grant(at(BEGIN), &[entry(1)], &[account(0, 4)]);
    assert_eq!(pushed(&mut region, BEGIN + 500, "fra1", 1).len(), 1);
    let later = pushed(&mut region, BEGIN + 1_500, "fra2", 1);
    assert_eq!(later.len(), 1, "a client that comes to a new POP finds its part of the burst");
    assert!(later[0].grant.burst < quota().burst());
    let looked_at = region.peeks(at(BEGIN + 2_000), &[]);
    assert_eq!(looked_at.len(), 1, "its account decides whether it rests or is warm");
}
