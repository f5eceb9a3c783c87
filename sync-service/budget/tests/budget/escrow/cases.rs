//! Effects of one acquire: with continuous refill, from a log and from places in flight, and claims without a lease.
//!
//! Tests of I6.

use weir_budget::escrow::{Claim, ClaimKind, ENDED_KEPT_US, NO_LEASE};
use weir_protocol::messages::Leased;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;

use super::{HELD_US, LEASE_US, MINUTE, SECOND_US, Store, claim, quota};

/// 20 tokens, ten a second.
fn twenty() -> Store {
    Store::new(RefillPolicy::Continuous, quota(10, Period::Second, 20))
}

#[test]
fn an_epoch_whose_lease_has_ended_is_over() {
    let mut store = twenty();
    let (last_us, kept_us) = (2 * HELD_US - 1, 2 * HELD_US - 1 + ENDED_KEPT_US);
    for (at_us, claim, charged, what) in [
        (0, claim(1, 0, 5), Some(5), "a new one"),
        (HELD_US - 1, claim(1, 5, 1), Some(6), "renewed in time"),
        (last_us, claim(1, 5, 1), None, "over"),
        (last_us, claim(2, 0, 1), Some(1), "another"),
        (kept_us - 1, claim(1, 0, 1), None, "a delayed report, of no use"),
        (kept_us, claim(1, 0, 1), Some(1), "forgotten"),
    ] {
        let lease = store.claim(at_us, claim);
        assert_eq!((lease != NO_LEASE).then_some(lease.charged), charged, "{what}");
    }
}

// I8
#[test]
fn a_clock_step_back_gives_nothing_and_prolongs_no_lease() {
    let mut store = twenty();
    store.claim(100 * SECOND_US, claim(1, 0, 20));
    for at_us in [99 * SECOND_US, 50 * SECOND_US, 0] {
        let acquired = store.acquire(at_us, "b", &[]);
        assert_eq!((acquired.deficit_ns, acquired.outstanding), (store.quota.fill_ns(), 20), "at {at_us}");
    }
    let ended = store.acquire(HELD_US + SECOND_US, "b", &[]);
    assert_eq!((ended.deficit_ns, ended.outstanding), (10 * store.quota.token_ns(), 0));
    let mut store = five_a_minute();
    store.claim(3_600 * SECOND_US, claim(1, 0, 5));
    store.claim(3_600 * SECOND_US, claim(1, 5, 1));
    assert_eq!([(0, 2), (MINUTE_US - 1, 3), (MINUTE_US, 4)].map(|(us, n)| store.given(us, claim(n, 0, 5))), [0, 0, 5]);
}

#[test]
fn a_claim_cut_short_gets_the_time_of_the_next_token() {
    let mut store = Store::new(RefillPolicy::Continuous, quota(1, Period::Hour, 2));
    let hour_us = 3_600 * SECOND_US;
    // At that time the POP makes a claim: the wait in milliseconds, and if others may give tokens back.
    for (at_us, pop, claim, wait_ms, may_return) in [
        (0, "a", claim(1, 0, 2), 0, false),
        (0, "b", claim(1, 0, 1), 3_600_000, true),
        (0, "a", claim(1, 0, 3), 3_600_000, false),
        (0, "a", claim(1, 2, 0), 0, false),
        (0, "b", claim(1, 0, 1), 3_600_000, false),
        (10 * SECOND_US, "b", claim(1, 0, 1), 3_590_000, false),
        (hour_us - 1, "b", claim(3, 0, 9), 1, false),
        (hour_us, "b", claim(4, 0, 1), 0, false),
    ] {
        let lease = store.acquire(at_us, pop, &[claim]).leases[0];
        assert_eq!((lease.wait_ms, lease.may_return), (wait_ms, may_return), "{pop} at {at_us}");
    }
}

const MINUTE_US: u64 = 60 * SECOND_US;

fn five_a_minute() -> Store {
    Store::new(RefillPolicy::Log(60), quota(5, Period::Minute, 5))
}

