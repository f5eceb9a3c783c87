//! Tokens that workers withdraw for clients that ask often.

use super::*;
use crate::table::slot::{Entry, Tag};
use weir_rules::address::Prefixes;
use weir_rules::key::KeyValue;
use weir_wire::messages::Ban;

/// Counts reads.
struct Counted {
    slots: LocalSlots,
    reads: u32,
}

impl Slots for Counted {
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError> {
        self.reads += 1;
        self.slots.read(index, into)
    }

    fn write(&mut self, index: u32, slot: &mut Slot, version: Version) -> Result<(), WriteError> {
        self.slots.write(index, slot, version)
    }

    fn count(&self) -> u32 {
        self.slots.count()
    }
}

fn with_prefetches(rules: RuleSet, worker: Option<u64>) -> Limiter {
    let mut limiter = limiter(rules, worker);
    limiter.prefetches = true;
    limiter
}

fn worker(rules: RuleSet, pops: u32, now: Time) -> Limiter {
    let mut limiter = with_prefetches(rules, Some(1));
    limiter.note_heard(pops, false, now);
    limiter
}

fn counted() -> Counted {
    Counted { slots: LocalSlots::new(4), reads: 0 }
}

/// Reads of 100 requests of one client, one each `gap_ms`, at a POP of so many; all of them are allowed.
fn reads(pops: u32, gap_ms: u64) -> u32 {
    let (mut limiter, mut slots) = (worker(one_rule("20/s", 100), pops, T0), counted());
    for n in 0..100 {
        let now = T0 + n * gap_ms * MS;
        limiter.note_heard(pops, false, now);
        assert!(allows(&mut limiter, &mut slots, "192.0.2.1", now), "{n}");
    }
    slots.reads
}

#[test]
fn a_client_that_asks_often_goes_to_the_table_seldom() {
    // At 10, 5, 2 and 1 a second: alone, cold in a small fleet and watched in a large one.
    for pops in [1, 3, 30] {
        let reads = [100, 200, 500, 1_000].map(|gap_ms| reads(pops, gap_ms));
        let most = [25, 40, 100, 100];
        assert!(reads.iter().zip(most).all(|(reads, most)| *reads <= most), "{pops} POPs: {reads:?}");
    }
}

/// The entry of the only client, in the only slot.
fn entry(slots: &mut dyn Slots) -> Entry {
    let mut slot = Slot::empty();
    slots.read(0, &mut slot).unwrap();
    slot.entries().next().unwrap().1
}

fn counts(slots: &mut dyn Slots) -> u32 {
    match entry(slots) {
        Entry::Watched(watched) => watched.admitted,
        Entry::Cold(cold) => cold.share.tokens_used(&one_rule("20/s", 100).rules()[0].quota, 1, T0),
    }
}

#[test]
fn what_was_not_spent_goes_back_at_the_next_visit() {
    for pops in [1, 1_000] {
        let (mut limiter, mut slots) = (worker(one_rule("20/s", 100), pops, T0), LocalSlots::new(1));
        let ask = |limiter: &mut Limiter, slots: &mut LocalSlots, ms| {
            limiter.note_heard(pops, false, T0 + ms * MS);
            assert!(allows(limiter, slots, "192.0.2.1", T0 + ms * MS));
        };
        // The second withdraws for two more, which are the third and the fourth.
        for ms in [0, 1, 2] {
            ask(&mut limiter, &mut slots, ms);
        }
        let withdrawn = (counts(&mut slots), entry(&mut slots).bucket().fill_ns(T0));
        // An even share gives what is withdrawn; of a watched key it counts once it is spent.
        let given = if pops == 1 { 4..20 } else { 2..3 };
        assert!(given.contains(&withdrawn.0) && withdrawn.1 > 600 * MS, "{withdrawn:?}");
        ask(&mut limiter, &mut slots, 3);
        assert_eq!((counts(&mut slots), entry(&mut slots).bucket().fill_ns(T0)), withdrawn);
        ask(&mut limiter, &mut slots, 3_000);
        // Five were asked for in all: as if there had been no prefetch.
        assert_eq!(entry(&mut slots).bucket().fill_ns(T0 + 3_000 * MS), 50 * MS);
        let _ = limiter.report(&mut slots, false, T0 + 3_000 * MS);
        let five = if pops == 1 { 1..=5 } else { 5..=5 };
        assert!(five.contains(&counts(&mut slots)), "{}", counts(&mut slots));
    }
}

