//! Takes: all or nothing, spent at once, by every law but that of requests in flight.

use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, ClaimKind, Escrow, NO_LEASE};
use weir_protocol::calendar::Calendar;
use weir_protocol::messages::Leased;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;

use crate::{SECOND_US, acquire, quota};

const MINUTE: Calendar = Calendar::every(60, 0);

fn ask(
    store: &mut Escrow,
    now_us: u64,
    refill_policy: RefillPolicy,
    quota: Quota,
    claims: &[Claim],
) -> AcquireResult {
    store.acquire(now_us, "a", &AcquireRequest { refill_policy, ..acquire(quota, claims) })
}

fn take(store: &mut Escrow, now_us: u64, refill_policy: RefillPolicy, tokens: u32) -> Leased {
    ask(store, now_us, refill_policy, quota(1, Period::Second, 10), &[Claim::take(tokens)]).leases[0]
}

#[test]
fn a_take_gets_all_or_nothing_and_leaves_no_epoch() {
    let mut store = Escrow::default();
    let refill_policy = RefillPolicy::Continuous;
    assert_eq!(take(&mut store, 0, refill_policy, 7), Leased { left: 3, ..Leased::of(7, 0) });
    assert_eq!(
        take(&mut store, 0, refill_policy, 4),
        Leased { wait_ms: 1_000, left: 3, ..NO_LEASE },
        "one is missing"
    );
    assert_eq!(take(&mut store, 0, refill_policy, 3), Leased::of(3, 0));
    assert_eq!(take(&mut store, 500_000, refill_policy, 1), Leased { wait_ms: 500, ..NO_LEASE });
    assert_eq!(
        take(&mut store, 2 * SECOND_US, refill_policy, 2),
        Leased::of(2, 0),
        "what is spent refills at once"
    );
    assert_eq!(store.holders_len(), 0);
    // Full, and long forgotten by then.
    assert_eq!(store.full_us(), 12 * SECOND_US);
}

fn at_once(
    store: &mut Escrow,
    now_us: u64,
    refill_policy: RefillPolicy,
    kind: ClaimKind,
    tokens: u32,
) -> Leased {
    ask(store, now_us, refill_policy, quota(1, Period::Second, 10), &[Claim::at_once(kind, tokens)]).leases[0]
}

#[test]
fn a_charge_is_debited_whatever_there_is_and_paid_before_anything_is_taken() {
    for refill_policy in [
        RefillPolicy::Continuous,
        RefillPolicy::Window(MINUTE),
        RefillPolicy::Sliding(MINUTE),
        RefillPolicy::Log(5),
    ] {
        let mut store = Escrow::default();
        assert_eq!(take(&mut store, 0, refill_policy, 7).charged, 7, "{refill_policy:?}");
        assert_eq!(
            at_once(&mut store, 0, refill_policy, ClaimKind::Charge, 9).charged,
            9,
            "{refill_policy:?}"
        );
        assert_eq!(take(&mut store, 0, refill_policy, 1).charged, 0, "{refill_policy:?}");
        assert_eq!(
            at_once(&mut store, 0, refill_policy, ClaimKind::Refund, 6).charged,
            6,
            "{refill_policy:?}"
        );
        assert_eq!(take(&mut store, 0, refill_policy, 1).charged, 0, "{refill_policy:?}: ten are spent");
        assert_eq!(
            at_once(&mut store, 0, refill_policy, ClaimKind::Refund, 2).charged,
            2,
            "{refill_policy:?}"
        );
        assert_eq!(take(&mut store, 0, refill_policy, 3).charged, 0, "{refill_policy:?}");
        assert_eq!(take(&mut store, 0, refill_policy, 2).charged, 2, "{refill_policy:?}");
        at_once(&mut store, 0, refill_policy, ClaimKind::Refund, u32::MAX);
        assert_eq!(
            take(&mut store, 0, refill_policy, 10).charged,
            10,
            "{refill_policy:?}: never more than a full budget"
        );
    }
    let mut store = Escrow::default();
    assert_eq!(at_once(&mut store, 0, RefillPolicy::Continuous, ClaimKind::Charge, 15).charged, 15);
    assert_eq!(take(&mut store, 0, RefillPolicy::Continuous, 1).wait_ms, 6_000, "five are owed");
    assert_eq!(take(&mut store, 6 * SECOND_US, RefillPolicy::Continuous, 1).charged, 1);
}

