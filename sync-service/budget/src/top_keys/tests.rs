use std::vec;

use super::fleet::{FleetTopKey, Sort, Unseen, sort, together};
use super::*;
use weir_protocol::quota::{Period, Quota, Rate};

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn quota() -> Quota {
    Quota::new(Rate::new(10, Period::Second).unwrap(), 20).unwrap()
}

fn id(value: u64) -> BudgetId {
    BudgetId::new("r".into(), value.to_be_bytes().to_vec())
}

/// A report at `ms` of these tokens, for a budget that lacks `lacks`.
fn report(ms: u64, asked: u64, admitted: u64, lacks: u64) -> Use {
    let last = LastState { quota: quota(), deficit_ns: lacks * quota().token_ns(), at: at(ms) };
    Use { counts: TokenCounts { asked, admitted }, last, askers: 1 }
}

fn keys_of(top_keys: &TopKeys, ms: u64) -> Vec<(BudgetId, u64, u64)> {
    let (mut keys, _) = together([("fra/a", top_keys.message(at(ms), 100))]);
    sort(&mut keys, Sort::Limited);
    let row = |key: FleetTopKey| (key.id, key.rates.asked_milli / 1_000, key.rates.admitted_milli / 1_000);
    keys.into_iter().map(row).collect()
}

#[test]
fn the_most_limited_key_is_first() {
    let mut top_keys = TopKeys::default();
    for ms in (1_000..11_000).step_by(250) {
        top_keys.observe(at(ms), "fra1", &id(1), &report(ms, 25, 3, 30));
        top_keys.observe(at(ms), "fra2", &id(1), &report(ms, 50, 1, 30));
        top_keys.observe(at(ms), "fra1", &id(2), &report(ms, 2, 2, 3));
    }
    let rows = keys_of(&top_keys, 11_000);
    assert_eq!(rows.iter().map(|row| row.0.clone()).collect::<Vec<_>>(), [id(1), id(2)]);
    assert!((290..=310).contains(&rows[0].1) && (15..=17).contains(&rows[0].2), "{rows:?}");
    assert!((7..=8).contains(&rows[1].1) && rows[1].1 == rows[1].2, "{rows:?}");
    let top = top_keys.get(at(11_000), &id(1)).unwrap();
    assert_eq!((top.limited_ms, top.level_milli / 1_000), (Some(10_000), -7), "250 ms have refilled 2.5");
    let pops: Vec<_> = top.pops.iter().map(|(pop, _)| pop.as_str()).collect();
    assert_eq!(pops, ["fra2", "fra1"], "the one that is asked for most is first");
    let bystander = top_keys.get(at(11_000), &id(2)).unwrap();
    assert_eq!((bystander.limited_ms, bystander.rates.limited_milli()), (None, 0));
    assert_eq!(top_keys.get(at(30_000), &id(1)).unwrap().limited_ms, None, "it is over");
}

#[test]
fn rare_keys_do_not_crowd_out_a_frequent_one() {
    let mut top_keys = TopKeys::default();
    let mut once = 100;
    for ms in (1_000..21_000).step_by(250) {
        // A key of 1,200 a second among 8,000 others a second, of which each is limited once.
        for _ in 0..2_000 {
            once += 1;
            top_keys.observe(at(ms), "fra1", &id(once), &report(ms, 2, 1, 1));
            assert!(top_keys.keys.len() <= KEYS_MAX);
        }
        top_keys.observe(at(ms), "fra1", &id(7), &report(ms, 300, 3, 1));
    }
    let message = top_keys.message(at(21_000), 100);
    let key = message.keys.iter().find(|key| key.id == id(7)).expect("the key is listed");
    assert!((1_150_000..1_250_000).contains(&key.rates.asked_milli), "{key:?}");
    assert_eq!(key.limited_ms, Some(20_000), "it was never forgotten");
    // 8,000 a second, of 20 to a burst: twice the part of 512 at most.
    let unseen = message.unseen.limited_milli;
    assert!(unseen > 0 && unseen <= 2 * 9_200 * 1_000 / 20 / 512 + 1, "{unseen}");
    assert!(key.rates.limited_milli() / 20 > unseen, "so the list need not name others before it");
}

#[test]
fn some_of_the_keys_that_owe_most_stay_without_demand() {
    let mut top_keys = TopKeys::default();
    top_keys.observe(at(1_000), "fra1", &id(1), &report(1_000, 1, 1, 100_000));
    for ms in (2_000..90_000).step_by(1_000) {
        for once in 0..2_000 {
            top_keys.observe(at(ms), "fra1", &id(ms * 10_000 + once), &report(ms, 9, 9, 3));
        }
    }
    assert!(top_keys.get(at(90_000), &id(1)).is_some());
    let message = top_keys.message(at(90_000), 10);
    assert!(message.keys.iter().any(|key| key.id == id(1)), "{message:?}");
    top_keys.look(&id(1), LastState { quota: quota(), deficit_ns: 0, at: at(90_000) });
    top_keys.observe(at(101_000), "fra1", &id(2), &report(101_000, 1, 1, 1));
    assert!(top_keys.get(at(101_000), &id(1)).is_none(), "it has paid");
}

#[test]
fn messages_of_regions_are_merged() {
    let key = |asked_milli: u64, admitted_milli: u64, age_ms, level_milli, pop: &str| TopKey {
        id: id(1),
        quota: quota(),
        rates: KeyRates { asked_milli, admitted_milli },
        level_milli,
        age_ms,
        limited_ms: Some(age_ms),
        askers: 3,
        pops: vec![(pop.into(), KeyRates { asked_milli, admitted_milli })],
    };
    let of = |key| ReplicaTopKeys { keys: vec![key], unseen: Unseen { limited_milli: 5, admitted_milli: 1 } };
    let (keys, unseen) = together([
        ("fra/a", of(key(100, 10, 900, -5, "fra1"))),
        ("fra/b", of(key(50, 0, 100, -9, "fra1"))),
        ("iad/a", of(key(7, 7, 500, -1, "iad1"))),
    ]);
    assert_eq!((unseen.limited_milli, unseen.admitted_milli), (15, 3));
    let [key] = &keys[..] else { panic!("{keys:?}") };
    assert_eq!((key.rates.asked_milli, key.rates.admitted_milli, key.rates.limited_milli()), (157, 17, 140));
    assert_eq!((key.level_milli, key.age_ms, key.limited_ms), (-9, 100, Some(900)), "the newest level");
    let fra = &key.regions["fra"];
    assert_eq!((fra.rates.asked_milli, fra.askers, fra.pops.len()), (150, 3, 1));
    assert_eq!(fra.pops[0].1.asked_milli, 150);
    assert_eq!(key.regions["iad"].pops[0].0, "iad1");
}