/// What the report of each worker says at `now` that the client was let through, in all: counts are cumulative.
fn said(workers: &mut [Limiter], slots: &mut dyn Slots, now: Time) -> u64 {
    let reports = workers.iter_mut().filter_map(|worker| worker.report(slots, false, now));
    reports.flat_map(|report| report.keys).map(|key| key.admitted).max().unwrap_or(0)
}

#[test]
fn a_client_that_leaves_is_charged_for_no_more_than_it_was_let_through() {
    let rule_set = one_rule("20/s", 100);
    for asked in [1, 2, 5, 20] {
        let mut workers = [0, 1].map(|_| worker(rule_set.clone(), 1_000, T0));
        let mut slots = LocalSlots::new(1);
        for n in 0..asked {
            for worker in &mut workers {
                assert!(allows(worker, &mut slots, "192.0.2.1", T0 + n * MS));
            }
        }
        assert_eq!(said(&mut workers, &mut slots, T0 + 250 * MS), 2 * asked);
        assert_eq!(said(&mut workers, &mut slots, T0 + 500 * MS), 2 * asked, "it is said again, and no more");
        assert_eq!(u64::from(counts(&mut slots)), 2 * asked);
    }
}

#[test]
fn what_is_spent_after_its_entry_has_lost_its_place_is_reported() {
    let (mut limiter, mut slots) = (worker(one_rule("20/s", 100), 1_000, T0), LocalSlots::new(1));
    for ms in 0..3 {
        assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0 + ms * MS));
    }
    let tag = {
        let mut slot = Slot::empty();
        slots.read(0, &mut slot).unwrap();
        slot.entries().next().unwrap().0
    };
    let _ = limiter.change_slot(0, &mut slots, |slot| {
        slot.forget(tag, 0);
        Some(())
    });
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0 + 3 * MS));
    // Of the third and the fourth request its prefetch was the only one to know.
    assert_eq!(said(&mut [limiter], &mut slots, T0 + 250 * MS), 2);
}

#[test]
fn what_a_worker_spent_that_ends_the_others_report() {
    let (mut first, mut second, mut slots) = two_workers();
    assert_eq!(admitted(&mut first, &mut slots, "192.0.2.1", 2, T0 + MS), 2);
    assert_eq!(counts(&mut slots), 5, "prefetches paid for the others");
    first.add_up(&mut slots);
    let left = first.leave(&[]).unwrap();
    second.inherit(&left, &slots, T0 + 2 * MS);
    assert_eq!(said(&mut [second], &mut slots, T0 + 250 * MS), 8);
}

#[test]
fn a_hot_key_pushes_out_none_whose_spent_tokens_are_counted_nowhere_else() {
    let (mut one, mut other, mut slots) = two_workers();
    assert!(allows(&mut one, &mut slots, "192.0.2.1", T0 + MS), "by its prefetch");
    let tag = Tag::of_key(7, 0);
    assert!(!one.watch.push_out_for(tag));
    assert!(other.report(&mut slots, false, T0 + MS).is_some());
    assert!(other.watch.push_out_for(tag), "they are counted in the slot now");
    let before = counts(&mut slots);
    assert!(allows(&mut other, &mut slots, "192.0.2.1", T0 + 2 * MS));
    assert_eq!(counts(&mut slots), before + 1, "what it could not count it does not pay for");
}