#[test]
fn what_is_outstanding_is_not_refunded() {
    let (mut store, quota) = (Escrow::default(), quota(1, Period::Second, 10));
    for refill_policy in
        [RefillPolicy::Continuous, RefillPolicy::Window(MINUTE), RefillPolicy::Sliding(MINUTE)]
    {
        let both =
            [Claim::of(1, 0, 6), Claim::at_once(ClaimKind::Refund, 10), Claim::take(5), Claim::take(4)];
        let acquired = ask(&mut store, 0, refill_policy, quota, &both);
        assert_eq!(
            acquired.leases.iter().map(|lease| lease.charged).collect::<Vec<_>>(),
            [6, 10, 0, 4],
            "{refill_policy:?}"
        );
        store = Escrow::default();
    }
}

#[test]
fn turns_and_places_in_flight_are_not_refunded_and_a_place_is_not_charged() {
    for refill_policy in [RefillPolicy::Queue, RefillPolicy::InFlight(60)] {
        assert_eq!(
            at_once(&mut Escrow::default(), 0, refill_policy, ClaimKind::Refund, 1),
            NO_LEASE,
            "{refill_policy:?}"
        );
    }
    assert_eq!(
        at_once(&mut Escrow::default(), 0, RefillPolicy::InFlight(60), ClaimKind::Charge, 1),
        NO_LEASE
    );
    let mut store = Escrow::default();
    assert_eq!(at_once(&mut store, 0, RefillPolicy::Queue, ClaimKind::Charge, 15).charged, 15);
    assert_eq!(take(&mut store, 0, RefillPolicy::Queue, 1).charged, 0);
}

#[test]
fn a_take_counts_in_the_window_that_the_store_is_in_to_its_last_moment() {
    for refill_policy in [RefillPolicy::Window(MINUTE), RefillPolicy::Sliding(MINUTE)] {
        let (mut store, end_us) = (Escrow::default(), 60 * SECOND_US);
        assert_eq!(
            take(&mut store, end_us - 1, refill_policy, 6),
            Leased { left: 4, ..Leased::of(6, 0) },
            "{refill_policy:?}"
        );
        assert_eq!(store.window_ends_us(), Some(end_us));
        assert_eq!(take(&mut store, end_us - 1, refill_policy, 5).charged, 0, "{refill_policy:?}");
        let next = take(&mut store, end_us, refill_policy, 5).charged;
        assert_eq!(
            next,
            if refill_policy == RefillPolicy::Window(MINUTE) { 5 } else { 0 },
            "{refill_policy:?}"
        );
    }
}

#[test]
fn a_take_is_told_when_a_window_has_room_for_all_of_it() {
    let mut store = Escrow::default();
    assert_eq!(take(&mut store, 0, RefillPolicy::Window(MINUTE), 6).charged, 6);
    assert_eq!(
        take(&mut store, 15 * SECOND_US, RefillPolicy::Window(MINUTE), 5),
        Leased { wait_ms: 45_000, left: 4, ..NO_LEASE }
    );
    let mut store = Escrow::default();
    assert_eq!(take(&mut store, 0, RefillPolicy::Sliding(MINUTE), 10).charged, 10);
    let refused = take(&mut store, 60 * SECOND_US, RefillPolicy::Sliding(MINUTE), 5);
    // Half of the window before must have faded.
    assert_eq!((refused.charged, refused.wait_ms), (0, 30_000));
    let at_us = (60 + 30) * SECOND_US;
    assert_eq!(take(&mut store, at_us - SECOND_US, RefillPolicy::Sliding(MINUTE), 5).charged, 0);
    assert_eq!(take(&mut store, at_us, RefillPolicy::Sliding(MINUTE), 5).charged, 5);
}

#[test]
fn a_log_counts_a_take_from_then_on() {
    let (mut store, refill_policy) = (Escrow::default(), RefillPolicy::Log(5));
    assert_eq!(take(&mut store, SECOND_US, refill_policy, 6).charged, 6);
    assert_eq!(take(&mut store, 2 * SECOND_US, refill_policy, 4).charged, 4);
    let refused = take(&mut store, 3 * SECOND_US, refill_policy, 1);
    assert_eq!((refused.charged, refused.wait_ms), (0, 3_000));
    assert_eq!(take(&mut store, 6 * SECOND_US, refill_policy, 6).charged, 6);
    assert_eq!(store.log_len(), 2);
}
