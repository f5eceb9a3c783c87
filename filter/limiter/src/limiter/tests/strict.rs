//! Strict rules: only tokens that were paid for are spent.

use super::*;
use crate::sync::OWN_MAX;
use weir_protocol::messages::Leased;

fn strict(on_sync_loss: &str) -> (Limiter, LocalSlots) {
    let rule = json!([{"name": "login", "key": ["client_address"], "rate": "5/m", "strict": true,
                       "on_sync_loss": on_sync_loss}]);
    (limiter(rules(&rule), Some(1)), LocalSlots::new(4))
}

fn leased(sequence: u64, charged: u64, lease_ms: u32) -> Vec<u8> {
    reply(sequence, 1, vec![Allowance::Leased(Leased::of(charged, lease_ms))])
}

/// Asks, and expects to have to wait.
fn wait(limiter: &mut Limiter, slots: &mut LocalSlots, now: Time) -> (Report, u64) {
    waiting_for(ask(limiter, slots, "192.0.2.1", now))
}

fn again(limiter: &mut Limiter, answered: bool, slots: &mut LocalSlots, now: Time) -> DecisionKind {
    limiter.decide_again(answered, &mut Client("192.0.2.1".into()), slots, now).outcome()
}

/// The decision for a request of `address` at `T0` that waits for `charged` tokens and gets them.
fn acquire(limiter: &mut Limiter, slots: &mut LocalSlots, address: &str, charged: u64) -> (Report, Decision) {
    let (report, number) = waiting_for(ask(limiter, slots, address, T0));
    let mut grants = vec![Allowance::Leased(Leased::NONE); report.keys.len()];
    *grants.last_mut().unwrap() = Allowance::Leased(Leased::of(charged, 9_000));
    // Only the last key is settled: those before it are given back, which is still to be confirmed.
    let settled = Settled::of((0..grants.len()).map(|n| n + 1 == grants.len()));
    let reply = Reply { sequence: report.sequence, pops: 1, settled, grants, ..Reply::default() };
    limiter.acquired(number, &reply.encode(), slots, T0).unwrap();
    let decision = limiter.decide_again(true, &mut Client(address.into()), slots, T0);
    (report, decision)
}

/// The returns of two keys in one report, whose epochs have one number; the reply settles one of them.
// I5
#[test]
fn a_reply_confirms_the_return_of_the_key_that_it_settles() {
    for settled in [0, 1] {
        let (mut limiter, mut slots) = strict("deny");
        for address in ["192.0.2.1", "192.0.2.2"] {
            assert_eq!(acquire(&mut limiter, &mut slots, address, 3).1.outcome(), DecisionKind::Allow);
        }
        let report = limiter.report(&mut slots, true, T0 + 250 * MS).unwrap();
        assert_eq!(epochs(&report), [(report.keys[0].epoch, 1, 0); 2]);
        let reply = Reply {
            sequence: report.sequence,
            pops: 1,
            settled: Settled::of([0, 1].iter().map(|at| *at == settled)),
            grants: vec![Allowance::Leased(Leased::NONE); 2],
            ..Reply::default()
        };
        limiter.apply(report.sequence, &reply.encode(), &mut slots, T0 + 300 * MS).unwrap();
        let again = limiter.report(&mut slots, true, T0 + 500 * MS).unwrap();
        let values: Vec<_> = again.keys.iter().map(|key| &key.value).collect();
        assert_eq!(values, [&report.keys[1 - settled].value]);
    }
}

/// A request's epoch has the number of one that another key gives back.
// I6
#[test]
fn a_requests_cost_is_not_recorded_for_a_returned_key() {
    let (mut first, mut slots) = strict("deny");
    let epoch = acquire(&mut first, &mut slots, "192.0.2.1", 3).0.keys[0].epoch;
    let rule = json!([{"name": "login", "key": ["client_address"], "rate": "5/m", "strict": true}]);
    // The number of a worker's first epoch for a single request.
    let worker = u64::from(epoch.wrapping_sub(0x9e37_79b1));
    let (mut limiter, mut slots) = (limiter(rules(&rule), Some(worker)), LocalSlots::new(4));
    acquire(&mut limiter, &mut slots, "192.0.2.1", 3);
    let lost = limiter.report(&mut slots, true, T0 + 250 * MS).unwrap();
    limiter.report_failed(lost.sequence, T0 + 250 * MS);
    limiter.current.is_reserving = true;
    let (report, decision) = acquire(&mut limiter, &mut slots, "192.0.2.2", 5);
    assert_eq!(epochs(&report), [(epoch, 1, 0), (epoch, 0, 1)]);
    for done in afterwards(decision) {
        limiter.charge(done, 3, &mut slots, T0);
    }
    let report = limiter.report(&mut slots, true, T0 + 500 * MS).unwrap();
    assert_eq!(epochs(&report), [(epoch, 1, 0), (epoch, 3, 0)]);
}