#[test]
fn what_a_worker_holds_is_missed_at_another_until_it_has_refilled() {
    let rule_set = one_rule("20/s", 100);
    let (mut limiter, mut other) = (worker(rule_set.clone(), 1, T0), worker(rule_set, 1, T0));
    let mut slots = LocalSlots::new(1);
    for ms in 0..30 {
        assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0 + ms * MS));
    }
    // A quarter of the burst at most is withheld from the other worker, for less than it takes to refill.
    let rest = admitted(&mut other, &mut slots, "192.0.2.1", 200, T0 + 30 * MS);
    assert!((45..=70).contains(&rest), "{rest}");
    assert_eq!(admitted(&mut other, &mut slots, "192.0.2.1", 200, T0 + 10 * SECOND_NS), 100);
}

/// Whether a client that asks every millisecond ever gets through without a look at the table.
fn has_any(rule_set: RuleSet) -> bool {
    let (mut limiter, mut slots) = (worker(rule_set, 3, T0), counted());
    let asked = (0..10).filter(|ms| {
        let before = slots.reads;
        allows(&mut limiter, &mut slots, "192.0.2.1", T0 + ms * MS) && slots.reads == before
    });
    asked.count() > 0
}

#[test]
fn rules_whose_requests_must_each_go_to_the_table_have_no_prefetches() {
    let with = |field: &str, value: Value| {
        let mut rule = json!({"name": "r", "key": ["client_address"], "rate": "20/s", "burst": 100});
        rule.as_object_mut().unwrap().insert(field.into(), value);
        rules(&json!([rule]))
    };
    assert!(has_any(one_rule("20/s", 100)));
    assert!(has_any(with("local_burst", json!(50))));
    for (field, value) in [
        ("strict", json!(true)),
        ("mode", json!("shadow")),
        ("enforced_percent", json!(50)),
        ("response", json!({"on_allowed": true})),
        ("cost", json!({"header": "x-cost"})),
        ("penalty", json!({"after": 3, "within": "1m", "deny_for": "1m"})),
    ] {
        assert!(!has_any(with(field, value)), "{field}");
    }
    // A bucket of a few tokens has none to spare, and one that refills slowly would miss them for long.
    assert!(!has_any(one_rule("20/s", 8)));
    assert!(!has_any(one_rule("50/m", 1_000)));
    // Nor have rules of several keys.
    let wider = json!({"name": "w", "key": [{"client_address": {"ipv4": 24}}], "rate": "90/s", "burst": 900});
    let narrow = json!({"name": "r", "key": ["client_address"], "rate": "20/s", "burst": 100});
    assert!(!has_any(rules(&json!([narrow, wider]))));
    let same = json!({"name": "w", "key": ["client_address"], "rate": "90/s", "burst": 900});
    assert!(has_any(rules(&json!([narrow, same]))));
}

#[test]
fn a_request_that_two_rules_count_is_charged_to_each_of_them_once() {
    // The slower one's tokens are for fewer requests.
    let (quick, slow) = (("20/s", 100, 100), ("1/s", 1_000, 1_000));
    for (pops, quotas) in
        [1, 1_000].into_iter().flat_map(|pops| [(pops, [quick, slow]), (pops, [slow, quick])])
    {
        let rule_set = of_one_key(quotas.into_iter());
        let (mut with, mut without) = (worker(rule_set.clone(), pops, T0), limiter(rule_set, Some(1)));
        let (mut slots, mut plain) = (counted(), counted());
        // The last comes too late for prefetches, and shows what was taken; a report adds what they paid with.
        for ms in (0..60).chain([1_500]) {
            let now = T0 + ms * MS;
            for (worker, slots) in [(&mut with, &mut slots), (&mut without, &mut plain)] {
                worker.note_heard(pops, false, now);
                assert!(allows(worker, slots, "192.0.2.1", now));
            }
        }
        assert!(slots.reads < plain.reads, "{} of {}", slots.reads, plain.reads);
        for (worker, slots) in [(&mut with, &mut slots), (&mut without, &mut plain)] {
            let _ = worker.report(slots, false, T0 + 1_500 * MS);
        }
        let taken = |limiter: &Limiter, slots: &mut Counted| {
            [0, 1].map(|rule| match limiter.entry(rule, &value(), slots).unwrap() {
                Entry::Cold(cold) => (cold.bucket, 0),
                Entry::Watched(watched) => (watched.bucket, watched.admitted),
            })
        };
        assert_eq!(taken(&with, &mut slots), taken(&without, &mut plain), "{pops} POPs, {quotas:?}");
    }
}

