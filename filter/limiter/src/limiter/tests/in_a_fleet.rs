//! A POP's use of weir-sync's replies, and its decisions without them.

use super::*;
use crate::algorithms::Admission;
use crate::sync::connectivity::{Connectivity, FALLBACK_NS, STALE_NS};
use weir_protocol::messages;

/// A limiter of one rule with these fields, which learned of `pops` POPs at T0.
fn in_a_fleet(rate: &str, burst: u32, fields: &Value, pops: u32) -> Limiter {
    let rule = changed(json!({"name": "r", "key": ["client_address"], "rate": rate, "burst": burst}), fields);
    let mut limiter = limiter(rules(&json!([rule])), Some(1));
    limiter.sync.as_mut().unwrap().observe(pops, false, T0);
    limiter
}

// I3
#[test]
fn an_unreported_key_has_the_local_burst() {
    let fields = json!({"local_burst": 25});
    let (mut limiter, mut slots) = (in_a_fleet("100/s", 100, &fields, 2), LocalSlots::new(4));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 100, T0), 25);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 100, T0 + 900 * MS), 25);
    let report = limiter.report(&mut slots, false, T0 + 900 * MS).unwrap();
    // No other POP has requests: the whole burst is this POP's, once it has refilled.
    let whole = Grant { burst: 100, ..grant(1, 1, 75_000) };
    answer(&mut limiter, &mut slots, &report, 2, whole, T0 + 900 * MS);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 200, T0 + 1_700 * MS), 80);
}

// I3
#[test]
fn a_bucket_holds_no_more_than_its_grant() {
    let (mut limiter, mut slots) = (in_a_fleet("100/s", 100, &json!({}), 2), LocalSlots::new(4));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 60, T0), 60);
    let report = limiter.report(&mut slots, false, T0).unwrap();
    answer(&mut limiter, &mut slots, &report, 2, Grant { burst: 7, ..grant(1, 1, 100_000) }, T0);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 50, T0 + 1_000 * MS), 7);
    // Until the lease ends.
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 200, T0 + 3_000 * MS), 100);
}

/// Two workers report; the later report reaches the budget first, and both replies have the level after it.
// I5
#[test]
fn a_report_that_was_overtaken_takes_no_token_twice() {
    let (mut limiter, mut slots) = (in_a_fleet("100/s", 100, &json!({}), 2), LocalSlots::new(4));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 60, T0), 60);
    let first = limiter.report(&mut slots, false, T0).unwrap();
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 20, T0), 20);
    let second = limiter.report(&mut slots, false, T0).unwrap();
    for report in [second, first] {
        answer(&mut limiter, &mut slots, &report, 2, grant(1, 1, 20_000), T0);
    }
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 50, T0), 20);
}

// I7
#[test]
fn grants_that_settle_nothing_are_held_and_confirm_nothing() {
    let (mut limiter, mut slots) = watching();
    let report = limiter.report(&mut slots, false, T0).unwrap();
    let grants = vec![Allowance::Hot(grant(0, 1, 4_000))];
    let reply = Reply { sequence: report.sequence, pops: 2, settled: Settled::None, grants, ..Reply::default() };
    limiter.apply(reply.sequence, &reply.encode(), &mut slots, T0).unwrap();
    assert!(!allows(&mut limiter, &mut slots, "192.0.2.1", T0 + 1_000 * MS), "thinned to nothing");
    let again = limiter.report(&mut slots, false, T0 + 1_000 * MS).unwrap();
    assert_eq!((again.keys[0].admitted, again.keys[0].unconfirmed), (4, 4));
    assert_eq!(limiter.counters().take_event(CountedEvent::Partial), 1);
}

/// A part of weir-sync's store is out of reach.
#[test]
fn charged_keys_are_confirmed_and_others_reported_again() {
    let (mut limiter, mut slots) = watching();
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.2", 5, T0), 4);
    let report = limiter.report(&mut slots, false, T0).unwrap();
    let settled = Settled::But(vec![0b10]);
    let grants = vec![Allowance::Hot(grant(1, 1, 0)); 2];
    let reply = Reply { sequence: report.sequence, pops: 2, settled, grants, ..Reply::default() };
    limiter.apply(reply.sequence, &reply.encode(), &mut slots, T0).unwrap();
    let again = limiter.report(&mut slots, false, T0 + 10 * MS).unwrap();
    let counts: Vec<_> = again.keys.iter().map(|key| (&key.value, key.admitted, key.unconfirmed)).collect();
    assert_eq!(counts, [(&report.keys[1].value, 4, 4)]);
    // The charged key has a new count.
    assert!(allows(&mut limiter, &mut slots, address_of(&report.keys[0]), T0 + 500 * MS));
    let later = limiter.report(&mut slots, false, T0 + 500 * MS).unwrap();
    let charged = later.keys.iter().find(|key| key.value == report.keys[0].value).unwrap();
    assert_eq!((charged.admitted, charged.unconfirmed), (5, 1));
    assert_eq!(limiter.counters().take_event(CountedEvent::Partial), 1);
}

/// The client whose key this is.
fn address_of(key: &messages::Key) -> &'static str {
    if key.value.ends_with(&[1]) { "192.0.2.1" } else { "192.0.2.2" }
}

