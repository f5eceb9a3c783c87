mod in_a_fleet;
mod rule_model;
mod strict;

use super::*;
use crate::reading::Errors;
use crate::request::Attribute;
use crate::table::{LocalSlots, ReadError, Version};
use crate::time::SECOND_NS;
use crate::wire::{AdmitRatio, Allowance, Grant, Message, Reply, Report};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::string::String;
use std::vec;

const T0: Time = Time::from_nanos(1_000_000 * SECOND_NS);
const MS: u64 = 1_000_000;

struct Client(String);

impl Request for Client {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::SourceAddress => Some(self.0.clone().into()),
            Attribute::Path => Some(b"/".to_vec()),
            _ => None,
        }
    }
}

fn rules(value: &Value) -> RuleSet {
    let mut errors = Errors::default();
    let rules = RuleSet::parse(value, "rules", &mut errors);
    errors.into_result(rules).unwrap()
}

fn one_rule(rate: &str, burst: u32) -> RuleSet {
    rules(&json!([{"name": "r", "key": ["client_address"], "rate": rate, "burst": burst}]))
}

fn limiter(rules: RuleSet, worker: Option<u64>) -> Limiter {
    let identity = TableIdentity { secret: Secret::new([7; 16]), table_id: 9 };
    Limiter::new(rules, identity, worker.map(|worker| Reporter { pop: "a".into(), worker }))
}

fn ask(limiter: &mut Limiter, slots: &mut dyn Slots, address: &str, now: Time) -> Decision {
    limiter.decide(&mut Client(address.into()), slots, now)
}

fn allows(limiter: &mut Limiter, slots: &mut dyn Slots, address: &str, now: Time) -> bool {
    ask(limiter, slots, address, now).outcome == Outcome::Allow
}

fn admitted(limiter: &mut Limiter, slots: &mut dyn Slots, address: &str, n: u32, now: Time) -> usize {
    (0..n).filter(|_| allows(limiter, slots, address, now)).count()
}

#[test]
fn admits_the_burst_then_tells_when_to_come_back() {
    let (mut limiter, mut slots) = (limiter(one_rule("2/s", 3), None), LocalSlots::new(4));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1:5", 3, T0), 3);
    let refused = ask(&mut limiter, &mut slots, "192.0.2.1:5", T0 + 100 * MS);
    let standing = Standing { remaining: 0, more_ns: 400 * MS, full_ns: 1_400 * MS };
    assert_eq!(refused, Decision { outcome: Outcome::Limit, strictest: Some((0, standing)), hold_ns: 0 });
    // From the deny cache now, and no less true.
    let refused = ask(&mut limiter, &mut slots, "192.0.2.1:5", T0 + 499 * MS);
    assert_eq!(refused.strictest.unwrap().1.more_ns, MS);
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1:5", T0 + 500 * MS));
    assert_eq!(limiter.counters().take_event(Event::DenyCacheAnswered), 1);
    assert_eq!(limiter.counters().take_rule(0).limited, 2);
}

#[test]
fn workers_share_one_bucket() {
    let (mut a, mut b) = (limiter(one_rule("1/m", 10), None), limiter(one_rule("1/m", 10), None));
    let mut slots = LocalSlots::new(4);
    assert_eq!(admitted(&mut a, &mut slots, "192.0.2.1", 6, T0), 6);
    assert_eq!(admitted(&mut b, &mut slots, "192.0.2.1", 6, T0), 4);
}

#[test]
fn takes_from_all_rules_or_from_none() {
    let both = json!([
        {"name": "host", "key": [{"client_address": {"ipv4": 32}}], "rate": "1/m", "burst": 5},
        {"name": "net", "key": [{"client_address": {"ipv4": 24}}], "rate": "1/m", "burst": 7},
    ]);
    let (mut limiter, mut slots) = (limiter(rules(&both), None), LocalSlots::new(64));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, T0), 5);
    // Four refused requests took nothing from the net, so it has 7 - 5 left.
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.2", 9, T0), 2);
    // And the net's refusals took nothing from the second host: 60 s give the net one token.
    assert_eq!(ask(&mut limiter, &mut slots, "192.0.2.3", T0).strictest.unwrap().0, 1);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.3", 9, T0 + 120 * SECOND_NS), 2);
}

