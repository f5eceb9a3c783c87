//! What one acquire does.
//!
//! Tests of I6.

use weir_budget::budget::COUNT_MAX;
use weir_budget::escrow::{Claim, ENDED_KEPT_US, Escrow, LEASE_US_MAX, NO_LEASE};
use weir_protocol::messages::Leased;
use weir_protocol::quota::{Period, Quota};

use crate::{LEASE_US, SECOND_US, acquire, quota};

/// When tokens that were given at 0 count as spent.
const HELD_US: u64 = LEASE_US + LEASE_US / 64;

fn claim(epoch: u64, admitted: u64, ahead: u32) -> Claim {
    Claim::of(epoch, admitted, ahead)
}

/// Acquires for one epoch of POP "a". Returns all that was debited for it, or none if the acquire is refused.
fn ask(store: &mut Escrow, now_us: u64, quota: Quota, claim: Claim) -> Option<u64> {
    let lease = store.acquire(now_us, "a", &acquire(quota, &[claim])).leases[0];
    (lease != NO_LEASE).then_some(lease.charged)
}

/// 20 tokens, ten a second.
fn twenty() -> Quota {
    quota(10, Period::Second, 20)
}

#[test]
fn refill_stops_where_the_rest_is_outstanding() {
    let (quota, mut store) = (twenty(), Escrow::default());
    ask(&mut store, 0, quota, claim(1, 0, 15));
    let other = store.acquire(HELD_US - 1, "b", &acquire(quota, &[claim(1, 0, 50)]));
    assert_eq!(other.given, 5, "15 may still be spent");
}

#[test]
fn what_a_lease_held_up_is_not_made_up_for() {
    let (quota, mut store) = (twenty(), Escrow::default());
    ask(&mut store, 0, quota, claim(1, 0, 20));
    let later = store.acquire(HELD_US + SECOND_US, "b", &acquire(quota, &[claim(1, 0, 50)]));
    assert_eq!(later.given, 10, "a second's refill, not that of the lease before");
}

#[test]
fn leases_end_one_after_the_other() {
    let (quota, mut store) = (twenty(), Escrow::default());
    ask(&mut store, 0, quota, claim(1, 0, 10));
    ask(&mut store, SECOND_US, quota, claim(2, 0, 10));
    // When the first lease ends, 10 of 20 tokens are missing. Until the second ends, only 10 may refill, which takes a
    // second.
    let held = store.acquire(HELD_US + SECOND_US - 1, "b", &acquire(quota, &[]));
    assert_eq!((held.outstanding, held.deficit_ns), (10, 10 * quota.token_ns() + 1_000));
    let ended = store.acquire(HELD_US + SECOND_US + 500_000, "b", &acquire(quota, &[]));
    assert_eq!((ended.outstanding, ended.deficit_ns), (0, 5 * quota.token_ns()));
}

#[test]
fn an_epoch_whose_lease_has_ended_is_over() {
    let (quota, mut store) = (twenty(), Escrow::default());
    ask(&mut store, 0, quota, claim(1, 0, 5));
    assert_eq!(ask(&mut store, HELD_US - 1, quota, claim(1, 5, 1)), Some(6), "renewed in time");
    assert_eq!(ask(&mut store, 2 * HELD_US - 1, quota, claim(1, 5, 1)), None);
    assert_eq!(ask(&mut store, 2 * HELD_US - 1, quota, claim(2, 0, 1)), Some(1), "a new one");
    let kept_us = 2 * HELD_US - 1 + ENDED_KEPT_US;
    assert_eq!(ask(&mut store, kept_us - 1, quota, claim(1, 0, 1)), None, "held up, and of no use");
    assert_eq!(ask(&mut store, kept_us, quota, claim(1, 0, 1)), Some(1), "forgotten");
}

// I8
#[test]
fn a_clock_that_steps_back_gives_nothing_and_ends_no_lease_late() {
    let (quota, mut store) = (twenty(), Escrow::default());
    ask(&mut store, 100 * SECOND_US, quota, claim(1, 0, 20));
    for now_us in [99 * SECOND_US, 50 * SECOND_US, 0] {
        let acquired = store.acquire(now_us, "b", &acquire(quota, &[]));
        assert_eq!((acquired.deficit_ns, acquired.outstanding), (quota.fill_ns(), 20), "at {now_us}");
    }
    let ended = store.acquire(HELD_US + SECOND_US, "b", &acquire(quota, &[]));
    assert_eq!((ended.deficit_ns, ended.outstanding), (10 * quota.token_ns(), 0));
}