#[test]
fn a_logged_token_counts_from_its_latest_possible_use() {
    let mut store = five_a_minute();
    assert_eq!(store.claim(0, claim(1, 0, 3)), Leased { left: 2, ..Leased::of(3, 2_000) });
    store.claim(SECOND_US, claim(1, 2, 1));
    let last = store.acquire(2 * SECOND_US, "a", &[claim(1, 3, 2)]);
    assert_eq!((last.given, last.outstanding), (2, 2));
    // Two are known to be spent since the first second, one since the next.
    for (at_us, given) in [(61 * SECOND_US - 1, 0), (61 * SECOND_US, 2), (62 * SECOND_US, 1)] {
        assert_eq!(store.given(at_us, claim(at_us, 0, 9)), given, "{at_us}");
    }
    let mut silent = five_a_minute();
    silent.claim(0, claim(1, 0, 5));
    let counts_us = HELD_US + MINUTE_US;
    assert_eq!([counts_us - 1, counts_us].map(|us| silent.given(us, claim(us, 0, 5))), [0, 5]);
}

#[test]
fn a_log_returns_the_time_of_its_first_free_token() {
    let mut store = five_a_minute();
    let unspent_ms = (MINUTE_US + HELD_US).div_ceil(1_000);
    for (at_us, claim, wait_ms) in
        [(0, claim(1, 0, 9), unspent_ms), (SECOND_US, claim(1, 5, 1), 60_000), (31 * SECOND_US, claim(2, 0, 1), 30_000)]
    {
        assert_eq!(store.claim(at_us, claim).wait_ms, wait_ms, "at {at_us}");
    }
}

/// Five places of requests that may go on for a minute.
fn five_places() -> Store {
    Store::new(RefillPolicy::InFlight(60), Quota::from_token_ns(12_000_000_000, 5).unwrap())
}

#[test]
fn a_place_in_flight_is_free_only_once_returned() {
    let mut store = five_places();
    // Epoch 1 of each POP: places given back and wanted beside them; given then, and in use.
    for (at_us, pop, back, wanted, given, in_use) in [
        (0, "a", 0, 9, 5, 5),
        (1, "b", 0, 1, 0, 5),
        (2, "a", 2, 3, 0, 3),
        (3, "b", 0, 9, 2, 5),
        // Reports that are repeated or overtaken.
        (3, "a", 2, 3, 0, 5),
        (3, "a", 0, 5, 0, 5),
        (3, "a", 1, 4, 0, 5),
        (4, "a", 2, 0, 0, 2),
        (5, "b", 0, 9, 3, 5),
    ] {
        let acquired = store.acquire(at_us, pop, &[claim(1, back, wanted)]);
        assert_eq!((acquired.given, acquired.outstanding), (given, in_use), "{pop} at {at_us}");
        assert_eq!(acquired.leases[0].wait_ms, if wanted == 9 || at_us == 1 { 250 } else { 0 });
    }
}

#[test]
fn places_of_a_silent_pop_count_until_its_requests_expire() {
    let mut store = five_places();
    let epoch_us = LEASE_US + MINUTE_US;
    let held = epoch_us + epoch_us.div_ceil(64);
    for (at_us, pop, back, wanted, given) in [
        (0, "a", 0, 5, 5),
        (held - 1, "b", 0, 5, 0),
        // It was only cut off, and goes on with its epoch.
        (held - 1, "a", 4, 1, 0),
        (held, "b", 0, 5, 4),
        (2 * held - 2, "b", 0, 5, 0),
        (2 * held - 1, "b", 0, 5, 1),
    ] {
        assert_eq!(store.acquire(at_us, pop, &[claim(1, back, wanted)]).given, given, "{pop} at {at_us}");
    }
}

/// Ten tokens, one a second.
fn ten(refill_policy: RefillPolicy) -> Store {
    Store::new(refill_policy, quota(1, Period::Second, 10))
}

const REFUNDED: [RefillPolicy; 4] =
    [RefillPolicy::Continuous, RefillPolicy::Window(MINUTE), RefillPolicy::Sliding(MINUTE), RefillPolicy::Log(5)];