/// A worker that can keep no more epochs keeps the tokens in their entry instead.
#[test]
fn tokens_are_returned_only_if_that_can_be_repeated() {
    for (held, is_given_back) in [(OWN_MAX / 2 + 1, true), (OWN_MAX, false)] {
        let (mut limiter, mut slots) = strict("deny");
        let epoch = acquire(&mut limiter, &mut slots, "192.0.2.1", 3).0.keys[0].epoch;
        limiter.current.is_reserving = true;
        for n in 0..held {
            let address = std::format!("10.0.{}.{}", n / 256, n % 256);
            assert_eq!(acquire(&mut limiter, &mut slots, &address, 1).1.outcome(), DecisionKind::Allow);
        }
        let (report, _) = wait(&mut limiter, &mut slots, T0);
        limiter.current.is_reserving = false;
        let is_on_hand = ask(&mut limiter, &mut slots, "192.0.2.1", T0).outcome() == DecisionKind::Allow;
        let found = (epochs(&report).contains(&(epoch, 1, 0)), is_on_hand);
        assert_eq!(found, (is_given_back, !is_given_back), "{held}");
        // A report gives the rest back once, which is counted if it cannot be repeated.
        limiter.report(&mut slots, true, T0 + 250 * MS).unwrap();
        let counted = limiter.counters().take_event(CountedEvent::Uncharged);
        assert_eq!(counted, u32::from(!is_given_back), "{held}");
    }
}

#[test]
fn a_first_touch_waits_for_one_token_and_spends_it() {
    let (mut limiter, mut slots) = strict("deny");
    let (report, acquire) = wait(&mut limiter, &mut slots, T0);
    let key = &report.keys[0];
    assert_eq!((key.admitted, key.ahead, report.rules[0].sharing.strict), (0, 1, true));
    let later = T0 + 90 * MS;
    assert!(limiter.acquired(acquire, &leased(report.sequence, 1, 2_000), &mut slots, later).unwrap());
    assert_eq!(again(&mut limiter, true, &mut slots, later), DecisionKind::Allow);
    // The token is spent, so the next request waits again.
    let (report, acquire) = wait(&mut limiter, &mut slots, later);
    assert_eq!((report.keys[0].admitted, report.keys[0].ahead), (1, 1));
    assert!(limiter.acquired(acquire, &leased(report.sequence, 1, 2_000), &mut slots, later).unwrap());
    assert_eq!(again(&mut limiter, true, &mut slots, later), DecisionKind::Limit);
    // The next request is refused at once until a token may have come.
    assert_eq!(ask(&mut limiter, &mut slots, "192.0.2.1", later + 400 * MS).outcome(), DecisionKind::Limit);
    assert_eq!(ask(&mut limiter, &mut slots, "192.0.2.1", later + 600 * MS).outcome(), DecisionKind::Wait);
    assert_eq!(limiter.counters().take_event(CountedEvent::Paused), 3);
}

/// A strict rule of `rate` for each address.
fn hourly(rate: &str, burst: u32, on_sync_loss: &str) -> (Limiter, LocalSlots) {
    let rule = json!([{"name": "reset", "key": ["client_address"], "rate": rate, "burst": burst, "strict": true,
                       "on_sync_loss": on_sync_loss}]);
    (limiter(rules(&rule), Some(1)), LocalSlots::new(1))
}

#[test]
fn a_status_counts_tokens_in_the_budget_and_on_hand() {
    let (mut limiter, mut slots) = hourly("5/h", 5, "deny");
    let (report, acquire) = wait(&mut limiter, &mut slots, T0);
    let grants = vec![Allowance::Leased(Leased { left: 2, ..Leased::of(report.keys[0].admitted + 3, 2_000) })];
    assert!(limiter.acquired(acquire, &reply(report.sequence, 1, grants), &mut slots, T0).unwrap());
    let first = limiter.decide_again(true, &mut Client("192.0.2.1".into()), &mut slots, T0);
    assert_eq!(first.strictest().unwrap().1.remaining, 4);
    let next = [(); 2].map(|()| ask(&mut limiter, &mut slots, "192.0.2.1", T0).strictest().unwrap().1.remaining);
    assert_eq!(next, [3, 2], "of tokens on hand");
}

