//! What a POP does with what weir-sync tells it, and what it does out of touch.

use super::*;
use crate::buckets::TakeResult;
use crate::fleet::connectivity::{Connectivity, FALLBACK_NS, STALE_NS};
use weir_protocol::messages::{self, POPS_MAX};
use weir_rules::address::Prefixes;
use weir_rules::key::KeyValue;

/// A limiter of one rule with these fields beside it, that has heard of `pops` POPs at T0.
fn in_a_fleet(rate: &str, burst: u32, fields: &Value, pops: u32) -> Limiter {
    let mut rule = json!({"name": "r", "key": ["client_address"], "rate": rate, "burst": burst});
    rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let mut limiter = limiter(rules(&json!([rule])), Some(1));
    limiter.record_reply(pops, false, T0);
    limiter
}

fn answer_warm(limiter: &mut Limiter, slots: &mut LocalSlots, report: &Report, now: Time) {
    let grants = vec![Allowance::Warm; report.keys.len()];
    let reply = Reply {
        sequence: report.sequence,
        pops: 4,
        settled: Settled::All,
        grants,
        rules: vec![],
        pushed: vec![],
        ..Reply::default()
    };
    limiter.apply(reply.sequence, &reply.encode(), slots, now).unwrap();
}

// I4
#[test]
fn a_warm_key_is_reported_in_its_own_time_or_when_it_grows() {
    let (mut limiter, mut slots) = (in_a_fleet("100/s", 100, &json!({}), 1_000), LocalSlots::new(4));
    // Four requests a second: every other interval there is something to report.
    let ask_until = |limiter: &mut Limiter, slots: &mut LocalSlots, from: u64, to: u64| {
        (from..to).step_by(250).for_each(|ms| assert!(allows(limiter, slots, "192.0.2.1", T0 + ms * MS)));
    };
    ask_until(&mut limiter, &mut slots, 0, 1_000);
    let first = limiter.report(&mut slots, false, T0 + 1_000 * MS).unwrap();
    assert_eq!(first.keys[0].admitted, 4);
    answer_warm(&mut limiter, &mut slots, &first, T0 + 1_100 * MS);
    for ms in (1_000..3_000).step_by(250) {
        ask_until(&mut limiter, &mut slots, ms, ms + 250);
        assert_eq!(limiter.report(&mut slots, false, T0 + (ms + 249) * MS), None, "{ms} ms");
    }
    let second = limiter.report(&mut slots, false, T0 + 3_000 * MS).unwrap();
    assert_eq!((second.keys[0].admitted, second.keys[0].unconfirmed), (12, 8));
    assert_eq!((second.keys[0].span_ms, second.keys[0].asked_recently), (2_000, 8));
    answer_warm(&mut limiter, &mut slots, &second, T0 + 3_100 * MS);
    // It is asked for much more than before, so it is reported now and not in two seconds.
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 5, T0 + 3_200 * MS), 5);
    let third = limiter.report(&mut slots, false, T0 + 3_250 * MS).unwrap();
    assert_eq!(third.keys[0].asked_recently, 5);
}

// I4
#[test]
fn a_key_that_turns_hot_is_reported_every_interval() {
    let (mut limiter, mut slots) = (in_a_fleet("100/s", 100, &json!({}), 1_000), LocalSlots::new(4));
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0));
    let first = limiter.report(&mut slots, false, T0).unwrap();
    answer_warm(&mut limiter, &mut slots, &first, T0);
    let greeting = limiter.report(&mut slots, true, T0 + 250 * MS).unwrap();
    let value = KeyValue::of_address("192.0.2.1".parse().unwrap(), Prefixes::default());
    let quota = limiter.rules().rules()[0].quota;
    let grant = grant(1, 1, 50_000);
    let pushed = messages::PushedGrant { rule: 0, value: value.as_bytes().to_vec(), quota, grant };
    let reply = Reply {
        sequence: greeting.sequence,
        pops: 1_000,
        settled: Settled::All,
        grants: vec![],
        rules: vec!["r".into()],
        pushed: vec![pushed],
        ..Reply::default()
    };
    limiter.apply(reply.sequence, &reply.encode(), &mut slots, T0 + 260 * MS).unwrap();
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0 + 300 * MS));
    assert_eq!(limiter.report(&mut slots, false, T0 + 500 * MS).unwrap().keys.len(), 1);
}