// I2
#[test]
fn an_epoch_that_gets_nothing_takes_no_place() {
    let (quota, mut store) = (twenty(), Escrow::default());
    ask(&mut store, 0, quota, claim(1, 0, 20));
    assert_eq!(ask(&mut store, 0, quota, claim(2, 0, 20)), Some(0));
    assert_eq!(store.holders_len(), 1);
}

#[test]
fn it_is_kept_until_it_is_full_with_nothing_leased() {
    let (quota, mut store) = (twenty(), Escrow::default());
    ask(&mut store, 5, quota, claim(1, 0, 20));
    assert_eq!(store.full_us(), 5 + HELD_US + 2 * SECOND_US);
    assert_eq!(store.acquire(store.full_us() - 1, "b", &acquire(quota, &[])).deficit_ns, 1_000);
    assert_eq!(store.acquire(store.full_us(), "b", &acquire(quota, &[])).deficit_ns, 0);
}

/// What a claim of one token is told to wait, in milliseconds.
fn wait_ms(store: &mut Escrow, now_us: u64, pop: &str, quota: Quota, claim: Claim) -> u64 {
    store.acquire(now_us, pop, &acquire(quota, &[claim])).leases[0].wait_ms
}

// I6
#[test]
fn a_acquire_that_gets_less_than_it_wants_is_told_when_a_token_comes() {
    let (quota, mut store) = (quota(1, Period::Hour, 2), Escrow::default());
    let hour_ms = 3_600_000;
    assert_eq!(wait_ms(&mut store, 0, "a", quota, claim(1, 0, 1)), 0, "all of it");
    assert_eq!(wait_ms(&mut store, 0, "a", quota, claim(1, 1, 2)), hour_ms, "one of two");
    assert_eq!(wait_ms(&mut store, 10 * SECOND_US, "a", quota, claim(2, 0, 1)), hour_ms - 10_000);
    let nearly_us = 3_600 * SECOND_US - 1;
    assert_eq!(wait_ms(&mut store, nearly_us, "a", quota, claim(3, 0, 9)), 1, "rounded up");
    assert_eq!(wait_ms(&mut store, nearly_us + 1, "a", quota, claim(4, 0, 1)), 0);
}

// I6
#[test]
fn an_answer_says_when_a_token_refills_and_whether_others_may_give_some_back() {
    let (quota, mut store) = (quota(1, Period::Hour, 2), Escrow::default());
    let mut told = |pop, claim| {
        let leased = store.acquire(0, pop, &acquire(quota, &[claim])).leases[0];
        (leased.wait_ms, leased.may_return)
    };
    assert_eq!(told("a", claim(1, 0, 2)), (0, false));
    assert_eq!(told("b", claim(1, 0, 1)), (3_600_000, true));
    assert_eq!(told("a", claim(1, 0, 3)), (3_600_000, false), "its own are on hand");
    assert_eq!(told("a", claim(1, 2, 0)), (0, false));
    assert_eq!(told("b", claim(1, 0, 1)), (3_600_000, false), "all are spent");
}

#[test]
fn absurd_numbers_saturate() {
    let (quota, mut store) = (quota(1, Period::Day, 400), Escrow::default());
    let mut long = acquire(quota, &[claim(1, 0, u32::MAX), claim(1, u64::MAX, 1), claim(u64::MAX, 0, 1)]);
    long.lease_us = u64::MAX;
    let acquired = store.acquire(1, "a", &long);
    assert_eq!(acquired.leases[0], Leased { wait_ms: 86_400_000, ..Leased::of(400, 10_000) });
    assert_eq!((acquired.leases[1], acquired.leases[2].charged), (NO_LEASE, 0));
    assert_eq!(claim(1, u64::MAX, 1).spent(), COUNT_MAX);
    assert_eq!(long.leased_us(), LEASE_US_MAX);
    long.lease_us = 0;
    assert_eq!(long.leased_us(), 1_000);
    assert_eq!(store.acquire(u64::MAX, "a", &acquire(quota, &[claim(2, 0, 1)])).given, 1);
    assert!(store.expires_us() >= store.full_us());
}