// I6
#[test]
fn leased_tokens_are_spent_at_once_until_the_lease_ends() {
    let (mut limiter, mut slots) = strict("deny");
    let (report, acquire) = wait(&mut limiter, &mut slots, T0);
    limiter.acquired(acquire, &leased(report.sequence, 4, 2_000), &mut slots, T0 + 500 * MS).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, T0 + 500 * MS), DecisionKind::Allow);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 1, T0 + 1_995 * MS), 1);
    // The two seconds begin when the acquire was made, not when its answer came.
    assert_eq!(ask(&mut limiter, &mut slots, "192.0.2.1", T0 + 2_000 * MS).outcome(), DecisionKind::Wait);
}

/// A request counts by two rules, and the budget of one of them is out of reach: its own `on_sync_loss` decides about
/// it, and nothing else.
#[test]
fn a_key_without_its_store_is_decided_by_its_rule() {
    let rule = |name, on_sync_loss| {
        json!({"name": name, "key": ["client_address"], "rate": "5/m", "strict": true,
               "on_sync_loss": on_sync_loss})
    };
    let paid = Leased::of(1, 2_000);
    for (on_sync_loss, lease, expected) in [
        ("local", paid, DecisionKind::Allow),
        ("deny", paid, DecisionKind::Deny),
        ("local", Leased::of(0, 2_000), DecisionKind::Limit),
    ] {
        let rules = rules(&json!([rule("living", "local"), rule("dead", on_sync_loss)]));
        let (mut limiter, mut slots) = (limiter(rules, Some(1)), LocalSlots::new(4));
        let (report, acquire) = wait(&mut limiter, &mut slots, T0);
        let dead = report.keys.iter().position(|key| report.rules[usize::from(key.rule)].name == "dead").unwrap();
        let settled = Settled::But(vec![1 << dead]);
        let mut grants = vec![Allowance::Leased(lease); 2];
        grants[dead] = Allowance::Leased(Leased::NONE);
        let reply = Reply { sequence: report.sequence, pops: 1, settled, grants, ..Reply::default() };
        assert!(limiter.acquired(acquire, &reply.encode(), &mut slots, T0).unwrap());
        assert_eq!(again(&mut limiter, true, &mut slots, T0), expected, "{on_sync_loss}, {lease:?}");
        assert!(limiter.current.in_vain.is_empty(), "the next request asks again");
    }
}

/// The same where the other slot was fine when it was read.
// I3
#[test]
fn a_token_is_returned_if_another_rule_refuses() {
    let net = json!({"name": "net", "key": [{"client_address": {"ipv4": 8}}], "rate": "1/h", "burst": 2});
    for (rate, burst) in [("5/m", 5), ("100/s", 1_000)] {
        let login = json!({"name": "login", "key": ["client_address"], "rate": rate, "burst": burst, "strict": true});
        let mut slots = LocalSlots::new(64);
        let mut mine = limiter(rules(&json!([login, net])), Some(1));
        let mut other = limiter(rules(&json!([net])), None);
        let (report, acquire) = wait(&mut mine, &mut slots, T0);
        mine.acquired(acquire, &leased(report.sequence, 3, 9_000), &mut slots, T0).unwrap();
        assert_eq!(again(&mut mine, true, &mut slots, T0), DecisionKind::Allow);
        let mut reads = 0;
        let mut interloper = |slots: &mut LocalSlots| {
            reads += 1;
            if reads == 2 {
                assert!(allows(&mut other, slots, "192.9.9.9", T0));
            }
        };
        let mut contended = Contended { slots: &mut slots, interloper: RefCell::new(&mut interloper) };
        assert_eq!(ask(&mut mine, &mut contended, "192.0.2.1", T0).outcome(), DecisionKind::Limit);
        assert!(reads >= 4, "decided again, and given back");
        let report = mine.report(&mut slots, true, T0).unwrap();
        let of_login = report.keys.iter().filter(|key| report.rules[usize::from(key.rule)].name == "login");
        assert_eq!(of_login.map(|key| key.admitted).collect::<Vec<_>>(), [1], "{rate}");
    }
}

/// The epochs in a report, with the tokens that were spent and those that are wanted.
fn epochs(report: &Report) -> Vec<(u32, u64, u32)> {
    report.keys.iter().map(|key| (key.epoch, key.admitted, key.ahead)).collect()
}

#[test]
fn an_unused_lease_is_returned_until_an_answer_confirms_it() {
    let (mut limiter, mut slots) = strict("deny");
    let (report, acquire) = wait(&mut limiter, &mut slots, T0);
    let epoch = report.keys[0].epoch;
    limiter.acquired(acquire, &leased(report.sequence, 3, 2_000), &mut slots, T0).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Allow);
    let mut reported = |ms| limiter.report(&mut slots, true, T0 + ms * MS).unwrap();
    let lost = reported(250);
    assert_eq!(epochs(&lost), [(epoch, 1, 0)]);
    assert_eq!(epochs(&reported(500)), [], "it is under way");
    limiter.report_failed(lost.sequence, T0 + 600 * MS);
    let second = limiter.report(&mut slots, true, T0 + 750 * MS).unwrap();
    assert_eq!(epochs(&second), [(epoch, 1, 0)]);
    limiter.apply(second.sequence, &leased(second.sequence, 0, 0), &mut slots, T0 + 800 * MS).unwrap();
    assert_eq!(epochs(&limiter.report(&mut slots, true, T0 + 1_000 * MS).unwrap()), []);
    limiter.report(&mut slots, true, T0 + 3_000 * MS).unwrap();
    assert_eq!(limiter.counters().take_event(CountedEvent::Uncharged), 0);
}

