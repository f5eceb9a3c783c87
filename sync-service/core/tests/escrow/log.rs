//! What one acquire from a log does.

use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, Escrow};
use weir_protocol::messages::Leased;
use weir_protocol::quota::Period;
use weir_protocol::refill_policy::RefillPolicy;

use crate::{LEASE_US, SECOND_US, acquire, quota};

const NOW: u64 = 1 << 50;
const LENGTH: u64 = 60 * SECOND_US;
/// For how long a lease of two seconds counts as outstanding.
const HELD: u64 = LEASE_US + LEASE_US / 64;

fn claim(epoch: u64, admitted: u64, ahead: u32) -> Claim {
    Claim::of(epoch, admitted, ahead)
}

/// Acquires from five a minute.
fn ask(store: &mut Escrow, at_us: u64, claims: &[Claim]) -> AcquireResult {
    let acquire = AcquireRequest {
        refill_policy: RefillPolicy::Log(60),
        ..acquire(quota(5, Period::Minute, 5), claims)
    };
    store.acquire(NOW + at_us, "a", &acquire)
}

#[test]
fn a_token_counts_for_its_length_once_it_is_known_to_be_spent() {
    let mut store = Escrow::default();
    assert_eq!(ask(&mut store, 0, &[claim(1, 0, 3)]).leases[0], Leased { left: 2, ..Leased::of(3, 2_000) });
    ask(&mut store, SECOND_US, &[claim(1, 2, 1)]);
    let last = ask(&mut store, 2 * SECOND_US, &[claim(1, 3, 2)]);
    assert_eq!((last.given, last.outstanding), (2, 2));
    // Two are known since the first second, one since the next.
    for (at_us, given) in [(LENGTH + SECOND_US - 1, 0), (LENGTH + SECOND_US, 2), (LENGTH + 2 * SECOND_US, 1)]
    {
        assert_eq!(ask(&mut store, at_us, &[claim(at_us, 0, 9)]).given, given, "{at_us}");
    }
}

#[test]
fn what_may_have_been_spent_until_its_lease_ended_counts_from_then_on() {
    let mut store = Escrow::default();
    ask(&mut store, 0, &[claim(1, 0, 5)]);
    assert_eq!(ask(&mut store, HELD + LENGTH - 1, &[claim(2, 0, 5)]).given, 0);
    assert_eq!(ask(&mut store, HELD + LENGTH, &[claim(3, 0, 5)]).given, 5);
}

#[test]
fn it_says_when_the_first_of_its_tokens_comes_back() {
    let mut store = Escrow::default();
    let all = ask(&mut store, 0, &[claim(1, 0, 9)]);
    assert_eq!(all.leases[0].wait_ms, (LENGTH + HELD).div_ceil(1_000), "nothing of it is known to be spent");
    let spent = ask(&mut store, SECOND_US, &[claim(1, 5, 1)]);
    assert_eq!(spent.leases[0].wait_ms, 60_000);
    assert_eq!(ask(&mut store, 31 * SECOND_US, &[claim(2, 0, 1)]).leases[0].wait_ms, 30_000);
}

#[test]
fn a_clock_that_steps_back_makes_nothing_come_back_early_or_much_later() {
    let mut store = Escrow::default();
    ask(&mut store, 0, &[claim(1, 0, 5)]);
    ask(&mut store, 0, &[claim(1, 5, 1)]);
    let hour = 3_600 * SECOND_US;
    let back = |us| us - hour;
    let ask = |store: &mut Escrow, at_us: u64, epoch| {
        let acquire = AcquireRequest {
            refill_policy: RefillPolicy::Log(60),
            ..acquire(quota(5, Period::Minute, 5), &[claim(epoch, 0, 5)])
        };
        store.acquire(back(NOW + at_us), "a", &acquire).given
    };
    assert_eq!(
        [ask(&mut store, 0, 2), ask(&mut store, LENGTH - 1, 3), ask(&mut store, LENGTH, 4)],
        [0, 0, 5]
    );
}