#[test]
fn a_worker_that_is_not_told_to_has_none() {
    let (mut limiter, mut slots) = (limiter(one_rule("20/s", 100), Some(1)), counted());
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 10, T0), 10);
    assert!(slots.reads >= 10);
}

/// Two workers of a POP at T0, both with tokens of the client's bucket.
fn two_workers() -> (Limiter, Limiter, LocalSlots) {
    let rule_set = one_rule("20/s", 200);
    let (mut one, mut other) = (worker(rule_set.clone(), 1_000, T0), worker(rule_set, 1_000, T0));
    let mut slots = LocalSlots::new(1);
    for worker in [&mut one, &mut other] {
        assert_eq!(admitted(worker, &mut slots, "192.0.2.1", 3, T0), 3);
    }
    (one, other, slots)
}

fn value() -> Vec<u8> {
    KeyValue::of_address("192.0.2.1".parse().unwrap(), Prefixes::default()).as_bytes().to_vec()
}

#[test]
fn a_ban_holds_at_once_at_the_worker_that_hears_of_it_and_soon_at_others() {
    let (mut one, mut other, mut slots) = two_workers();
    let report = one.report(&mut slots, true, T0).unwrap();
    let bans = vec![Ban { rule: 0, value: value(), for_ms: 60_000 }];
    let grants = vec![Allowance::Warm; report.keys.len()];
    let rules = vec!["r".into()];
    let reply = Reply {
        sequence: report.sequence,
        pops: 1_000,
        settled: Settled::All,
        grants,
        rules,
        bans,
        ..Reply::default()
    };
    one.apply(report.sequence, &reply.encode(), &mut slots, T0 + MS).unwrap();
    assert!(!allows(&mut one, &mut slots, "192.0.2.1", T0 + 2 * MS));
    assert!(allows(&mut other, &mut slots, "192.0.2.1", T0 + 3 * MS), "it has not heard");
    assert!(!allows(&mut other, &mut slots, "192.0.2.1", T0 + SECOND_NS / 2));
}

#[test]
fn under_a_lease_nothing_is_withdrawn_and_what_was_lapses_soon() {
    let (mut one, mut other, mut slots) = two_workers();
    let report = one.report(&mut slots, true, T0).unwrap();
    answer(&mut one, &mut slots, &report, 1_000, grant(0, 1, -50_000), T0 + MS);
    assert!(!allows(&mut one, &mut slots, "192.0.2.1", T0 + 2 * MS));
    let late = admitted(&mut other, &mut slots, "192.0.2.1", 50, T0 + 3 * MS);
    assert!(late <= 2, "{late}");
    assert!(!allows(&mut other, &mut slots, "192.0.2.1", T0 + SECOND_NS / 2));
}

#[test]
fn other_rules_hold_at_once() {
    let (mut one, _, mut slots) = two_workers();
    one.replace_rules(one_rule("1/h", 1));
    assert_eq!(admitted(&mut one, &mut slots, "192.0.2.1", 5, T0 + MS), 1);
}

#[test]
fn a_watched_key_is_reported_with_what_it_was_asked_for() {
    let (mut limiter, mut slots) = (worker(one_rule("20/s", 100), 1_000, T0), LocalSlots::new(1));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 20, T0), 20);
    let report = limiter.report(&mut slots, false, T0).unwrap();
    let key = &report.keys[0];
    assert_eq!(key.asked_recently, 20);
    assert_eq!(key.admitted, 20, "{key:?}");
}

