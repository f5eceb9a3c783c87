//! A strict leaky bucket: each request acquires its turn from the fleet's queue, and is held until it comes.
//!
//! Tests of I6.

use super::*;
use weir_protocol::messages::Leased;
use weir_protocol::refill_policy::RefillPolicy;

/// A turn each 100 ms, and three wait.
fn leaky(fields: &Value) -> Value {
    changed(
        json!({"name": "even", "key": ["client_address"], "algorithm": "leaky_bucket", "rate": "10/s",
                          "queue": 3, "strict": true}),
        fields,
    )
}

fn with(fields: &Value) -> (Limiter, LocalSlots) {
    let mut limiter = limiter(rules(&json!([leaky(fields)])), Some(1));
    limiter.sync.as_mut().unwrap().observe(1, false, T0);
    (limiter, LocalSlots::new(4))
}

/// A reply that gives the first key of the report `charged` turns or places after `wait_ms`, with `left` more.
fn reply_with(report: &Report, (charged, wait_ms, left): (u64, u64, u32)) -> Vec<u8> {
    let turn = Allowance::Leased(Leased { wait_ms, left, ..Leased::of(charged, 2_000) });
    let mut grants = vec![Allowance::Leased(Leased::NONE); report.keys.len()];
    grants[0] = turn;
    reply(report.sequence, 1, grants)
}

/// Asks and acquires; returns the report, and the decision with the answer.
fn acquires(limiter: &mut Limiter, slots: &mut dyn Slots, answer: (u64, u64, u32), now: Time) -> (Report, Decision) {
    let (report, acquire) = waiting_for(ask(limiter, slots, "192.0.2.1", now));
    assert!(limiter.acquired(acquire, &reply_with(&report, answer), slots, now).unwrap());
    let decision = limiter.decide_again(true, &mut Client("192.0.2.1".into()), slots, now);
    (report, decision)
}

/// The time for which a request is held, in milliseconds, if it is let through; and the quota status for its client.
fn held(decision: &Decision) -> (Option<u64>, BucketStatus) {
    let hold_ms = if let Decision::Allow { hold_ns, .. } = decision { Some(hold_ns / MS) } else { None };
    (hold_ms, decision.strictest().unwrap().1)
}

#[test]
fn each_request_acquires_its_turn_and_is_held_until_then() {
    let (mut limiter, mut slots) = with(&json!({}));
    let mut epochs = Vec::new();
    for (wait_ms, left) in [(0, 3), (100, 2), (250, 1)] {
        let (report, decision) = acquires(&mut limiter, &mut slots, (1, wait_ms, left), T0);
        assert_eq!(report.rules[0].sharing.refill_policy, RefillPolicy::Queue);
        assert_eq!(report.keys.len(), 1, "without the turns before");
        let key = &report.keys[0];
        assert_eq!((key.admitted, key.ahead), (0, 1));
        epochs.push(key.epoch);
        let (hold_ms, status) = held(&decision);
        assert_eq!((hold_ms, status.remaining), (Some(wait_ms), left));
        assert!(afterwards(decision).is_empty());
    }
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(epochs.len(), 3, "each for itself");
    let report = limiter.report(&mut slots, true, T0 + 300 * MS).unwrap();
    assert!(report.keys.is_empty(), "{report:?}");
}

#[test]
fn an_expensive_request_acquires_several_turns_or_none() {
    let (mut limiter, mut slots) = with(&json!({"cost": 3}));
    let (report, decision) = acquires(&mut limiter, &mut slots, (3, 100, 0), T0);
    assert_eq!((report.keys[0].ahead, held(&decision).0), (3, Some(100)));
    let (_, decision) = acquires(&mut limiter, &mut slots, (0, 300, 0), T0);
    let status = held(&decision).1;
    assert_eq!(status.more_ns, 300 * MS);
    let two = limiter.decide(&mut Two, &mut slots, T0 + 500 * MS);
    assert_eq!(two.outcome(), DecisionKind::Limit, "two of three have no place in a queue of four");
}

/// Stands for two requests.
struct Two;

impl Request for Two {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        Client("192.0.2.1".into()).attribute(attribute)
    }

    fn times(&self) -> u32 {
        2
    }
}

#[test]
fn a_peek_acquires_no_turn_and_states_the_next() {
    for (wait_ms, left, hold_ms, remaining) in [(0, 4, Some(0), 3), (150, 2, Some(150), 1), (350, 0, None, 0)] {
        let (mut limiter, mut slots) = with(&json!({}));
        limiter.current.only_asks = true;
        let (report, decision) = acquires(&mut limiter, &mut slots, (0, wait_ms, left), T0);
        assert_eq!(report.keys[0].ahead, 0);
        let (hold, status) = held(&decision);
        assert_eq!((hold, status.remaining), (hold_ms, remaining));
        assert!(hold.is_some() || status.more_ns == 50 * MS, "{status:?}");
    }
}

/// The times for which `n` requests that come together without weir-sync are held, in milliseconds.
fn alone(limiter: &mut Limiter, slots: &mut LocalSlots, n: u32, now: Time) -> Vec<Option<u64>> {
    let decided = (0..n).map(|_| {
        let (_, acquire) = waiting_for(ask(limiter, slots, "192.0.2.1", now));
        limiter.acquire_failed(acquire, slots, now);
        let decision = limiter.decide_again(false, &mut Client("192.0.2.1".into()), slots, now);
        if let Decision::Allow { hold_ns, .. } = decision { Some(hold_ns / MS) } else { None }
    });
    decided.collect()
}

#[test]
fn on_sync_loss_decides_whose_turns_count() {
    let (mut limiter, mut slots) = with(&json!({"on_sync_loss": "local"}));
    assert_eq!(alone(&mut limiter, &mut slots, 4, T0), [Some(0), Some(100), Some(200), Some(300)]);
    assert_eq!(alone(&mut limiter, &mut slots, 1, T0), [None]);
    let (mut limiter, mut slots) = with(&json!({"on_sync_loss": "share"}));
    limiter.sync.as_mut().unwrap().observe(2, false, T0);
    assert_eq!(alone(&mut limiter, &mut slots, 3, T0), [Some(0), Some(200), None]);
    let (mut limiter, mut slots) = with(&json!({}));
    let (_, acquire) = waiting_for(ask(&mut limiter, &mut slots, "192.0.2.1", T0));
    limiter.acquire_failed(acquire, &mut slots, T0);
    let decision = limiter.decide_again(false, &mut Client("192.0.2.1".into()), &mut slots, T0);
    assert_eq!(decision.outcome(), DecisionKind::Deny);
}

/// I3: a turn that another rule refused after all is given to one request only.
#[test]
fn a_returned_local_turn_is_given_out_once() {
    let (mut limiter, mut slots) = with(&json!({"on_sync_loss": "local"}));
    assert_eq!(alone(&mut limiter, &mut slots, 2, T0), [Some(0), Some(100)]);
    limiter.take_back(&mut slots, T0);
    assert_eq!(alone(&mut limiter, &mut slots, 2, T0), [Some(100), Some(200)], "the last turn came back");
}
