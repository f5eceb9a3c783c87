//! Who is told of a hot key, how often, and what a region looks at for it.

use weir_budget::budget::{Account, BudgetId, Demand, Member};
use weir_budget::divide::Terms;
use weir_budget::hot::{HOT_MAX, HotKey, RESTING_NS};
use weir_budget::region::{Entry, Region};
use weir_limiter::quota::{Period, Quota, Rate};
use weir_limiter::sharing::Sharing;
use weir_limiter::time::Time;
use weir_limiter::wire::{KEYS_MAX, Key, Pushed, Report, Rule, Running};

const MS: u64 = 1_000_000;
/// When these tests begin, in milliseconds.
const BEGIN: u64 = 1_000_000;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

fn quota() -> Quota {
    Quota::new(Rate::new(100, Period::Second).unwrap(), 100).unwrap()
}

fn entry(value: u64) -> Entry {
    Entry {
        id: BudgetId { rule: "r".into(), value: value.to_be_bytes().to_vec() },
        quota: quota(),
        sharing: Sharing::of(quota()),
        demand: Demand::default(),
        counts: vec![],
    }
}

fn account(level: u64, spread: u32) -> Account {
    let member = Member { name: "eu".into(), demand: Demand::default(), age_us: 0 };
    let deficit_ns = (100 - level) * quota().token_ns();
    Account { deficit_ns, spread, charged: 0, now_us: 0, members: vec![member] }
}

fn report(pop: &str, table: u32) -> Report {
    Report {
        pop: pop.into(),
        worker: 1,
        sequence: 1,
        table,
        rules: vec![],
        keys: vec![],
        ..Report::default()
    }
}

fn region() -> Region {
    Region::new("eu/1", Terms::default())
}

/// What is pushed to the POP at `ms`.
fn pushed(region: &mut Region, ms: u64, pop: &str, table: u32) -> Vec<Pushed> {
    region.pushes(at(ms), &report(pop, table)).1
}

fn listed(value: u64) -> HotKey {
    let Entry { id, quota, sharing, .. } = entry(value);
    HotKey { id, quota, sharing }
}

/// A report that asks about these keys, of the rules `q` (0) and `r` (1).
fn asking(keys: &[(u16, u64)]) -> Report {
    let rule = |name: &str| Rule { name: name.into(), quota: quota(), sharing: Sharing::of(quota()) };
    let key = |&(rule, value): &(u16, u64)| Key {
        rule,
        value: value.to_be_bytes().to_vec(),
        epoch: 1,
        admitted: 0,
        unconfirmed: 0,
        span_ms: 0,
        missing: 0,
        asked: 0,
        asked_recently: 0,
        ahead: 0,
    };
    let (rules, keys) = (vec![rule("q"), rule("r")], keys.iter().map(key).collect());
    Report { rules, keys, ..report("pop", 1) }
}

#[test]
fn what_a_report_asks_about_is_not_pushed_in_whichever_order_it_asks() {
    let mut region = region();
    let hot: Vec<Entry> = (0..10).map(entry).collect();
    let resting: Vec<Entry> = (10..20).map(entry).collect();
    region.grant(at(BEGIN), &hot, &vec![account(0, 4); 10]);
    region.grant(at(BEGIN), &resting, &vec![account(100, 4); 10]);
    // Neither key 12 of the other rule nor one that is not hot stands for what it does not ask about.
    let report = asking(&[(1, 17), (1, 3), (0, 12), (1, 99), (1, 0), (1, 9), (1, 10), (0, 0), (1, 4)]);
    let pushed = region.pushes(at(BEGIN), &report).1;
    let pushed: Vec<u64> =
        pushed.iter().map(|pushed| u64::from_be_bytes(pushed.value.clone().try_into().unwrap())).collect();
    assert_eq!(pushed, [1, 2, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 18, 19]);
}

#[test]
fn a_resting_key_is_told_twice_and_then_at_half_its_lease() {
    let mut region = region();
    let mut told_at = Vec::new();
    for ms in (0..100_000).step_by(250) {
        if ms % 2_000 == 0 {
            region.grant(at(BEGIN + ms), &[entry(1)], &[account(100, 4)]);
        }
        let pushed = pushed(&mut region, BEGIN + ms, "pop", 1);
        assert!(pushed.iter().all(|pushed| pushed.grant.burst == 25 && pushed.grant.lease_ms == 60_000));
        told_at.extend(pushed.iter().map(|_| ms));
    }
    assert_eq!(told_at, [0, 1_000, 31_000, 61_000, 91_000]);
}

#[test]
fn a_pop_that_lost_its_table_is_told_at_once() {
    let mut region = region();
    region.grant(at(BEGIN), &[entry(1)], &[account(100, 4)]);
    assert_eq!(pushed(&mut region, BEGIN, "pop", 1).len(), 1);
    assert_eq!(pushed(&mut region, BEGIN + 250, "pop", 1).len(), 0);
    assert_eq!(pushed(&mut region, BEGIN + 500, "pop", 2).len(), 1);
    assert_eq!(pushed(&mut region, BEGIN + 500, "another", 1).len(), 1);
}