// I3
#[test]
fn a_key_the_fleet_has_not_heard_of_has_the_local_burst() {
    let fields = json!({"local_burst": 25});
    let (mut limiter, mut slots) = (in_a_fleet("100/s", 100, &fields, 2), LocalSlots::new(4));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 100, T0), 25);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 100, T0 + 900 * MS), 25);
    let report = limiter.report(&mut slots, false, T0 + 900 * MS).unwrap();
    // Nobody else asks: the whole burst is this POP's, once it has refilled.
    let whole = Grant { burst: 100, ..grant(1, 1, 75_000) };
    answer(&mut limiter, &mut slots, &report, 2, whole, T0 + 900 * MS);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 200, T0 + 1_700 * MS), 80);
}

// I3
#[test]
fn a_bucket_holds_no_more_than_its_grant_says() {
    let (mut limiter, mut slots) = (in_a_fleet("100/s", 100, &json!({}), 2), LocalSlots::new(4));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 60, T0), 60);
    let report = limiter.report(&mut slots, false, T0).unwrap();
    answer(&mut limiter, &mut slots, &report, 2, Grant { burst: 7, ..grant(1, 1, 100_000) }, T0);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 50, T0 + 1_000 * MS), 7);
    // Until the lease ends.
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 200, T0 + 3_000 * MS), 100);
}

// I7
#[test]
fn grants_that_settle_nothing_are_held_and_confirm_nothing() {
    let (mut limiter, mut slots) = watching();
    let report = limiter.report(&mut slots, false, T0).unwrap();
    let grants = vec![Allowance::Hot(grant(0, 1, 4_000))];
    let reply = Reply {
        sequence: report.sequence,
        pops: 2,
        settled: Settled::None,
        grants,
        rules: vec![],
        pushed: vec![],
        ..Reply::default()
    };
    limiter.apply(reply.sequence, &reply.encode(), &mut slots, T0).unwrap();
    assert!(!allows(&mut limiter, &mut slots, "192.0.2.1", T0 + 1_000 * MS), "thinned to nothing");
    let again = limiter.report(&mut slots, false, T0 + 1_000 * MS).unwrap();
    assert_eq!((again.keys[0].admitted, again.keys[0].unconfirmed), (4, 4));
    assert_eq!(limiter.counters().take_event(CountedEvent::Partial), 1);
}

/// A part of weir-sync's store is out of reach.
#[test]
fn of_a_report_those_keys_are_confirmed_that_are_charged_and_the_others_are_said_again() {
    let (mut limiter, mut slots) = watching();
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.2", 5, T0), 4);
    let report = limiter.report(&mut slots, false, T0).unwrap();
    let settled = Settled::But(vec![0b10]);
    let grants = vec![Allowance::Hot(grant(1, 1, 0)); 2];
    let reply = Reply { sequence: report.sequence, pops: 2, settled, grants, ..Reply::default() };
    limiter.apply(reply.sequence, &reply.encode(), &mut slots, T0).unwrap();
    let again = limiter.report(&mut slots, false, T0 + 10 * MS).unwrap();
    let said: Vec<_> = again.keys.iter().map(|key| (&key.value, key.admitted, key.unconfirmed)).collect();
    assert_eq!(said, [(&report.keys[1].value, 4, 4)]);
    // The charged one has something new to say.
    assert!(allows(&mut limiter, &mut slots, address_of(&report.keys[0]), T0 + 500 * MS));
    let later = limiter.report(&mut slots, false, T0 + 500 * MS).unwrap();
    let said = later.keys.iter().find(|key| key.value == report.keys[0].value).unwrap();
    assert_eq!((said.admitted, said.unconfirmed), (5, 1));
    assert_eq!(limiter.counters().take_event(CountedEvent::Partial), 1);
}

/// The client whose key this is.
fn address_of(key: &messages::Key) -> &'static str {
    if key.value.ends_with(&[1]) { "192.0.2.1" } else { "192.0.2.2" }
}

