//! Features of a rule besides a rate: other algorithms, shadow, a penalty, costs that the response states.

use super::*;
use crate::check::EndActionKind;
use crate::table::slot::Slot;
use std::format;

fn one(fields: &Value) -> Limiter {
    limiter(rules(&json!([with(fields)])), None)
}

fn with(fields: &Value) -> Value {
    changed(json!({"name": "r", "key": ["client_address"], "rate": "10/s"}), fields)
}

/// Number of `n` requests at `now` that are let through.
fn through(limiter: &mut Limiter, slots: &mut LocalSlots, n: u32, now: Time) -> usize {
    admitted(limiter, slots, "192.0.2.1", n, now)
}

// I3
#[test]
fn another_rules_refusal_refunds_every_algorithm() {
    for algorithm in ["fixed_window", "sliding_window", "sliding_log", "leaky_bucket"] {
        let queue = (algorithm == "leaky_bucket").then_some(9);
        let mut first = with(&json!({"algorithm": algorithm}));
        if let Some(queue) = queue {
            first["queue"] = json!(queue);
        }
        // By the /8, and so in another slot.
        let second = json!({"name": "all", "key": [{"client_address": {"ipv4": 8}}], "rate": "1/d", "burst": 4});
        let (mut limiter, mut slots) = (limiter(rules(&json!([first, second])), None), LocalSlots::new(64));
        assert_eq!(through(&mut limiter, &mut slots, 20, T0), 4, "{algorithm}");
        let mut alone = limiter_of_first(&first);
        assert_eq!(through(&mut alone, &mut slots, 20, T0), 6, "{algorithm}");
    }
}

fn limiter_of_first(rule: &Value) -> Limiter {
    limiter(rules(&json!([rule])), None)
}

// I2
#[test]
fn rotating_addresses_buys_no_room_in_a_log() {
    let (mut limiter, mut slots) = (one(&json!({"algorithm": "sliding_log", "rate": "3/m"})), LocalSlots::new(1));
    let mut admitted = 0;
    for n in 0..1_000 {
        let address = format!("10.{}.{}.1", n / 250, n % 250);
        admitted += usize::from(allows(&mut limiter, &mut slots, &address, T0 + n * MS));
    }
    // Eight logs of two cells fill the slot; everyone else shares one window.
    assert!((3..=16 * 2 + 3 * 2).contains(&admitted), "{admitted}");
    assert!(read(&mut slots).entries().count() <= 20);
}

fn read(slots: &mut LocalSlots) -> Slot {
    let mut slot = Slot::empty();
    slots.read(0, &mut slot).unwrap();
    slot
}

// I3
#[test]
fn a_rule_in_shadow_takes_nothing_of_refused_requests() {
    let shadow = json!({"name": "s", "mode": "shadow", "key": ["client_address"], "rate": "20/d"});
    let enforced = json!({"name": "e", "key": ["client_address"], "rate": "5/s"});
    let (mut limiter, mut slots) = (limiter(rules(&json!([shadow, enforced])), None), LocalSlots::new(4));
    for round in 0..4 {
        through(&mut limiter, &mut slots, 50, T0 + round * SECOND_NS);
    }
    assert_eq!(limiter.counters().take_rule(0).shadow_limited, 0, "20 were let through");
}

#[test]
fn a_percentage_of_keys_is_enforced_always_the_same() {
    let (mut limiter, mut slots) = (one(&json!({"enforced_percent": 30, "rate": "1/d"})), LocalSlots::new(1_024));
    let mut refused = |round: u64| -> Vec<u32> {
        let address = |n: u32| format!("10.0.{}.{}", n / 250, n % 250);
        (0..1_000).filter(|&n| !allows(&mut limiter, &mut slots, &address(n), T0 + round * MS)).collect()
    };
    assert!(refused(0).is_empty());
    let second = refused(1);
    assert!((240..360).contains(&second.len()), "{}", second.len());
    assert_eq!(refused(2), second);
}

fn penalized() -> Value {
    with(&json!({"rate": "1/s", "penalty": {"after": 3, "within": "1m", "deny_for": "10m"}}))
}

#[test]
fn a_client_limited_again_and_again_is_banned() {
    let (mut limiter, mut slots) = (limiter(rules(&json!([penalized()])), Some(1)), LocalSlots::new(4));
    assert_eq!(through(&mut limiter, &mut slots, 4, T0), 1);
    let status = ask(&mut limiter, &mut slots, "192.0.2.1", T0 + 5 * SECOND_NS).strictest().unwrap().1;
    assert_eq!(status.more_ns, 595 * SECOND_NS, "banned, although the bucket is full again");
    assert!(allows(&mut limiter, &mut slots, "192.0.2.2", T0), "another key is not");
    // It is reported until a report is answered.
    let first = limiter.report(&mut slots, true, T0 + 5 * SECOND_NS).unwrap();
    assert_eq!((first.bans.len(), first.bans[0].for_ms), (1, 595_000));
    assert_eq!(first.rules[usize::from(first.bans[0].rule)].name, "r");
    limiter.report_failed(first.sequence, T0 + 5 * SECOND_NS);
    let second = limiter.report(&mut slots, true, T0 + 6 * SECOND_NS).unwrap();
    assert_eq!(second.bans.len(), 1);
    limiter.apply(second.sequence, &reply(second.sequence, 1, vec![]), &mut slots, T0 + 6 * SECOND_NS).unwrap();
    let third = limiter.report(&mut slots, true, T0 + 7 * SECOND_NS).unwrap();
    assert!(third.bans.is_empty());
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0 + 601 * SECOND_NS));
}

// I3
#[test]
fn a_responses_cost_is_charged_as_debt_if_needed() {
    for algorithm in ["token_bucket", "fixed_window", "sliding_window", "sliding_log"] {
        let fields = json!({"algorithm": algorithm, "cost": {"after": {"header": "x-tokens"}}});
        let (mut limiter, mut slots) = (one(&fields), LocalSlots::new(4));
        assert_eq!(through(&mut limiter, &mut slots, 50, T0), 50, "{algorithm}: asking takes nothing");
        let done = afterwards(ask(&mut limiter, &mut slots, "192.0.2.1", T0)).remove(0);
        assert!(matches!(done.what, EndActionKind::Charge { .. }));
        limiter.charge(done, 25, &mut slots, T0);
        assert!(!allows(&mut limiter, &mut slots, "192.0.2.1", T0 + MS), "{algorithm}");
        assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0 + 2_000 * MS), "{algorithm}");
    }
}

#[test]
fn a_log_stays_with_its_cells_whatever_fills_the_slot() {
    let log = with(&json!({"algorithm": "sliding_log", "rate": "10/h"}));
    let many = json!({"name": "many", "key": ["client_address"], "rate": "1/h"});
    let (mut limiter, mut slots) = (limiter_of_first(&log), LocalSlots::new(1));
    let admitted = through(&mut limiter, &mut slots, 3, T0);
    // Newcomers fill the rest of the slot.
    let mut other = limiter_of_first(&many);
    (0..100).for_each(|n| _ = allows(&mut other, &mut slots, &format!("10.0.0.{n}"), T0 + MS));
    let later = through(&mut limiter, &mut slots, 50, T0 + 2 * MS);
    assert!(admitted + later <= 10, "{admitted} and {later}");
}
