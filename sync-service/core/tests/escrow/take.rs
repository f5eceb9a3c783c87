//! Takes: all or nothing, spent at once, by every law but that of requests in flight.

use weir_budget::escrow::{Claim, Draw, Drawn, Escrow, Kind, NO_LEASE};
use weir_wire::calendar::{Calendar, Window};
use weir_wire::law::Law;
use weir_wire::messages::Leased;
use weir_wire::quota::{Period, Quota};

use crate::{SECOND_US, draw, quota};

const MINUTE: Calendar = Calendar::every(60, 0);

fn ask(store: &mut Escrow, now_us: u64, law: Law, quota: Quota, claims: &[Claim]) -> Drawn {
    store.draw(now_us, "a", &Draw { law, ..draw(quota, claims) })
}

fn take(store: &mut Escrow, now_us: u64, law: Law, tokens: u32) -> Leased {
    ask(store, now_us, law, quota(1, Period::Second, 10), &[Claim::take(tokens)]).leases[0]
}

#[test]
fn a_take_gets_all_or_nothing_and_leaves_no_epoch() {
    let mut store = Escrow::default();
    let law = Law::Steady;
    assert_eq!(take(&mut store, 0, law, 7), Leased { left: 3, ..Leased::of(7, 0) });
    assert_eq!(take(&mut store, 0, law, 4), Leased { wait_ms: 1_000, left: 3, ..NO_LEASE }, "one is missing");
    assert_eq!(take(&mut store, 0, law, 3), Leased::of(3, 0));
    assert_eq!(take(&mut store, 500_000, law, 1), Leased { wait_ms: 500, ..NO_LEASE });
    assert_eq!(take(&mut store, 2 * SECOND_US, law, 2), Leased::of(2, 0), "what is spent refills at once");
    assert_eq!(store.holders_len(), 0);
    // Full, and long forgotten by then.
    assert_eq!(store.full_us(), 12 * SECOND_US);
}

fn at_once(store: &mut Escrow, now_us: u64, law: Law, kind: Kind, tokens: u32) -> Leased {
    ask(store, now_us, law, quota(1, Period::Second, 10), &[Claim::at_once(kind, tokens)]).leases[0]
}

#[test]
fn a_charge_is_debited_whatever_there_is_and_paid_before_anything_is_taken() {
    for law in [Law::Steady, Law::Window(MINUTE), Law::Sliding(MINUTE), Law::Log(5)] {
        let mut store = Escrow::default();
        assert_eq!(take(&mut store, 0, law, 7).charged, 7, "{law:?}");
        assert_eq!(at_once(&mut store, 0, law, Kind::Charge, 9).charged, 9, "{law:?}");
        assert_eq!(take(&mut store, 0, law, 1).charged, 0, "{law:?}");
        assert_eq!(at_once(&mut store, 0, law, Kind::Refund, 6).charged, 6, "{law:?}");
        assert_eq!(take(&mut store, 0, law, 1).charged, 0, "{law:?}: ten are spent");
        assert_eq!(at_once(&mut store, 0, law, Kind::Refund, 2).charged, 2, "{law:?}");
        assert_eq!(take(&mut store, 0, law, 3).charged, 0, "{law:?}");
        assert_eq!(take(&mut store, 0, law, 2).charged, 2, "{law:?}");
        at_once(&mut store, 0, law, Kind::Refund, u32::MAX);
        assert_eq!(take(&mut store, 0, law, 10).charged, 10, "{law:?}: never more than a full budget");
    }
    let mut store = Escrow::default();
    assert_eq!(at_once(&mut store, 0, Law::Steady, Kind::Charge, 15).charged, 15);
    assert_eq!(take(&mut store, 0, Law::Steady, 1).wait_ms, 6_000, "five are owed");
    assert_eq!(take(&mut store, 6 * SECOND_US, Law::Steady, 1).charged, 1);
}

#[test]
fn what_is_outstanding_is_not_refunded() {
    let (mut store, quota) = (Escrow::default(), quota(1, Period::Second, 10));
    for law in [Law::Steady, Law::Window(MINUTE), Law::Sliding(MINUTE)] {
        let both = [Claim::of(1, 0, 6), Claim::at_once(Kind::Refund, 10), Claim::take(5), Claim::take(4)];
        let drawn = ask(&mut store, 0, law, quota, &both);
        assert_eq!(
            drawn.leases.iter().map(|lease| lease.charged).collect::<Vec<_>>(),
            [6, 10, 0, 4],
            "{law:?}"
        );
        store = Escrow::default();
    }
}

#[test]
fn turns_and_places_in_flight_are_not_refunded_and_a_place_is_not_charged() {
    for law in [Law::Turns, Law::InFlight(60)] {
        assert_eq!(at_once(&mut Escrow::default(), 0, law, Kind::Refund, 1), NO_LEASE, "{law:?}");
    }
    assert_eq!(at_once(&mut Escrow::default(), 0, Law::InFlight(60), Kind::Charge, 1), NO_LEASE);
    let mut store = Escrow::default();
    assert_eq!(at_once(&mut store, 0, Law::Turns, Kind::Charge, 15).charged, 15);
    assert_eq!(take(&mut store, 0, Law::Turns, 1).charged, 0);
}