// I5
#[test]
fn a_pop_says_how_many_pops_it_has_heard_of_and_takes_no_guess_for_it() {
    let rule = json!([{"name": "r", "key": ["client_address"], "rate": "1/m"}]);
    let (mut limiter, mut slots) = (limiter(rules(&rule), Some(1)), LocalSlots::new(4));
    let mut said_after = |limiter: &mut Limiter, pops, is_guess| {
        let report = limiter.report(&mut slots, true, T0).unwrap();
        let reply =
            Reply { sequence: report.sequence, pops, is_guess, settled: Settled::All, ..Reply::default() };
        limiter.apply(reply.sequence, &reply.encode(), &mut slots, T0).unwrap();
        limiter.report(&mut slots, true, T0).map(|next| {
            limiter.report_failed(next.sequence, T0);
            (next.pops, limiter.pops().unwrap(), limiter.connectivity().unwrap().step(T0))
        })
    };
    assert_eq!(said_after(&mut limiter, 3, true), Some((0, 3, Connectivity::Stale)), "nobody knows");
    assert_eq!(said_after(&mut limiter, 30, false), Some((30, 30, Connectivity::Fresh)));
    assert_eq!(said_after(&mut limiter, 3, true), Some((30, 30, Connectivity::Fresh)), "it knows better");
    assert_eq!(said_after(&mut limiter, 20, false), Some((20, 20, Connectivity::Fresh)));
    // What another worker has heard counts as well, and is bounded.
    limiter.record_reply(u32::MAX >> 1, false, T0);
    assert_eq!(limiter.report(&mut slots, true, T0).unwrap().pops, POPS_MAX);
}

// I3
#[test]
fn out_of_touch_the_rule_says_what_becomes_of_its_keys() {
    let lost = T0 + FALLBACK_NS;
    for (policy, before, after) in [("local", 100, 100), ("share", 100, 25), ("deny", 100, 0)] {
        let fields = json!({"on_sync_loss": policy});
        let (mut limiter, mut slots) = (in_a_fleet("1/m", 100, &fields, 4), LocalSlots::new(4));
        assert_eq!(limiter.connectivity().unwrap().step(T0 + STALE_NS), Connectivity::Stale);
        let stale = T0 + (FALLBACK_NS - 1);
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 200, stale), before, "{policy}");
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.2", 200, lost), after, "{policy}");
        let refused = ask(&mut limiter, &mut slots, "192.0.2.2", lost);
        let expected = if policy == "deny" { DecisionKind::Deny } else { DecisionKind::Limit };
        assert_eq!(refused.outcome(), expected, "{policy}");
        let denied = limiter.counters().take_rule(0).denied;
        assert_eq!(denied, if policy == "deny" { 201 } else { 0 });
        // In touch again.
        limiter.record_reply(4, false, lost);
        assert!(allows(&mut limiter, &mut slots, "192.0.2.3", lost));
    }
}

#[test]
fn a_rule_that_fails_closed_is_closed_until_weir_sync_is_heard_of() {
    let rule = json!([{"name": "r", "key": ["client_address"], "rate": "9/s", "on_sync_loss": "deny"}]);
    let (mut limiter, mut slots) = (limiter(rules(&rule), Some(1)), LocalSlots::new(4));
    let denied = ask(&mut limiter, &mut slots, "192.0.2.1", T0);
    assert_eq!(denied.outcome(), DecisionKind::Deny);
    let greeting = limiter.report(&mut slots, true, T0).unwrap();
    answer(&mut limiter, &mut slots, &greeting, 1, grant(1, 1, 0), T0);
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0));
}

// I3
#[test]
fn an_even_share_is_never_less_than_a_token_nor_more_than_its_rate() {
    let fields = json!({"on_sync_loss": "share"});
    let (mut limiter, mut slots) = (in_a_fleet("100/s", 100, &fields, 330), LocalSlots::new(4));
    let lost = T0 + FALLBACK_NS;
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, lost), 1);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, lost + 3_299 * MS), 0);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, lost + 3_300 * MS), 1);
}

/// At 330 POPs a token of a fair share costs 330 tokens, more than an hour of refill.
// I3
#[test]
fn what_an_even_share_costs_is_not_owed_once_in_touch_again() {
    let fields = json!({"on_sync_loss": "share"});
    for is_granted in [false, true] {
        let (mut limiter, mut slots) = (in_a_fleet("5/m", 5, &fields, 330), LocalSlots::new(4));
        let lost = T0 + FALLBACK_NS;
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, lost), 1);
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, lost + 5 * SECOND_NS), 0);
        let found = lost + 11 * SECOND_NS;
        limiter.record_reply(330, false, found);
        if is_granted {
            let report = limiter.report(&mut slots, false, found).unwrap();
            answer(&mut limiter, &mut slots, &report, 330, grant(1, 1, 4_000), found);
        }
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, found), 4, "of five it had one");
        limiter.record_reply(330, false, found + 12 * SECOND_NS);
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, found + 12 * SECOND_NS), 1);
    }
}