#[test]
fn the_strictest_rule_speaks() {
    let both = json!([
        {"name": "wide", "key": ["client_address"], "rate": "1/s", "burst": 100},
        {"name": "tight", "key": ["client_address"], "rate": "1/s", "burst": 2},
    ]);
    let (mut limiter, mut slots) = (limiter(rules(&both), None), LocalSlots::new(4));
    let allowed = ask(&mut limiter, &mut slots, "192.0.2.1", T0).strictest.unwrap();
    assert_eq!((allowed.0, allowed.1.remaining), (1, 1));
}

#[test]
fn a_request_without_an_address_is_let_through_and_counted() {
    let (mut limiter, mut slots) = (limiter(one_rule("1/m", 1), None), LocalSlots::new(4));
    for _ in 0..3 {
        assert_eq!(ask(&mut limiter, &mut slots, "/run/envoy.sock", T0), Decision::UNCOUNTED);
    }
    assert_eq!(limiter.counters().take_event(Event::AddressUnreadable), 3);
}

#[test]
fn rotating_addresses_buys_neither_memory_nor_tokens() {
    let (mut limiter, mut slots) = (limiter(one_rule("1/h", 10), None), LocalSlots::new(8));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 20, T0), 10);
    let through = (0..20_000u32).filter(|n| {
        let [_, b, c, d] = n.to_be_bytes();
        allows(&mut limiter, &mut slots, &std::format!("10.{b}.{c}.{d}"), T0)
    });
    // 8 slots of 15 to 16 newcomers with ten each would be 1270; newcomers come once each here.
    let through = through.count();
    assert!(through <= 8 * (16 + 10), "{through} let through");
    assert!(limiter.counters().take_event(Event::Overflowed) > 10_000);
    assert!(!allows(&mut limiter, &mut slots, "192.0.2.1", T0 + SECOND_NS));
}

/// Slots that let somebody else in between a read and a write.
struct Contended<'a> {
    slots: &'a mut LocalSlots,
    interloper: RefCell<&'a mut dyn FnMut(&mut LocalSlots)>,
}

impl Slots for Contended<'_> {
    fn read(&mut self, index: u32, into: &mut Vec<u8>) -> Result<Version, ReadError> {
        let read = self.slots.read(index, into);
        self.interloper.get_mut()(self.slots);
        read
    }

    fn write(&mut self, i: u32, bytes: &[u8; crate::slot::SLOT_BYTES], v: Version) -> Result<(), WriteError> {
        self.slots.write(i, bytes, v)
    }

    fn count(&self) -> u32 {
        self.slots.count()
    }
}

#[test]
fn a_conflict_is_judged_again_on_what_is_true_now() {
    let rule_set = one_rule("1/m", 10);
    let (mut mine, mut other) = (limiter(rule_set.clone(), None), limiter(rule_set, None));
    let mut slots = LocalSlots::new(1);
    assert_eq!(admitted(&mut mine, &mut slots, "192.0.2.1", 7, T0), 7);
    // The other worker takes two tokens after each of my reads: one is left when I get to write.
    let mut turns = 0;
    let mut interloper = |slots: &mut LocalSlots| {
        turns += 1;
        if turns == 1 {
            assert_eq!(admitted(&mut other, slots, "192.0.2.1", 2, T0), 2);
        }
    };
    let mut contended = Contended { slots: &mut slots, interloper: RefCell::new(&mut interloper) };
    assert!(allows(&mut mine, &mut contended, "192.0.2.1", T0));
    assert_eq!(mine.counters().take_event(Event::CasRetried), 1);
    assert!(!allows(&mut mine, &mut slots, "192.0.2.1", T0));
}

#[test]
fn what_a_later_slot_refuses_an_earlier_one_gets_back() {
    let both = json!([
        {"name": "host", "key": [{"client_address": {"ipv4": 32}}], "rate": "1/m", "burst": 5},
        {"name": "net", "key": [{"client_address": {"ipv4": 24}}], "rate": "1/m", "burst": 5},
    ]);
    let (mut mine, mut other) = (limiter(rules(&both), None), limiter(rules(&both), None));
    let mut slots = LocalSlots::new(1_024);
    let mut turns = 0;
    // Between my reads and my writes, another host uses up the net.
    let mut interloper = |slots: &mut LocalSlots| {
        turns += 1;
        if turns == 2 {
            assert_eq!(admitted(&mut other, slots, "192.0.2.9", 5, T0), 5);
        }
    };
    let mut contended = Contended { slots: &mut slots, interloper: RefCell::new(&mut interloper) };
    assert!(!allows(&mut mine, &mut contended, "192.0.2.1", T0));
    // The host's own bucket is whole: once the net has refilled, all five are there.
    let later = T0 + 300 * SECOND_NS;
    let mut fresh = limiter(rules(&both), None);
    assert_eq!(admitted(&mut fresh, &mut slots, "192.0.2.1", 9, later), 5);
    assert_eq!(mine.counters().take_rule(0).allowed, 0);
}

