//! Requests that draw for themselves, and whose cost is known only when they end.
//!
//! Tests of I6.

use super::*;
use alloc::format;
use weir_protocol::messages::Leased;

/// Ten of these, of which each request takes what its response says; an estimate is one.
fn reserving() -> (Limiter, LocalSlots) {
    let rule = json!([{"name": "llm", "key": ["client_address"], "rate": "10/h", "strict": true,
                       "cost": {"after": {"header": "x-tokens"}}}]);
    let mut limiter = limiter(rules(&rule), Some(1));
    limiter.record_reply(1, false, T0);
    (limiter, LocalSlots::new(1))
}

/// An answer to `report`: each epoch has `charged` tokens for `lease_ms`.
fn leased(report: &Report, charged: u64, lease_ms: u32) -> Vec<u8> {
    let grants = vec![Allowance::Leased(Leased::of(charged, lease_ms)); report.keys.len()];
    Reply { sequence: report.sequence, pops: 1, settled: Settled::All, grants, ..Reply::default() }.encode()
}

/// A request that is let through; returns what is left to do for it, and its epoch.
fn let_through(limiter: &mut Limiter, slots: &mut LocalSlots, now: Time) -> (EndAction, u32) {
    let (report, draw) = waiting_for(ask(limiter, slots, "192.0.2.1", now));
    let key = report.keys.last().unwrap();
    assert_eq!((key.admitted, key.ahead), (0, 1));
    assert!(limiter.drawn(draw, &leased(&report, 1, 2_000), slots, now).unwrap());
    let decision = limiter.decide_again(true, &mut Client("192.0.2.1".into()), slots, now);
    (afterwards(decision).remove(0), key.epoch)
}

/// What a report says: epochs with what was spent, what is wanted, and for how long it is held.
fn said(report: &Report) -> Vec<(u32, u64, u32, Option<u32>)> {
    let keys = report.keys.iter().enumerate();
    keys.map(|(place, key)| (key.epoch, key.admitted, key.ahead, report.held_ms(place))).collect()
}

fn reported(limiter: &mut Limiter, slots: &mut LocalSlots, now: Time) -> Report {
    limiter.report(slots, true, now).unwrap()
}

#[test]
fn what_a_request_holds_is_said_soon_and_again_while_it_goes_on() {
    let (mut limiter, mut slots) = reserving();
    let (_open, epoch) = let_through(&mut limiter, &mut slots, T0);
    let soon = reported(&mut limiter, &mut slots, T0 + 250 * MS);
    assert_eq!(said(&soon), [(epoch, 0, 1, Some(60_000))]);
    limiter.apply(soon.sequence, &leased(&soon, 1, 60_000), &mut slots, T0 + 260 * MS).unwrap();
    for s in [1, 29] {
        assert_eq!(said(&reported(&mut limiter, &mut slots, T0 + s * SECOND_NS)), []);
    }
    let later = reported(&mut limiter, &mut slots, T0 + 31 * SECOND_NS);
    assert_eq!(said(&later), [(epoch, 0, 1, Some(60_000))]);
    // Nobody answers: it is said again once the call has failed, until the lease ends.
    assert_eq!(said(&reported(&mut limiter, &mut slots, T0 + 32 * SECOND_NS)), []);
    limiter.report_failed(later.sequence, T0 + 32 * SECOND_NS);
    assert_eq!(said(&reported(&mut limiter, &mut slots, T0 + 33 * SECOND_NS)), [(epoch, 0, 1, Some(60_000))]);
    assert_eq!(said(&reported(&mut limiter, &mut slots, T0 + 61 * SECOND_NS)), [], "it counts as spent");
}