/// With a ratio of 3/4 a client that stops is let through after 0.75 s and a quarter of a second more.
#[test]
fn a_thinned_client_is_told_when_its_budget_lets_everything_through_again() {
    for (part, wait_ms) in [(0, 1_750), (1, 1_500), (3, 1_000)] {
        let (mut limiter, mut slots) = watching();
        let report = limiter.report(&mut slots, false, T0).unwrap();
        answer(&mut limiter, &mut slots, &report, 2, grant(part, 4, 4_000), T0);
        let later = T0 + 100 * MS;
        let refused = (0..8).map(|_| ask(&mut limiter, &mut slots, "192.0.2.1", later));
        let refused = refused.into_iter().find(|decision| decision.outcome() == DecisionKind::Limit).unwrap();
        assert_eq!(refused.strictest().unwrap().1.more_ns, wait_ms * MS, "{part}/4");
    }
}

/// The worker that admitted got no answer for seconds. Another worker, which meets the key only now, reports since
/// when the counts are unheard.
#[test]
fn a_worker_that_learns_of_a_key_says_since_when_nobody_has_heard_of_it() {
    let mut slots = LocalSlots::new(4);
    let (mut first, mut second) =
        (in_a_fleet("100/s", 100, &json!({}), 1_000), in_a_fleet("100/s", 100, &json!({}), 1_000));
    for ms in (0..4_000).step_by(250) {
        assert!(allows(&mut first, &mut slots, "192.0.2.1", T0 + ms * MS));
    }
    let now = T0 + 4_000 * MS;
    assert!(allows(&mut second, &mut slots, "192.0.2.1", now));
    let report = second.report(&mut slots, false, now).unwrap();
    assert_eq!((report.keys[0].admitted, report.keys[0].unconfirmed), (17, 17));
    assert!((3_990..=4_000).contains(&report.keys[0].span_ms), "{} ms", report.keys[0].span_ms);
    // What is confirmed is not reported again; what was admitted after the report was made is.
    assert!(allows(&mut second, &mut slots, "192.0.2.1", now + 100 * MS));
    answer(&mut second, &mut slots, &report, 1_000, grant(1, 1, 50_000), now + 200 * MS);
    let report = first.report(&mut slots, false, now + 250 * MS).unwrap();
    assert_eq!(report.keys[0].unconfirmed, 1);
    let third = second.report(&mut slots, false, now + 250 * MS).unwrap();
    assert!((150..=260).contains(&third.keys[0].span_ms), "{} ms", third.keys[0].span_ms);
}

proptest! {
    /// I3: however much of a fair share's charge is forgiven, a plain bucket would have had every token admitted.
    #[test]
    fn in_and_out_of_touch_no_more_is_admitted_than_one_bucket_has(
        steps in prop::collection::vec((prop_oneof![0u64..300, 5_000..9_000u64], 0u8..4), 1..200),
        pops in 1u32..20,
    ) {
        let mut limiter = in_a_fleet("2/s", 5, &json!({"on_sync_loss": "share"}), pops);
        let (mut slots, mut bucket, mut now) = (LocalSlots::new(4), Bucket::FULL, T0);
        let quota = limiter.rules().rules()[0].quota;
        for (step_ms, what) in steps {
            now += step_ms * MS;
            if what == 0 {
                limiter.record_reply(pops, false, now);
            }
            if what == 1 && let Some(report) = limiter.report(&mut slots, false, now) {
                answer(&mut limiter, &mut slots, &report, pops, grant(1, 1, 3_000), now);
            }
            if allows(&mut limiter, &mut slots, "192.0.2.1", now) {
                let TakeResult::Taken(after) = bucket.take(&quota, 1, now) else {
                    return Err(TestCaseError::fail("it had none left"));
                };
                bucket = after;
            }
        }
    }
}
