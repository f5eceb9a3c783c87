//! A key that an operator resets starts anew, and one that an operator bans is refused, whatever its rule.

use super::*;
use std::format;
use weir_protocol::messages::Ban;

const CLIENT: &str = "192.0.2.1";
const HOUR_MS: u32 = 3_600_000;

fn value(last: u8) -> Vec<u8> {
    vec![4, 32, 192, 0, 2, last]
}

/// Applies a ban of `for_ms` to the key of rule "r", or a reset of the key if that is 0.
fn apply_ban(limiter: &mut Limiter, slots: &mut dyn Slots, last: u8, for_ms: u32, now: Time) {
    apply_bans(limiter, slots, last, &[for_ms], now);
}

/// The same for several times in one reply.
fn apply_bans(limiter: &mut Limiter, slots: &mut dyn Slots, last: u8, times_ms: &[u32], now: Time) {
    let report = limiter.report(slots, true, now).unwrap();
    let bans = times_ms.iter().map(|&for_ms| Ban { rule: 0, value: value(last), for_ms }).collect();
    let rules = vec!["r".into()];
    let reply = Reply { sequence: report.sequence, pops: 1, settled: Settled::All, rules, bans, ..Reply::default() };
    limiter.apply(reply.sequence, &reply.encode(), slots, now).unwrap();
}

fn one(fields: &Value) -> RuleSet {
    let rule = changed(json!({"name": "r", "key": ["client_address"], "rate": "10/h"}), fields);
    rules(&json!([rule]))
}

// I4
#[test]
fn a_reset_key_starts_anew_under_every_algorithm() {
    for algorithm in ["token_bucket", "fixed_window", "sliding_window", "sliding_log"] {
        let (mut limiter, mut slots) = (limiter(one(&json!({"algorithm": algorithm})), Some(1)), LocalSlots::new(4));
        for address in [CLIENT, "192.0.2.2"] {
            assert_eq!(admitted(&mut limiter, &mut slots, address, 25, T0), 10, "{algorithm}");
        }
        apply_ban(&mut limiter, &mut slots, 1, 0, T0);
        assert_eq!(admitted(&mut limiter, &mut slots, CLIENT, 25, T0), 10, "{algorithm}: at once, and once");
        // Reset, and banned again before this POP received the reset.
        apply_bans(&mut limiter, &mut slots, 1, &[0, 0, 1_000], T0);
        let after = T0 + SECOND_NS;
        assert_eq!([T0, after].map(|now| admitted(&mut limiter, &mut slots, CLIENT, 25, now)), [0, 10]);
        assert!(!allows(&mut limiter, &mut slots, "192.0.2.2", T0), "{algorithm}: another key is not");
    }
}

#[test]
fn an_evicted_key_owes_nothing_after_a_reset() {
    let (mut limiter, mut slots) = (limiter(one(&json!({})), Some(1)), LocalSlots::new(1));
    assert_eq!(admitted(&mut limiter, &mut slots, CLIENT, 9, T0), 9);
    // Others owe more, so it goes.
    for n in 0..16 {
        admitted(&mut limiter, &mut slots, &format!("10.0.0.{n}"), 10, T0);
    }
    assert_eq!(limiter.entry(0, &value(1), &mut slots), None);
    apply_ban(&mut limiter, &mut slots, 1, 0, T0);
    assert!(admitted(&mut limiter, &mut slots, CLIENT, 10, T0) > 1);
}

#[test]
fn an_operator_bans_any_rules_key_and_lifts_it() {
    for fields in [
        json!({}),
        json!({"algorithm": "sliding_log"}),
        json!({"strict": true, "on_sync_loss": "local"}),
        json!({"penalty": {"after": 3, "within": "1m", "deny_for": "10m"}}),
    ] {
        let rule_set = one(&fields);
        let (mut a, mut b) = (limiter(rule_set.clone(), Some(1)), limiter(rule_set, Some(2)));
        let mut slots = LocalSlots::new(4);
        apply_ban(&mut a, &mut slots, 1, HOUR_MS, T0);
        for worker in [&mut a, &mut b] {
            let refused = ask(worker, &mut slots, CLIENT, T0 + SECOND_NS);
            assert_eq!(refused.outcome(), DecisionKind::Limit, "{fields}");
            assert_eq!(refused.strictest().unwrap().1.more_ns, 3_599 * SECOND_NS, "{fields}");
        }
        apply_ban(&mut a, &mut slots, 1, 0, T0 + 2 * SECOND_NS);
        let lifted = ask(&mut b, &mut slots, CLIENT, T0 + 2 * SECOND_NS).outcome();
        assert!(matches!(lifted, DecisionKind::Allow | DecisionKind::Wait), "{fields}: {lifted:?}");
    }
}

/// As where an operator shortens it, or Redis's clock jumps ahead.
#[test]
fn a_ban_that_gets_shorter_gives_no_tokens() {
    let (mut limiter, mut slots) = (limiter(one(&json!({})), Some(1)), LocalSlots::new(4));
    assert_eq!(admitted(&mut limiter, &mut slots, CLIENT, 12, T0), 10);
    apply_ban(&mut limiter, &mut slots, 1, HOUR_MS, T0);
    apply_bans(&mut limiter, &mut slots, 1, &[0, 1_000], T0 + SECOND_NS);
    let banned_ns = |limiter: &mut Limiter, slots: &mut LocalSlots, now| {
        ask(limiter, slots, CLIENT, now).strictest().unwrap().1.more_ns
    };
    assert_eq!(banned_ns(&mut limiter, &mut slots, T0 + SECOND_NS), SECOND_NS);
    let after = banned_ns(&mut limiter, &mut slots, T0 + 2 * SECOND_NS);
    assert!((357 * SECOND_NS..=358 * SECOND_NS).contains(&after), "till a token has refilled: {after}");
}

/// The strikes go with the ban: it takes as many refusals as before to be banned again.
#[test]
fn a_reset_key_has_no_strikes() {
    let penalty = json!({"rate": "1/h", "penalty": {"after": 3, "within": "1m", "deny_for": "10m"}});
    let (mut limiter, mut slots) = (limiter(one(&penalty), Some(1)), LocalSlots::new(4));
    assert_eq!(admitted(&mut limiter, &mut slots, CLIENT, 3, T0), 1);
    apply_ban(&mut limiter, &mut slots, 1, 0, T0);
    assert_eq!(admitted(&mut limiter, &mut slots, CLIENT, 3, T0), 1);
    assert_eq!(limiter.counters().take_event(CountedEvent::Banned), 0, "two strikes");
    assert_eq!(admitted(&mut limiter, &mut slots, CLIENT, 1, T0), 0);
    assert_eq!(limiter.counters().take_event(CountedEvent::Banned), 1);
}