/// Rules that all count the same key, of these rates, bursts and local bursts.
fn of_one_key(quotas: impl Iterator<Item = (&'static str, u32, u32)>) -> RuleSet {
    let rule = |(i, (rate, burst, local_burst)): (usize, (_, u32, u32))| {
        let name = std::format!("r{i}");
        json!({"name": name, "key": ["client_address"], "rate": rate, "burst": burst, "local_burst": local_burst.max(1)})
    };
    rules(&quotas.enumerate().map(rule).collect())
}

fn rate() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("20/s"), Just("200/s"), Just("3/s")]
}

/// A bucket that is told of each request that went through.
#[derive(Clone, Copy)]
struct Meter(u64);

impl Meter {
    /// Tokens above burst + rate x t in the span that has the most.
    fn over(&mut self, quota: weir_wire::quota::Quota, now: Time) -> u64 {
        self.0 = self.0.max(now.as_nanos()) + quota.token_ns();
        (self.0 - now.as_nanos()).saturating_sub(quota.fill_ns()) / quota.token_ns()
    }
}

proptest! {
    /// I3: however many workers have prefetches of one rule or two, in a fleet or not, with reports, and a table too small
    /// for its keys.
    #[test]
    fn workers_with_prefetches_admit_no_more_than_burst_and_rate(
        steps in prop::collection::vec((0usize..3, 0u8..3, prop_oneof![0u64..5, 0u64..60, 300u64..1_500]), 1..600),
        (pops, has_sync) in (prop_oneof![Just(1u32), Just(3), Just(1_000)], prop::bool::ANY),
        bursts in prop::collection::vec((rate(), 8u32..150, 1u32..4), 1..3),
        (slots, crowd) in (1u32..3, 0u64..60),
    ) {
        let rule_set = of_one_key(bursts.iter().map(|(rate, burst, local)| (*rate, *burst, burst / local)));
        let quotas: Vec<_> = rule_set.rules().iter().map(|rule| rule.quota).collect();
        let mut workers: Vec<_> = (0..3).map(|w| with_prefetches(rule_set.clone(), has_sync.then_some(w))).collect();
        let (mut slots, mut now) = (LocalSlots::new(slots), T0);
        let mut meters = [[Meter(0); 2]; 3];
        for (i, (worker, client, step_ms)) in steps.into_iter().enumerate() {
            now += step_ms * MS;
            for worker in &mut workers {
                worker.note_heard(pops, false, now);
            }
            if i as u64 % 16 == 15 && crowd > 30 {
                for n in 0..crowd {
                    allows(&mut workers[0], &mut slots, &std::format!("10.9.{}.{n}", i % 256), now);
                }
            }
            if i % 32 == 31 {
                let _ = workers[worker].report(&mut slots, false, now);
            }
            if allows(&mut workers[worker], &mut slots, &std::format!("10.0.0.{client}"), now) {
                for (meter, quota) in meters[usize::from(client)].iter_mut().zip(&quotas) {
                    prop_assert_eq!(meter.over(*quota, now), 0, "client {} at {}: {:?}", client, i, quota);
                }
            }
        }
    }

    /// Whoever has the buckets alone never notices a prefetch, be they of one rule or of two, in either order.
    #[test]
    fn one_worker_decides_as_plain_buckets_do(
        steps in prop::collection::vec(prop_oneof![0u64..5, 0u64..60, 300u64..1_500], 1..400),
        bursts in prop::collection::vec((rate(), 8u32..150), 1..3),
        pops in prop_oneof![Just(0u32), Just(1), Just(3)],
    ) {
        let rule_set = of_one_key(bursts.into_iter().map(|(rate, burst)| (rate, burst, burst)));
        let id = (pops > 0).then_some(1);
        let (mut with, mut without) = (with_prefetches(rule_set.clone(), id), limiter(rule_set, id));
        let (mut slots, mut plain, mut now) = (LocalSlots::new(1), LocalSlots::new(1), T0);
        for step_ms in steps {
            now += step_ms * MS;
            for worker in [&mut with, &mut without] {
                worker.note_heard(pops, false, now);
            }
            let said = ask(&mut with, &mut slots, "192.0.2.1", now);
            prop_assert_eq!(said.strictest(), ask(&mut without, &mut plain, "192.0.2.1", now).strictest());
        }
    }
}