#[test]
fn a_pop_whose_rules_or_a_key_whose_quota_changed_is_told_at_once() {
    let mut region = region();
    region.grant(at(BEGIN), &[entry(1)], &[account(100, 4)]);
    assert_eq!(pushed(&mut region, BEGIN, "pop", 1).len(), 1);
    let newer = Report { running: Running { version: 2, refused: 0 }, ..report("pop", 1) };
    assert_eq!(region.pushes(at(BEGIN + 250), &newer).1.len(), 1);
    assert_eq!(region.pushes(at(BEGIN + 500), &newer).1.len(), 0);
    let raised =
        Entry { quota: Quota::new(Rate::new(200, Period::Second).unwrap(), 100).unwrap(), ..entry(1) };
    region.grant(at(BEGIN + 500), std::slice::from_ref(&raised), &[account(100, 4)]);
    let told = region.pushes(at(BEGIN + 750), &newer).1;
    assert_eq!(told.iter().map(|pushed| pushed.quota).collect::<Vec<_>>(), [raised.quota]);
}

#[test]
fn a_key_that_stops_resting_is_told_at_once() {
    let mut region = region();
    for ms in [0, 250, 500, 750, 1_000, 1_250] {
        region.grant(at(BEGIN + ms), &[entry(1)], &[account(100, 4)]);
        pushed(&mut region, BEGIN + ms, "pop", 1);
    }
    region.grant(at(BEGIN + 1_500), &[entry(1)], &[account(40, 4)]);
    let grant = pushed(&mut region, BEGIN + 1_500, "pop", 1)[0].grant;
    assert_eq!((grant.lease_ms, grant.level_milli), (2_000, 40_000));
}

#[test]
fn what_rests_is_looked_at_every_two_seconds_and_what_is_hot_every_interval() {
    let mut region = region();
    let (mut rests, mut hot) = (0, 0);
    for ms in (0..20_000).step_by(250) {
        for entry in region.peeks(at(BEGIN + ms), &[listed(1), listed(2)]) {
            let is_resting = entry.id == listed(1).id;
            if is_resting {
                rests += 1;
            } else {
                hot += 1;
            }
            let account = if is_resting { account(100, 4) } else { account(10, 0) };
            region.grant(at(BEGIN + ms), &[entry], &[account]);
        }
    }
    assert_eq!((rests, hot), (10, 40), "two ticks of 250 ms are the first after the interval of 350 ms");
}

#[test]
fn a_resting_key_is_kept_without_the_list_and_named_when_nobody_else_does() {
    let mut region = region();
    region.grant(at(BEGIN), &[entry(1)], &[account(100, 4)]);
    let mut named = Vec::new();
    for ms in (0..10_000).step_by(250) {
        named.extend(region.hot(at(BEGIN + ms)).iter().map(|_| ms));
        for entry in region.peeks(at(BEGIN + ms), &[]) {
            region.grant(at(BEGIN + ms), &[entry], &[account(100, 4)]);
        }
    }
    assert_eq!(named, [0, 2_000, 4_000, 6_000, 8_000]);
    for ms in (10_000..20_000).step_by(250) {
        assert_eq!(region.hot(at(BEGIN + ms)).len(), usize::from(ms == 10_000), "another region names it");
        for entry in region.peeks(at(BEGIN + ms), &[listed(1)]) {
            region.grant(at(BEGIN + ms), &[entry], &[account(100, 4)]);
        }
    }
}

#[test]
fn a_key_whose_spread_is_forgotten_is_told_no_more() {
    let mut region = region();
    region.grant(at(BEGIN), &[entry(1)], &[account(100, 4)]);
    let later = BEGIN + RESTING_NS / MS;
    let peeked = region.peeks(at(later), &[]);
    assert_eq!(peeked.len(), 1);
    region.grant(at(later), &peeked, &[account(100, 0)]);
    assert_eq!(pushed(&mut region, later, "pop", 1), []);
    assert_eq!(region.hot(at(later)), []);
}

#[test]
fn hot_keys_go_before_resting_ones_and_all_are_bounded() {
    let mut region = region();
    for value in 0..HOT_MAX as u64 + 100 {
        region.grant(at(BEGIN), &[entry(value)], &[account(100, 4)]);
    }
    assert_eq!(region.hot(at(BEGIN)).len(), HOT_MAX);
    for value in 0..100 {
        region.grant(at(BEGIN), &[entry(1_000_000 + value)], &[account(10, 0)]);
    }
    let first = pushed(&mut region, BEGIN, "pop", 1);
    assert_eq!(first.len(), KEYS_MAX);
    assert!(first[..100].iter().all(|pushed| pushed.value >= 1_000_000_u64.to_be_bytes().to_vec()));
    let rest: usize = (0..4).map(|_| pushed(&mut region, BEGIN, "pop", 1).len()).sum();
    assert_eq!(rest + KEYS_MAX, HOT_MAX, "the others get their turn");
}

#[test]
fn strict_keys_are_nobodys_business() {
    let mut region = region();
    let mut strict = entry(1);
    strict.sharing.strict = true;
    region.grant(at(BEGIN), &[strict], &[account(10, 0)]);
    assert_eq!(region.hot(at(BEGIN)), []);
}