#[test]
fn what_it_cost_is_said_until_an_answer_confirms_it() {
    let (mut limiter, mut slots) = reserving();
    for (cost, now) in [(0, T0), (1, T0 + 10 * SECOND_NS), (70, T0 + 20 * SECOND_NS)] {
        limiter.record_reply(1, false, now);
        let (open, epoch) = let_through(&mut limiter, &mut slots, now);
        limiter.charge(open, cost, &mut slots, now);
        let first = reported(&mut limiter, &mut slots, now + 250 * MS);
        // That it gives back is said by that.
        let expected = [(epoch, u64::from(cost), 0, (cost > 1).then_some(0))];
        assert_eq!(said(&first), expected);
        // It is under way.
        assert_eq!(said(&reported(&mut limiter, &mut slots, now + 500 * MS)), []);
        limiter.report_failed(first.sequence, now + 500 * MS);
        let second = reported(&mut limiter, &mut slots, now + 750 * MS);
        assert_eq!(said(&second), expected);
        // The store was out of reach: nothing is settled.
        let unsettled = Reply { settled: Settled::None, ..Reply::decode(&leased(&second, 0, 0)).unwrap() };
        limiter.apply(second.sequence, &unsettled.encode(), &mut slots, now + 800 * MS).unwrap();
        let third = reported(&mut limiter, &mut slots, now + 1_000 * MS);
        assert_eq!(said(&third), expected);
        limiter.apply(third.sequence, &leased(&third, 0, 0), &mut slots, now + 1_010 * MS).unwrap();
        assert_eq!(said(&reported(&mut limiter, &mut slots, now + 1_250 * MS)), []);
    }
}

/// weir-sync lets only so much of a key be overdrawn at once.
#[test]
fn a_cost_that_has_to_wait_is_said_again_for_as_long_as_its_epoch_is_leased() {
    let (mut limiter, mut slots) = reserving();
    let (open, epoch) = let_through(&mut limiter, &mut slots, T0);
    limiter.charge(open, 70, &mut slots, T0);
    for s in [1, 50, 100] {
        let now = T0 + s * SECOND_NS;
        let report = reported(&mut limiter, &mut slots, now);
        assert_eq!(said(&report), [(epoch, 70, 0, Some(0))], "{s}");
        limiter.apply(report.sequence, &leased(&report, 1, 60_000), &mut slots, now).unwrap();
        // Many that wait must not fill all reports.
        assert_eq!(said(&reported(&mut limiter, &mut slots, now + 4 * SECOND_NS)), []);
    }
    let last = reported(&mut limiter, &mut slots, T0 + 105 * SECOND_NS);
    assert_eq!(said(&last), [(epoch, 70, 0, Some(0))]);
    limiter.apply(last.sequence, &leased(&last, 0, 0), &mut slots, T0 + 105 * SECOND_NS).unwrap();
    assert_eq!(said(&reported(&mut limiter, &mut slots, T0 + 111 * SECOND_NS)), []);
    assert_eq!(limiter.counters().take_event(CountedEvent::Uncharged), 0);
}

#[test]
fn an_end_does_not_wait_for_the_answer_to_what_was_said_before() {
    let (mut limiter, mut slots) = reserving();
    let (open, epoch) = let_through(&mut limiter, &mut slots, T0);
    let held = reported(&mut limiter, &mut slots, T0 + 250 * MS);
    limiter.charge(open, 1, &mut slots, T0 + 300 * MS);
    let ended = reported(&mut limiter, &mut slots, T0 + 500 * MS);
    assert_eq!(said(&ended), [(epoch, 1, 0, None)]);
    // The late answer to the first does not pass for that to the second.
    limiter.apply(held.sequence, &leased(&held, 1, 60_000), &mut slots, T0 + 510 * MS).unwrap();
    limiter.report_failed(ended.sequence, T0 + 510 * MS);
    assert_eq!(said(&reported(&mut limiter, &mut slots, T0 + 750 * MS)), [(epoch, 1, 0, None)]);
}

#[test]
fn a_draw_gives_back_at_once_and_leaves_debts_to_the_report() {
    let (mut limiter, mut slots) = reserving();
    let ends = [0, 1, 5].map(|cost| (let_through(&mut limiter, &mut slots, T0), cost));
    let [none, one, five] = ends.map(|((open, epoch), cost)| {
        limiter.charge(open, cost, &mut slots, T0);
        epoch
    });
    let (draw, _) = waiting_for(ask(&mut limiter, &mut slots, "192.0.2.1", T0 + MS));
    let own = draw.keys.last().unwrap().epoch;
    assert_eq!(said(&draw), [(none, 0, 0, None), (one, 1, 0, None), (own, 0, 1, None)]);
    assert_eq!(said(&reported(&mut limiter, &mut slots, T0 + 250 * MS)), [(five, 5, 0, Some(0))]);
}