// I3
#[test]
fn a_rules_on_sync_loss_applies_in_fallback() {
    let lost = T0 + FALLBACK_NS;
    for (policy, before, after) in [("local", 100, 100), ("share", 100, 25), ("deny", 100, 0)] {
        let fields = json!({"on_sync_loss": policy});
        let (mut limiter, mut slots) = (in_a_fleet("1/m", 100, &fields, 4), LocalSlots::new(4));
        assert_eq!(limiter.sync.as_ref().unwrap().connectivity.step(T0 + STALE_NS), Connectivity::Stale);
        let stale = T0 + (FALLBACK_NS - 1);
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 200, stale), before, "{policy}");
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.2", 200, lost), after, "{policy}");
        let refused = ask(&mut limiter, &mut slots, "192.0.2.2", lost);
        let expected = if policy == "deny" { DecisionKind::Deny } else { DecisionKind::Limit };
        assert_eq!(refused.outcome(), expected, "{policy}");
        let denied = limiter.counters().take_rule(0).denied;
        assert_eq!(denied, if policy == "deny" { 201 } else { 0 });
        // In touch again.
        limiter.sync.as_mut().unwrap().observe(4, false, lost);
        assert!(allows(&mut limiter, &mut slots, "192.0.2.3", lost));
    }
}

/// At 330 POPs a token of a fair share costs 330 tokens, more than an hour of refill.
// I3
#[test]
fn a_fair_shares_cost_is_forgiven_after_fallback() {
    let fields = json!({"on_sync_loss": "share"});
    for is_granted in [false, true] {
        let (mut limiter, mut slots) = (in_a_fleet("5/m", 5, &fields, 330), LocalSlots::new(4));
        let lost = T0 + FALLBACK_NS;
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, lost), 1);
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, lost + 5 * SECOND_NS), 0);
        let found = lost + 11 * SECOND_NS;
        limiter.sync.as_mut().unwrap().observe(330, false, found);
        if is_granted {
            let report = limiter.report(&mut slots, false, found).unwrap();
            answer(&mut limiter, &mut slots, &report, 330, grant(1, 1, 4_000), found);
        }
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, found), 4, "of five it had one");
        limiter.sync.as_mut().unwrap().observe(330, false, found + 12 * SECOND_NS);
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, found + 12 * SECOND_NS), 1);
    }
}

proptest! {
    /// I3: however much of a fair share's charge is forgiven, a plain bucket would have had every token admitted.
    #[test]
    fn changing_connectivity_admits_no_more_than_one_bucket(
        steps in prop::collection::vec((prop_oneof![0u64..300, 5_000..9_000u64], 0u8..4), 1..200),
        pops in 1u32..20,
    ) {
        let mut limiter = in_a_fleet("2/s", 5, &json!({"on_sync_loss": "share"}), pops);
        let (mut slots, mut bucket, mut now) = (LocalSlots::new(4), Bucket::FULL, T0);
        let quota = limiter.rules().rules()[0].quota;
        for (step_ms, what) in steps {
            now += step_ms * MS;
            if what == 0 {
                limiter.sync.as_mut().unwrap().observe(pops, false, now);
            }
            if what == 1 && let Some(report) = limiter.report(&mut slots, false, now) {
                answer(&mut limiter, &mut slots, &report, pops, grant(1, 1, 3_000), now);
            }
            if allows(&mut limiter, &mut slots, "192.0.2.1", now) {
                let Admission::Taken(after) = bucket.take(&quota, 1, now) else {
                    return Err(TestCaseError::fail("it had none left"));
                };
                bucket = after;
            }
        }
    }

    /// I7, for any local burst and any number of POPs, whatever the clock does.
    #[test]
    fn no_more_is_reported_than_was_admitted(
        local_burst in 1u32..=40,
        pops in 1u32..60,
        steps in prop::collection::vec((0u32..6, -20i64..120, 1u32..60, prop::bool::ANY), 1..80),
    ) {
        let rule = json!([{"name": "r", "key": ["client_address"], "rate": "20/s", "burst": 40,
            "local_burst": local_burst}]);
        let (mut limiter, mut slots, mut now) = (limiter(rules(&rule), Some(1)), LocalSlots::new(1), T0);
        limiter.sync.as_mut().unwrap().observe(pops, false, now);
        let (mut all, mut cold) = (0, 0);
        for (asks, step_ms, pops, is_reply) in steps {
            now = Time::from_nanos(now.as_nanos().saturating_add_signed(step_ms * 1_000_000));
            if is_reply { limiter.sync.as_mut().unwrap().observe(pops, false, now); }
            for _ in 0..asks {
                all += u64::from(allows(&mut limiter, &mut slots, "192.0.2.1", now));
                let entry = limiter.entry(0, &[4, 32, 192, 0, 2, 1], &mut slots);
                let is_watched = matches!(entry, Some(Entry::Watched(_)));
                if !is_watched { cold = all; }
            }
            if let Some(key) = limiter.report(&mut slots, false, now).and_then(|mut report| report.keys.pop()) {
                prop_assert!(key.admitted <= all, "{} of {all}", key.admitted);
                prop_assert!(key.admitted >= all - cold, "{} of {all}, {cold} of them cold", key.admitted);
            }
        }
    }
}