/// Time and tokens of a take; `None` if it gets them, else the wait in milliseconds.
type Take = (u64, u32, Option<u64>);

#[test]
fn a_take_gets_all_or_nothing_from_then_on() {
    let (minute, token) = (MINUTE_US, SECOND_US);
    let cases: [(RefillPolicy, &[Take]); 4] = [
        (
            RefillPolicy::Continuous,
            &[(0, 7, None), (0, 4, Some(1_000)), (0, 3, None), (token / 2, 1, Some(500)), (2 * token, 2, None)],
        ),
        (
            RefillPolicy::Window(MINUTE),
            &[(0, 6, None), (15 * token, 5, Some(45_000)), (minute - 1, 5, Some(1)), (minute, 5, None)],
        ),
        // Half of the previous window must have faded.
        (
            RefillPolicy::Sliding(MINUTE),
            &[(0, 10, None), (minute, 5, Some(30_000)), (89 * token, 5, Some(1_000)), (90 * token, 5, None)],
        ),
        (
            RefillPolicy::Log(5),
            &[(token, 6, None), (2 * token, 4, None), (3 * token, 1, Some(3_000)), (6 * token, 6, None)],
        ),
    ];
    for (refill_policy, takes) in cases {
        let mut store = ten(refill_policy);
        for &(at_us, tokens, wait_ms) in takes {
            let lease = store.claim(at_us, Claim::take(tokens));
            let charged = if wait_ms.is_none() { tokens.into() } else { 0 };
            let expected = (charged, wait_ms.unwrap_or(0), 0);
            assert_eq!((lease.charged, lease.wait_ms, lease.lease_ms), expected, "{refill_policy:?} at {at_us}");
        }
    }
}

#[test]
fn charges_may_exceed_the_level_and_refunds_never_the_charges() {
    let at_once = |kind, tokens| (Claim::at_once(kind, tokens), u64::from(tokens));
    for refill_policy in REFUNDED {
        let mut store = ten(refill_policy);
        for (at, (claim, charged)) in [
            at_once(ClaimKind::Take, 7),
            at_once(ClaimKind::Charge, 9),
            (Claim::take(1), 0),
            at_once(ClaimKind::Refund, 6),
            (Claim::take(1), 0),
            at_once(ClaimKind::Refund, 2),
            (Claim::take(3), 0),
            at_once(ClaimKind::Take, 2),
            at_once(ClaimKind::Refund, u32::MAX),
            at_once(ClaimKind::Take, 10),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(store.claim(0, claim).charged, charged, "{refill_policy:?}, {at}");
        }
    }
    let mut store = ten(RefillPolicy::Continuous);
    store.claim(0, Claim::at_once(ClaimKind::Charge, 15));
    assert_eq!(store.claim(0, Claim::take(1)).wait_ms, 6_000, "five are owed");
    // Outstanding tokens are not refunded.
    for refill_policy in &REFUNDED[..3] {
        let claims = [claim(1, 0, 6), Claim::at_once(ClaimKind::Refund, 10), Claim::take(5), Claim::take(4)];
        let leases = ten(*refill_policy).acquire(0, "a", &claims).leases;
        assert_eq!(leases.iter().map(|lease| lease.charged).collect::<Vec<_>>(), [6, 10, 0, 4]);
    }
    for (refill_policy, kind) in [
        (RefillPolicy::Queue, ClaimKind::Refund),
        (RefillPolicy::InFlight(60), ClaimKind::Refund),
        (RefillPolicy::InFlight(60), ClaimKind::Charge),
    ] {
        assert_eq!(ten(refill_policy).claim(0, Claim::at_once(kind, 1)), NO_LEASE, "{refill_policy:?} {kind:?}");
    }
    let mut queue = ten(RefillPolicy::Queue);
    assert_eq!(queue.claim(0, Claim::at_once(ClaimKind::Charge, 15)).charged, 15);
    assert_eq!(queue.claim(0, Claim::take(1)).charged, 0);
}
