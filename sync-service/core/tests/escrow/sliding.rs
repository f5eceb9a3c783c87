//! What one acquire from a sliding window does.

use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, Escrow};
use weir_protocol::calendar::Calendar;
use weir_protocol::quota::Period;
use weir_protocol::refill_policy::RefillPolicy;

use crate::{SECOND_US, acquire, quota};

/// The first moment of some minute, in microseconds.
const MINUTE: u64 = 28_000_000 * LENGTH;
const LENGTH: u64 = 60 * SECOND_US;

fn claim(epoch: u64, admitted: u64, ahead: u32) -> Claim {
    Claim::of(epoch, admitted, ahead)
}

/// Acquires from twenty a minute.
fn ask(store: &mut Escrow, now_us: u64, claims: &[Claim]) -> AcquireResult {
    let refill_policy = RefillPolicy::Sliding(Calendar::every(60, 0));
    let acquire = AcquireRequest {
        lease_us: 600 * SECOND_US,
        refill_policy,
        ..acquire(quota(20, Period::Minute, 20), claims)
    };
    store.acquire(now_us, "a", &acquire)
}

#[test]
fn the_window_before_fades() {
    let mut store = Escrow::default();
    let first = ask(&mut store, MINUTE + LENGTH / 2, &[claim(1, 0, 30)]);
    let token_ns = quota(20, Period::Minute, 20).token_ns();
    assert_eq!((first.given, first.leases[0].left, first.deficit_ns), (20, 0, 20 * token_ns));
    // The next one fits once a twentieth of the next window is over.
    assert_eq!(first.leases[0].wait_ms, (LENGTH / 2 + LENGTH / 20) / 1_000);
    let next = MINUTE + LENGTH;
    for (at, given, left_after) in
        [(LENGTH / 20 - 4_001, 0, 0), (LENGTH / 20, 1, 0), (LENGTH / 2, 9, 0), (LENGTH - 4_000, 9, 0)]
    {
        let acquired = ask(&mut store, next + at, &[claim(at, 0, 30)]);
        assert_eq!((acquired.given, acquired.leases[0].left), (given, left_after), "{at}");
    }
}

#[test]
fn what_is_given_back_in_its_window_does_not_count_and_later_does() {
    let mut store = Escrow::default();
    ask(&mut store, MINUTE, &[claim(1, 0, 10)]);
    ask(&mut store, MINUTE, &[claim(2, 0, 10)]);
    assert_eq!(ask(&mut store, MINUTE + 1, &[claim(1, 4, 0), claim(3, 0, 30)]).given, 6);
    let late = ask(&mut store, MINUTE + LENGTH, &[claim(2, 1, 0), claim(4, 0, 1)]);
    assert_eq!((late.given, late.outstanding), (0, 0), "its lease is over: it may have been spent");
}

#[test]
fn it_says_when_the_next_token_fits() {
    let mut store = Escrow::default();
    ask(&mut store, MINUTE, &[claim(1, 0, 10)]);
    let next = MINUTE + LENGTH;
    let acquired = ask(&mut store, next, &[claim(2, 0, 30)]);
    // A tenth of the first ten has faded by then.
    assert_eq!((acquired.given, acquired.leases[0].wait_ms), (10, 6_000));
    assert_eq!(ask(&mut store, next + 6 * SECOND_US - 4_001, &[claim(3, 0, 1)]).given, 0);
    assert_eq!(ask(&mut store, next + 6 * SECOND_US, &[claim(4, 0, 1)]).given, 1);
}