fn answer(limiter: &mut Limiter, slots: &mut dyn Slots, report: &Report, pops: u32, grant: Grant, now: Time) {
    let grants = vec![Allowance::Hot(grant); report.keys.len()];
    let reply = Reply {
        sequence: report.sequence,
        pops,
        settled: true,
        grants,
        rules: vec![],
        pushed: vec![],
        ..Reply::default()
    };
    limiter.apply(report.sequence, &reply.encode(), slots, now).unwrap();
}

fn grant(part: u64, whole: u64, level_milli: i64) -> Grant {
    Grant { ratio: AdmitRatio::of(part, whole), level_milli, burst: u32::MAX, parts: 1, lease_ms: 2_000 }
}

#[test]
fn a_key_within_its_even_share_stays_off_the_wire() {
    let (mut limiter, mut slots) = (limiter(one_rule("1/m", 40), Some(1)), LocalSlots::new(4));
    let greeting = limiter.report(&mut slots, true, T0).unwrap();
    assert!(greeting.keys.is_empty());
    answer(&mut limiter, &mut slots, &greeting, 4, grant(1, 1, 0), T0);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 5, T0), 5);
    assert_eq!(limiter.report(&mut slots, false, T0 + 250 * MS), None);
    // The sixth of 40 at one POP of four is beyond the half of an even share that is a cold key's.
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0));
    let report = limiter.report(&mut slots, false, T0 + 500 * MS).unwrap();
    assert_eq!((report.keys[0].admitted, report.keys[0].unconfirmed), (6, 6));
    assert_eq!(report.keys[0].value, [4, 32, 192, 0, 2, 1]);
    assert_eq!(report.rules[0].name, "r");
}

/// A limiter with one watched key that has used up its burst of four.
fn watching() -> (Limiter, LocalSlots) {
    let (mut limiter, mut slots) = (limiter(one_rule("100/s", 4), Some(1)), LocalSlots::new(4));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 5, T0), 4);
    (limiter, slots)
}

#[test]
fn counts_are_said_again_until_they_are_confirmed() {
    let (mut limiter, mut slots) = watching();
    let first = limiter.report(&mut slots, false, T0).unwrap();
    assert_eq!((first.keys[0].admitted, first.keys[0].asked), (4, 5));
    limiter.report_failed(first.sequence);
    let again = limiter.report(&mut slots, false, T0).unwrap();
    assert_eq!((&again.keys, again.sequence), (&first.keys, 2));
    // No grants: weir-sync has no budgets to consult, and confirms nothing.
    let reply = Reply {
        sequence: 2,
        pops: 1,
        settled: false,
        grants: vec![],
        rules: vec![],
        pushed: vec![],
        ..Reply::default()
    };
    limiter.apply(2, &reply.encode(), &mut slots, T0).unwrap();
    assert_eq!(limiter.counters().take_event(Event::Ungranted), 1);
    let third = limiter.report(&mut slots, false, T0).unwrap();
    assert_eq!(third.keys, first.keys);
    answer(&mut limiter, &mut slots, &third, 1, grant(1, 1, 4_000), T0);
    assert_eq!(limiter.report(&mut slots, false, T0), None);
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0 + 10 * MS));
    let fourth = limiter.report(&mut slots, false, T0 + 10 * MS).unwrap();
    assert_eq!((fourth.keys[0].admitted, fourth.keys[0].unconfirmed), (5, 1));
}