#[test]
fn unused_tokens_whose_lease_ends_before_they_are_given_back_are_counted() {
    for (spent, counted) in [(1, 1), (3, 0)] {
        let (mut limiter, mut slots) = strict("deny");
        let (report, acquire) = wait(&mut limiter, &mut slots, T0);
        limiter.acquired(acquire, &leased(report.sequence, 3, 2_000), &mut slots, T0).unwrap();
        assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Allow);
        for _ in 1..spent {
            assert_eq!(ask(&mut limiter, &mut slots, "192.0.2.1", T0).outcome(), DecisionKind::Allow);
        }
        for ms in [250, 1_900, 2_000] {
            let report = limiter.report(&mut slots, true, T0 + ms * MS).unwrap();
            limiter.report_failed(report.sequence, T0 + ms * MS);
        }
        assert_eq!(limiter.counters().take_event(CountedEvent::Uncharged), counted, "{spent} of 3 spent");
    }
}

/// The budget may have been debited, and the answer lost.
#[test]
fn tokens_of_a_failed_acquire_are_returned() {
    let (mut limiter, mut slots) = strict("deny");
    let (lost, acquire) = wait(&mut limiter, &mut slots, T0);
    limiter.acquire_failed(acquire, &mut slots, T0 + 500 * MS);
    assert_eq!(again(&mut limiter, false, &mut slots, T0 + 500 * MS), DecisionKind::Deny);
    limiter.sync.as_mut().unwrap().observe(1, false, T0 + 500 * MS);
    // The next call for a token gives it back before it asks.
    let (report, acquire) = wait(&mut limiter, &mut slots, T0 + 501 * MS);
    let next = report.keys[1].epoch;
    assert_eq!(epochs(&report), [(lost.keys[0].epoch, 0, 0), (next, 0, 1)]);
    limiter.acquire_failed(acquire, &mut slots, T0 + 600 * MS);
    let report = limiter.report(&mut slots, false, T0 + 750 * MS).unwrap();
    assert_eq!(epochs(&report), [(lost.keys[0].epoch, 0, 0), (next, 0, 0)]);
}

#[test]
fn a_small_part_of_a_burst_needs_no_report() {
    let rule = json!([{"name": "login", "key": ["client_address"], "rate": "128/s", "strict": true}]);
    let (mut limiter, mut slots) = (limiter(rules(&rule), Some(1)), LocalSlots::new(4));
    for (charged, expected) in [(1, None), (2, None), (3, Some((3, 0)))] {
        let now = T0 + charged * 300 * MS;
        let (report, acquire) = wait(&mut limiter, &mut slots, now);
        // The next acquire contains the count.
        assert_eq!((report.keys[0].admitted, report.keys[0].ahead), (charged - 1, 1));
        assert!(limiter.acquired(acquire, &leased(report.sequence, charged, 2_000), &mut slots, now).unwrap());
        assert_eq!(again(&mut limiter, true, &mut slots, now), DecisionKind::Allow);
        let report = limiter.report(&mut slots, false, now + 250 * MS);
        assert_eq!(report.map(|report| (report.keys[0].admitted, report.keys[0].ahead)), expected, "{charged}");
    }
}

// I6
#[test]
fn an_epoch_whose_lease_has_ended_is_never_named_again() {
    let (mut limiter, mut slots) = strict("deny");
    let (mut names, mut now) = (vec![], T0);
    for round in 0..20 {
        let (report, acquire) = wait(&mut limiter, &mut slots, now);
        names.push(report.keys[0].epoch);
        // The lease has ended when it arrives, or the answer ends the epoch.
        let lease_ms = 9 * u32::from(round % 2 == 1);
        limiter.acquired(acquire, &leased(report.sequence, 9, lease_ms), &mut slots, now + 5).unwrap();
        if lease_ms > 0 {
            assert_eq!(again(&mut limiter, true, &mut slots, now + 5), DecisionKind::Allow);
        }
        let report = limiter.report(&mut slots, true, now + 6).unwrap();
        limiter.report_failed(report.sequence, now + 6);
        now += if lease_ms > 0 { 9 * MS } else { 100_000 };
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 20);
}
