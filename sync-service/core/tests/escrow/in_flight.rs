//! What one acquire from places in flight does.

use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, Escrow};
use weir_protocol::messages::Leased;
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;

use crate::{LEASE_US, SECOND_US, acquire};

const NOW: u64 = 1 << 50;
/// A lease, and for how long a request may go on that began at its end.
const EPOCH_US: u64 = LEASE_US + 60 * SECOND_US;

/// So many places given back, and so many wanted beside them.
fn claim(epoch: u64, given_back: u64, ahead: u32) -> Claim {
    Claim::of(epoch, given_back, ahead)
}

/// Acquires from five places.
fn ask(store: &mut Escrow, at_us: u64, pop: &str, claims: &[Claim]) -> AcquireResult {
    let quota = Quota::from_token_ns(12_000_000_000, 5).unwrap();
    store.acquire(
        NOW + at_us,
        pop,
        &AcquireRequest { refill_policy: RefillPolicy::InFlight(60), ..acquire(quota, claims) },
    )
}

#[test]
fn a_place_that_is_given_back_is_free_at_once() {
    let mut store = Escrow::default();
    let all = ask(&mut store, 0, "a", &[claim(1, 0, 9)]);
    assert_eq!(all.leases[0], Leased { wait_ms: 250, ..Leased::of(5, 62_000) });
    assert_eq!(ask(&mut store, 1, "b", &[claim(1, 0, 1)]).leases[0].wait_ms, 250);
    // Two requests have ended, and three go on.
    let fewer = ask(&mut store, 2, "a", &[claim(1, 2, 3)]);
    assert_eq!((fewer.given, fewer.outstanding, fewer.leases[0].left), (0, 3, 2));
    assert_eq!(ask(&mut store, 3, "b", &[claim(1, 0, 9)]).given, 2);
    // It gives back the rest.
    assert_eq!(ask(&mut store, 4, "a", &[claim(1, 2, 0)]).outstanding, 2);
    assert_eq!(ask(&mut store, 5, "b", &[claim(1, 0, 9)]).given, 3);
}

#[test]
fn reports_that_are_overtaken_or_repeated_free_nothing_that_is_in_use() {
    let mut store = Escrow::default();
    ask(&mut store, 0, "a", &[claim(1, 0, 5)]);
    ask(&mut store, 1, "a", &[claim(1, 3, 2)]);
    for (given_back, ahead) in [(3, 2), (0, 5), (1, 4), (3, 2)] {
        let acquired = ask(&mut store, 2, "a", &[claim(1, given_back, ahead)]);
        assert_eq!((acquired.given, acquired.outstanding, acquired.leases[0].charged), (0, 2, 5));
    }
    // One that wants more than it did later gets it, and so holds it.
    assert_eq!(ask(&mut store, 3, "a", &[claim(1, 2, 5)]).outstanding, 4);
}

#[test]
fn the_places_of_a_pop_that_falls_silent_count_until_its_requests_must_be_over() {
    let mut store = Escrow::default();
    ask(&mut store, 0, "a", &[claim(1, 0, 5)]);
    let held = EPOCH_US + EPOCH_US.div_ceil(64);
    assert_eq!(ask(&mut store, held - 1, "b", &[claim(1, 0, 5)]).given, 0);
    // It was only cut off: it goes on with its epoch until then.
    assert_eq!(ask(&mut store, held - 1, "a", &[claim(1, 4, 1)]).leases[0].charged, 5);
    assert_eq!(ask(&mut store, held, "b", &[claim(1, 0, 5)]).given, 4);
    assert_eq!(ask(&mut store, 2 * held - 2, "b", &[claim(1, 0, 5)]).given, 0, "one more of the other");
    assert_eq!(ask(&mut store, 2 * held - 1, "b", &[claim(1, 0, 5)]).given, 1);
}
