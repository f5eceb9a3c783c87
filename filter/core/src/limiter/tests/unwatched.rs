//! Keys that find no room in their slot to be watched.

use super::*;
use std::string::ToString as _;

fn client(n: u32) -> Client {
    Client(core::net::Ipv4Addr::from_bits(n).to_string())
}

/// A POP in a fleet of four, whose slot has six watched keys at 1/s: hot ones, or ones that were admitted `tokens`.
fn watching_six(tokens: u32, are_hot: bool) -> (Limiter, LocalSlots) {
    let (mut limiter, mut slots) = (limiter(one_rule("1/s", 40), Some(1)), LocalSlots::new(1));
    limiter.record_reply(4, false, T0);
    for n in 1..=6 {
        for _ in 0..tokens {
            assert_eq!(limiter.decide(&mut client(n), &mut slots, T0).outcome(), DecisionKind::Allow);
        }
    }
    let report = limiter.report(&mut slots, false, T0).unwrap();
    assert_eq!(report.keys.len(), 6);
    if are_hot {
        answer(&mut limiter, &mut slots, &report, 4, Grant { lease_ms: 60_000, ..grant(1, 4, 9_000) }, T0);
    }
    (limiter, slots)
}

#[test]
fn a_busy_key_is_watched_in_place_of_one_with_less_to_say() {
    let (mut limiter, mut slots) = watching_six(6, false);
    let mut admitted = 0;
    for ms in (0..2_000).step_by(10) {
        let outcome = limiter.decide(&mut client(9), &mut slots, T0 + ms * MS).outcome();
        admitted += u64::from(outcome == DecisionKind::Allow);
    }
    assert!((41..=42).contains(&admitted), "a burst and what has refilled: {admitted}");
    let report = limiter.report(&mut slots, false, T0 + 2_000 * MS).unwrap();
    let most = report.keys.iter().map(|key| key.admitted).max();
    assert!(most.is_some_and(|most| most >= 40), "{most:?} of {admitted}");
    assert_eq!(report.keys.len(), 6);
}

#[test]
fn a_key_that_cannot_be_watched_has_a_few_tokens_and_then_its_even_share() {
    let (mut limiter, mut slots) = watching_six(6, true);
    let mut admitted = 0;
    for ms in (0..40_000).step_by(10) {
        let now = T0 + ms * MS;
        limiter.record_reply(4, false, now);
        let outcome = limiter.decide(&mut client(9), &mut slots, now).outcome();
        admitted += u32::from(outcome == DecisionKind::Allow);
    }
    assert!((12..=14).contains(&admitted), "of 8 and an eighth of 40: {admitted}");
    // One of the leases has ended by now, so there is room to watch it.
    let later = T0 + 61 * SECOND_NS;
    limiter.record_reply(4, false, later);
    assert_eq!(limiter.decide(&mut client(9), &mut slots, later).outcome(), DecisionKind::Allow);
    let report = limiter.report(&mut slots, false, later).unwrap();
    assert!(report.keys.iter().any(|key| key.admitted >= 6), "{:?}", report.keys);
}