#[test]
fn nonsense_changes_nothing_and_is_a_failed_report() {
    let (mut limiter, mut slots) = watching();
    let report = limiter.report(&mut slots, false, T0).unwrap();
    for bytes in [&b""[..], b"<html>", &[2], &[1, 0, 0], &[0xff; 300]] {
        assert!(limiter.apply(report.sequence, bytes, &mut slots, T0).is_err(), "{bytes:?}");
    }
    let again = limiter.report(&mut slots, false, T0).unwrap();
    assert_eq!(again.keys, report.keys);
    let too_many = Reply {
        sequence: again.sequence,
        pops: 1,
        settled: true,
        grants: vec![Allowance::Hot(grant(1, 2, 0)); 9],
        rules: vec![],
        pushed: vec![],
        ..Reply::default()
    };
    assert!(limiter.apply(again.sequence, &too_many.encode(), &mut slots, T0).is_err());
    assert_eq!(limiter.report(&mut slots, false, T0).unwrap().keys, report.keys);
}

#[test]
fn an_answer_that_never_comes_is_given_up() {
    let (mut limiter, mut slots) = watching();
    let first = limiter.report(&mut slots, false, T0).unwrap();
    let again = limiter.report(&mut slots, false, T0 + 10 * SECOND_NS).unwrap();
    // The same counts, and since when they wait to be heard.
    let waiting = crate::wire::Key { span_ms: 10_000, ..first.keys[0].clone() };
    assert_eq!(again.keys, [waiting]);
    assert_eq!(limiter.counters().take_event(Event::SyncFailed), 1);
}

#[test]
fn a_report_that_is_not_answered_is_not_waited_for() {
    let (mut limiter, mut slots) = watching();
    let first = limiter.report(&mut slots, false, T0).unwrap();
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0 + 100 * MS));
    let second = limiter.report(&mut slots, false, T0 + 250 * MS).unwrap();
    assert_eq!((second.keys[0].admitted, second.keys[0].unconfirmed), (5, 5));
    assert_eq!((second.keys[0].span_ms, second.keys[0].asked_recently), (250, 2));
    // Whichever answer comes is taken, in any order; what both said is known once.
    answer(&mut limiter, &mut slots, &second, 1, grant(1, 1, 4_000), T0 + 300 * MS);
    answer(&mut limiter, &mut slots, &first, 1, grant(1, 1, 4_000), T0 + 310 * MS);
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0 + 400 * MS));
    let third = limiter.report(&mut slots, false, T0 + 500 * MS).unwrap();
    assert_eq!((third.keys[0].unconfirmed, third.keys[0].asked_recently), (1, 1));
    // Not without end: so many under way, and there is no more to be said.
    let more = (0..9).filter(|_| limiter.report(&mut slots, true, T0 + 600 * MS).is_some()).count();
    assert_eq!(more, REPORTS_MAX - 1);
}

#[test]
fn a_grant_thins_until_its_lease_ends() {
    let (mut limiter, mut slots) = watching();
    let report = limiter.report(&mut slots, false, T0).unwrap();
    answer(&mut limiter, &mut slots, &report, 2, grant(1, 4, 4_000), T0);
    let during =
        (1..=100).filter(|i| allows(&mut limiter, &mut slots, "192.0.2.1", T0 + i * 19 * MS)).count();
    assert!((24..=26).contains(&during), "{during} of 100 at a ratio of 1/4");
    let after = T0 + 3 * SECOND_NS;
    let after =
        (1..=100).filter(|i| allows(&mut limiter, &mut slots, "192.0.2.1", after + i * 19 * MS)).count();
    assert_eq!(after, 100);
}

#[test]
fn a_key_in_debt_is_told_when_the_debt_is_paid() {
    let (mut limiter, mut slots) = watching();
    let report = limiter.report(&mut slots, false, T0).unwrap();
    answer(&mut limiter, &mut slots, &report, 2, grant(0, 1, -996_000), T0);
    // Ten seconds for 1,000 tokens at 100/s, and one more token's time.
    let refused = ask(&mut limiter, &mut slots, "192.0.2.1", T0).strictest.unwrap().1;
    assert_eq!(refused.more_ns, 10 * SECOND_NS - 30 * MS);
    assert!(!allows(&mut limiter, &mut slots, "192.0.2.1", T0 + (refused.more_ns - MS)));
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0 + refused.more_ns));
}

#[test]
fn a_grant_caps_the_bucket_by_what_was_admitted_since_the_report() {
    let (mut limiter, mut slots) = (limiter(one_rule("1/m", 20), Some(1)), LocalSlots::new(4));
    let greeting = limiter.report(&mut slots, true, T0).unwrap();
    answer(&mut limiter, &mut slots, &greeting, 10, grant(1, 1, 0), T0);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 4, T0), 4);
    let report = limiter.report(&mut slots, false, T0).unwrap();
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 2, T0), 2);
    // Five were left in the world when the report was made; two of them are gone.
    answer(&mut limiter, &mut slots, &report, 10, grant(1, 1, 5_000), T0);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, T0), 3);
}