#[test]
fn what_is_too_much_for_the_budget_takes_nothing() {
    let mut store = Escrow::default();
    for law in [Law::Steady, Law::Window(MINUTE), Law::Sliding(MINUTE), Law::Log(5)] {
        assert_eq!(take(&mut store, 0, law, 11).charged, 0, "{law:?}");
        assert_eq!(take(&mut store, 0, law, u32::MAX).charged, 0, "{law:?}");
        assert_eq!(store, Escrow::default(), "nothing that is worth a record");
    }
}

#[test]
fn leases_and_takes_share_one_budget() {
    let (mut store, law, quota) = (Escrow::default(), Law::Steady, quota(1, Period::Second, 10));
    let both = ask(&mut store, 0, law, quota, &[Claim::of(1, 0, 6), Claim::take(5), Claim::take(4)]);
    assert_eq!(both.leases.iter().map(|lease| lease.charged).collect::<Vec<_>>(), [6, 0, 4]);
    assert_eq!((both.given, both.outstanding), (10, 6));
    assert_eq!(take(&mut store, 0, law, 9).wait_ms, 9_000, "whatever may be given back");
    // Only what is outstanding holds the refill up.
    let back = ask(&mut store, 60_000, law, quota, &[Claim::of(1, 0, 0), Claim::take(6), Claim::take(1)]);
    assert_eq!(back.leases[1..], [Leased::of(6, 0), Leased { wait_ms: 940, ..NO_LEASE }]);
}

#[test]
fn a_take_counts_in_the_window_that_the_store_is_in_to_its_last_moment() {
    for law in [Law::Window(MINUTE), Law::Sliding(MINUTE)] {
        let (mut store, end_us) = (Escrow::default(), 60 * SECOND_US);
        assert_eq!(take(&mut store, end_us - 1, law, 6), Leased { left: 4, ..Leased::of(6, 0) }, "{law:?}");
        assert_eq!(store.window_ends_us(), Some(end_us));
        assert_eq!(take(&mut store, end_us - 1, law, 5).charged, 0, "{law:?}");
        let next = take(&mut store, end_us, law, 5).charged;
        assert_eq!(next, if law == Law::Window(MINUTE) { 5 } else { 0 }, "{law:?}");
    }
}

#[test]
fn a_take_is_told_when_a_window_has_room_for_all_of_it() {
    let mut store = Escrow::default();
    assert_eq!(take(&mut store, 0, Law::Window(MINUTE), 6).charged, 6);
    assert_eq!(
        take(&mut store, 15 * SECOND_US, Law::Window(MINUTE), 5),
        Leased { wait_ms: 45_000, left: 4, ..NO_LEASE }
    );
    let mut store = Escrow::default();
    assert_eq!(take(&mut store, 0, Law::Sliding(MINUTE), 10).charged, 10);
    let refused = take(&mut store, 60 * SECOND_US, Law::Sliding(MINUTE), 5);
    // Half of the window before must have faded.
    assert_eq!((refused.charged, refused.wait_ms), (0, 30_000));
    let at_us = (60 + 30) * SECOND_US;
    assert_eq!(take(&mut store, at_us - SECOND_US, Law::Sliding(MINUTE), 5).charged, 0);
    assert_eq!(take(&mut store, at_us, Law::Sliding(MINUTE), 5).charged, 5);
}

#[test]
fn nothing_is_taken_where_the_window_is_unknown() {
    let (mut store, law) = (Escrow::default(), Law::Window(Calendar::Month));
    let unknown = Draw { law, ..draw(quota(1, Period::Second, 10), &[Claim::take(1)]) };
    assert_eq!(store.draw(5, "a", &unknown).leases, [NO_LEASE]);
    let window = Window { calendar: Calendar::Month, start_us: 0, end_us: 6, next_end_us: 9 };
    assert_eq!(store.draw(5, "a", &Draw { window: Some(window), ..unknown }).leases[0].charged, 1);
}

#[test]
fn a_log_counts_a_take_from_then_on() {
    let (mut store, law) = (Escrow::default(), Law::Log(5));
    assert_eq!(take(&mut store, SECOND_US, law, 6).charged, 6);
    assert_eq!(take(&mut store, 2 * SECOND_US, law, 4).charged, 4);
    let refused = take(&mut store, 3 * SECOND_US, law, 1);
    assert_eq!((refused.charged, refused.wait_ms), (0, 3_000));
    assert_eq!(take(&mut store, 6 * SECOND_US, law, 6).charged, 6);
    assert_eq!(store.log_len(), 2);
}

#[test]
fn a_place_in_flight_cannot_be_taken() {
    assert_eq!(take(&mut Escrow::default(), 0, Law::InFlight(60), 1), NO_LEASE);
}