#[test]
fn a_request_whose_lease_has_ended_cost_its_estimate_and_that_is_counted() {
    let (mut limiter, mut slots) = reserving();
    let (open, _) = let_through(&mut limiter, &mut slots, T0);
    assert_eq!(said(&reported(&mut limiter, &mut slots, T0 + 2 * SECOND_NS)), []);
    limiter.charge(open, 9, &mut slots, T0 + 2 * SECOND_NS);
    assert_eq!(said(&reported(&mut limiter, &mut slots, T0 + 3 * SECOND_NS)), []);
    assert_eq!(limiter.counters().take_event(CountedEvent::Uncharged), 1);
}

#[test]
fn a_request_that_is_refused_after_all_gives_back_what_it_drew() {
    let (mut limiter, mut slots) = reserving();
    let (report, draw) = waiting_for(ask(&mut limiter, &mut slots, "192.0.2.1", T0));
    limiter.drawn(draw, &leased(&report, 0, 2_000), &mut slots, T0).unwrap();
    let refused = limiter.decide_again(true, &mut Client("192.0.2.1".into()), &mut slots, T0);
    assert_eq!(refused.outcome(), DecisionKind::Limit);
    assert_eq!(said(&reported(&mut limiter, &mut slots, T0 + 250 * MS)), []);
}

/// Beyond what was drawn, it is never charged.
#[test]
fn what_a_request_cost_that_no_answer_confirms_is_counted_as_uncharged() {
    let (mut limiter, mut slots) = reserving();
    for cost in [1, 9] {
        let (open, _) = let_through(&mut limiter, &mut slots, T0);
        limiter.charge(open, cost, &mut slots, T0);
    }
    let _lost = reported(&mut limiter, &mut slots, T0 + 250 * MS);
    assert_eq!(limiter.counters().take_event(CountedEvent::Uncharged), 0);
    reported(&mut limiter, &mut slots, T0 + 3 * SECOND_NS);
    assert_eq!(
        limiter.counters().take_event(CountedEvent::Uncharged),
        1,
        "what was drawn is what the other cost"
    );
}

/// weir-sync would refuse the whole report.
#[test]
fn nothing_is_held_under_a_rule_that_is_strict_no_more() {
    let (mut limiter, mut slots) = reserving();
    let (open, _) = let_through(&mut limiter, &mut slots, T0);
    limiter.replace_rules(rules(&json!([{"name": "llm", "key": ["client_address"], "rate": "10/h"}])));
    let report = reported(&mut limiter, &mut slots, T0 + 250 * MS);
    assert!(report.held.is_empty() && Report::decode(&report.encode()).is_ok());
    limiter.charge(open, 9, &mut slots, T0 + 300 * MS);
    assert_eq!(limiter.counters().take_event(CountedEvent::Uncharged), 1);
}

#[test]
fn many_keys_that_are_busy_do_not_keep_what_is_held_from_being_said() {
    let rule_set = json!([
        {"name": "llm", "match": {"addresses": ["192.0.2.0/24"]}, "key": ["client_address"], "rate": "10/h",
         "strict": true, "cost": {"after": {"header": "x-tokens"}}},
        {"name": "busy", "match": {"addresses": ["10.0.0.0/8"]}, "key": ["client_address"], "rate": "10/h"},
    ]);
    let (mut limiter, mut slots) = (limiter(rules(&rule_set), Some(1)), LocalSlots::new(4_096));
    let now = T0 + 2 * SECOND_NS;
    for at in [T0, now] {
        limiter.record_reply(1_000, false, at);
        for n in 0..700_u32 {
            assert!(allows(&mut limiter, &mut slots, &format!("10.0.{}.{}", n / 250, n % 250), at));
        }
    }
    let (_open, epoch) = let_through(&mut limiter, &mut slots, now);
    let report = reported(&mut limiter, &mut slots, now + 250 * MS);
    assert_eq!(report.keys.len(), 701);
    assert_eq!(said(&report).last(), Some(&(epoch, 0, 1, Some(60_000))));
}