#[test]
fn another_worker_reports_the_same_counts() {
    let rule_set = one_rule("100/s", 4);
    let (mut a, mut b) = (limiter(rule_set.clone(), Some(1)), limiter(rule_set, Some(2)));
    let mut slots = LocalSlots::new(4);
    assert_eq!(admitted(&mut a, &mut slots, "192.0.2.1", 5, T0), 4);
    assert!(allows(&mut b, &mut slots, "192.0.2.1", T0 + 10 * MS));
    let (from_a, from_b) =
        (a.report(&mut slots, false, T0).unwrap(), b.report(&mut slots, false, T0).unwrap());
    assert_eq!(from_a.keys[0].epoch, from_b.keys[0].epoch);
    assert_eq!((from_a.keys[0].admitted, from_b.keys[0].admitted), (5, 5));
    assert_eq!(from_b.keys[0].asked, 6);
    assert_eq!((from_a.keys[0].asked_recently, from_b.keys[0].asked_recently), (1, 1));
}

proptest! {
    /// I3, however many workers, whatever the clock does, with a table too small for its keys.
    #[test]
    fn never_admits_more_than_burst_and_rate(
        steps in prop::collection::vec((0usize..3, 0u8..40, -5i64..80), 1..400),
        reporting in prop::bool::ANY,
    ) {
        let rule_set = one_rule("20/s", 5);
        let quota = rule_set.rules()[0].quota;
        let mut workers: Vec<_> = (0..3).map(|w| limiter(rule_set.clone(), reporting.then_some(w))).collect();
        let (mut slots, mut now, mut earliest, mut latest) = (LocalSlots::new(1), T0, T0, T0);
        let mut admitted = [0u64; 40];
        for (worker, client, step_ms) in steps {
            now = Time::from_nanos(now.as_nanos().saturating_add_signed(step_ms * 1_000_000));
            (earliest, latest) = (earliest.min(now), latest.max(now));
            if allows(&mut workers[worker], &mut slots, &std::format!("10.0.0.{client}"), now) {
                admitted[usize::from(client)] += 1;
            }
            let most = u64::from(quota.burst()) + latest.nanos_since(earliest) / quota.token_ns();
            prop_assert!(admitted.iter().all(|&n| n <= most), "{:?} > {}", admitted, most);
        }
    }

    /// I7, the POP's half: whatever is lost or repeated, the counts say what was admitted.
    #[test]
    fn reports_add_up_to_what_was_admitted(
        steps in prop::collection::vec((0usize..2, 0u8..3, 0u64..200), 1..200),
    ) {
        let rule_set = one_rule("30/s", 3);
        let mut workers: Vec<_> = (0..2).map(|w| limiter(rule_set.clone(), Some(w))).collect();
        let (mut slots, mut now, mut admitted) = (LocalSlots::new(1), T0, 0u64);
        let (mut epoch, mut charged) = (None, 0u64);
        for (worker, what, step_ms) in steps {
            now += step_ms * MS;
            let limiter = &mut workers[worker];
            admitted += u64::from(allows(limiter, &mut slots, "192.0.2.1", now));
            if what == 0 { continue; }
            let Some(report) = limiter.report(&mut slots, false, now) else { continue };
            for key in &report.keys {
                // The receiver's rule: the maximum of an epoch it knows, else what is unconfirmed.
                charged = match epoch {
                    Some(known) if known == key.epoch => charged.max(key.admitted),
                    _ => charged + key.unconfirmed,
                };
                epoch = Some(key.epoch);
                prop_assert_eq!(charged, key.admitted);
            }
            if what == 1 { limiter.report_failed(report.sequence); } else {
                answer(limiter, &mut slots, &report, 2, grant(1, 1, 3_000), now);
            }
        }
        let last = workers[0].report(&mut slots, false, now + 11 * SECOND_NS);
        let told = last.and_then(|report| report.keys.first().map(|key| key.admitted));
        prop_assert!(told.is_none_or(|told| told <= admitted), "{:?} told of {}", told, admitted);
    }
}
