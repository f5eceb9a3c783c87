//! Effects of one acquire from a window, fixed or sliding.
//!
//! Tests of I6.

use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, Escrow, NO_LEASE};
use weir_budget::store_clock::{Bounds, Jump};
use weir_protocol::calendar::{Calendar, DAY_US, Window};
use weir_protocol::messages::Leased;
use weir_protocol::quota::Period;
use weir_protocol::refill_policy::RefillPolicy;

use super::{DAY, MINUTE, SECOND_US, Store, claim, quota};

const NOON: u64 = DAY_US / 2;
const LEASE_US: u64 = 600 * SECOND_US;
const LEASE_MS: u32 = 600_000;
const MINUTE_US: u64 = 60 * SECOND_US;

fn daily() -> Store {
    Store::new(RefillPolicy::Window(Calendar::DAY), quota(20, Period::Day, 20))
}

fn minutely(refill_policy: RefillPolicy) -> Store {
    Store::new(refill_policy, quota(20, Period::Minute, 20))
}

#[test]
fn a_window_gives_its_count_and_the_next_is_whole() {
    let mut store = daily();
    let first = store.acquire(NOON, "a", &[claim(1, 0, 15)]);
    assert_eq!(first.leases, [Leased { left: 5, ..Leased::of(15, LEASE_MS) }]);
    assert_eq!((first.given, first.outstanding, first.deficit_ns), (15, 15, 15 * store.quota.token_ns()));
    let (last, quarter) = (DAY_US - 1, DAY_US / 4);
    // A time and a claim; then the tokens debited for its epoch, and the wait for more in milliseconds.
    for (at_us, claim, charged, wait_ms) in [
        (NOON + SECOND_US, claim(1, 15, 15), Some(20), (DAY_US / 2 - SECOND_US) / 1_000),
        (NOON + quarter, claim(2, 0, 1), Some(0), quarter / 1_000),
        (last, claim(2, 0, 20), None, 1),
        (last + 1, claim(1, 5, 1), None, 0),
        (last + 1, claim(2, 0, 50), Some(20), DAY_US / 1_000),
        (last + 1 + 40 * DAY_US, claim(3, 0, 50), Some(20), DAY_US / 1_000),
    ] {
        let lease = store.claim(at_us, claim);
        assert_eq!((lease.lease_ms > 0).then_some(lease.charged), charged, "at {at_us}");
        assert_eq!(lease.wait_ms, wait_ms, "at {at_us}");
    }
    assert_eq!(store.lacking(), 20);
}

#[test]
fn no_lease_outlasts_its_window() {
    for before in [LEASE_US, 120 * SECOND_US, SECOND_US, 2_000, 1_016] {
        let mut store = daily();
        let lease = store.claim(DAY_US - before, claim(1, 0, 1));
        let lease_us = u64::from(lease.lease_ms) * 1_000;
        assert_eq!(lease.charged, 1);
        assert!(lease_us * 65 / 64 <= before && lease_us + 1_000 > before * 64 / 65, "{lease_us} of {before}");
        assert_eq!([DAY_US - 1, DAY_US].map(|us| store.acquire(us, "a", &[]).outstanding), [1, 0]);
    }
    for refill_policy in [RefillPolicy::Window(MINUTE), RefillPolicy::Sliding(MINUTE)] {
        let mut store = minutely(refill_policy);
        // The last of these leases would be too short to be of use.
        for (at_us, given, wait_ms) in [(0, 1, 0), (MINUTE_US - 1_015, 0, 2), (MINUTE_US - 1, 0, 1), (MINUTE_US, 1, 0)]
        {
            let lease = store.claim(at_us, claim(at_us, 0, 1));
            assert_eq!((lease.charged, lease.wait_ms), (given, wait_ms), "{refill_policy:?} at {at_us}");
        }
    }
}

#[test]
fn tokens_that_others_hold_are_asked_for_again_sooner() {
    let mut store = daily();
    store.claim(NOON, claim(1, 0, 20));
    for (at_us, claim, wait_ms, what) in [
        // Half of the ten minutes less thirty seconds for which a POP keeps it, and a second.
        (NOON, claim(2, 0, 1), 286_000, "another holds them"),
        (NOON, claim(1, 0, 21), DAY_US / 2 / 1_000, "no other has any"),
        (DAY_US - SECOND_US, claim(3, 0, 1), 1_000, "the window ends sooner"),
    ] {
        assert_eq!(store.claim(at_us, claim).wait_ms, wait_ms, "{what}");
    }
}

/// Acquires where months are days, for a weir-sync whose clock shows `by_us`.
fn ask_by(escrow: &mut Escrow, at_us: u64, by_us: u64, claim: Claim) -> AcquireResult {
    let window = Some(Window { calendar: Calendar::MONTH, ..Calendar::DAY.window(by_us) });
    let month = RefillPolicy::Window(Calendar::MONTH);
    let request = AcquireRequest { window, ..Store::new(month, daily().quota).request(&[claim]) };
    escrow.acquire(at_us, "a", &request)
}

/// Two weir-syncs, one of whose clocks is ahead and one behind.
#[test]
fn windows_follow_the_stores_clock_within_one_window() {
    for off in [60 * SECOND_US, DAY_US - 1] {
        let (before, mut store) = (DAY - 30 * SECOND_US, Escrow::default());
        for (epoch, at_us, by_us, wanted, given) in [
            (1, before, before + off, 20, 20),
            (2, before, before - off, 20, 0),
            (3, DAY, DAY - off, 12, 12),
            (4, DAY, DAY + off, 20, 8),
            (5, DAY + DAY_US - 1, DAY + DAY_US + off, 20, 0),
        ] {
            assert_eq!(ask_by(&mut store, at_us, by_us, claim(epoch, 0, wanted)).given, given, "{epoch}");
        }
    }
    let (noon, mut store) = (DAY + NOON, Escrow::default());
    for by_us in [0, noon - 3 * DAY_US, noon + 40 * DAY_US, u64::MAX] {
        let acquired = ask_by(&mut store, noon, by_us, claim(1, 0, 1));
        assert_eq!((acquired.leases[0], acquired.given), (NO_LEASE, 0), "{by_us}");
    }
    // One that was entered goes on.
    ask_by(&mut store, noon, noon, claim(1, 0, 1));
    assert_eq!(ask_by(&mut store, noon, 0, claim(1, 1, 1)).given, 1);
}

#[test]
fn a_sliding_window_counts_the_fading_part_of_the_previous_one() {
    let mut store = minutely(RefillPolicy::Sliding(MINUTE));
    let first = store.claim(MINUTE_US / 2, claim(1, 0, 30));
    // The next one fits once a twentieth of the next window is over.
    assert_eq!((first.charged, first.left, first.wait_ms), (20, 0, 33_000));
    for (at_us, given) in [(MINUTE_US / 20 - 4_001, 0), (MINUTE_US / 20, 1), (MINUTE_US / 2, 9), (MINUTE_US - 4_000, 9)]
    {
        let acquired = store.acquire(MINUTE_US + at_us, "a", &[claim(at_us, 0, 30)]);
        assert_eq!((acquired.given, acquired.leases[0].left), (given, 0), "{at_us}");
    }
    // Tokens given back in their window do not count; later, they may have been spent.
    let mut store = minutely(RefillPolicy::Sliding(MINUTE));
    store.acquire(0, "a", &[claim(1, 0, 10), claim(2, 0, 10)]);
    assert_eq!(store.acquire(1, "a", &[claim(1, 4, 0), claim(3, 0, 30)]).given, 6);
    let late = store.acquire(MINUTE_US, "a", &[claim(2, 1, 0), claim(4, 0, 1)]);
    assert_eq!((late.given, late.outstanding), (0, 0));
    // A tenth of ten has faded after six seconds.
    let mut store = minutely(RefillPolicy::Sliding(MINUTE));
    store.claim(0, claim(1, 0, 10));
    let next = store.claim(MINUTE_US, claim(2, 0, 30));
    assert_eq!((next.charged, next.wait_ms), (10, 6_000));
    let fits_us = MINUTE_US + 6 * SECOND_US;
    assert_eq!([fits_us - 4_001, fits_us].map(|us| store.given(us, claim(us, 0, 1))), [0, 1]);
}

/// Tokens that POPs still hold when the clock jumps into the next window are debited there.
#[test]
fn a_jump_of_the_stores_clock_gives_no_second_count() {
    // The caller's clock shows that a second has passed.
    let now_us = DAY + DAY_US + 60 * SECOND_US;
    let jump = Jump { seen_us: now_us, length_us: now_us - (DAY + NOON + SECOND_US) };
    let time = Bounds { latest_us: now_us, jump }.at(now_us).unwrap();
    let month = RefillPolicy::Window(Calendar::MONTH);
    let mut escrow = Escrow::default();
    ask_by(&mut escrow, DAY + NOON, DAY + NOON, claim(1, 0, 20));
    ask_by(&mut escrow, DAY + NOON, DAY + NOON, claim(1, 12, 8));
    let window = Some(Window { calendar: Calendar::MONTH, ..Calendar::DAY.window(now_us) });
    let request = AcquireRequest { window, ..Store::new(month, daily().quota).request(&[claim(2, 0, 20)]) };
    let acquired = escrow.acquire(time, "a", &request);
    assert_eq!((acquired.given, acquired.outstanding), (12, 20), "eight are out");
    let later = now_us + SECOND_US;
    ask_by(&mut escrow, later, later, claim(1, 14, 0));
    assert_eq!(ask_by(&mut escrow, later, later, claim(3, 0, 9)).given, 6, "six came back");
}

// I8
#[test]
fn a_step_over_many_windows_prolongs_one_and_begins_none_early() {
    for (refill_policy, given, half) in [(RefillPolicy::Window(MINUTE), 20, 0), (RefillPolicy::Sliding(MINUTE), 0, 10)]
    {
        let mut store = minutely(refill_policy);
        let begin = 100 * MINUTE_US;
        assert_eq!(store.given(begin, claim(1, 0, 20)), 20);
        // An hour and ten seconds back: the minute had all of its time left.
        let (back, end) = (begin - 61 * MINUTE_US + 50 * SECOND_US, begin - 59 * MINUTE_US);
        assert_eq!([back, end - 1].map(|us| store.given(us, claim(2, 0, 20))), [0, 0]);
        assert_eq!(store.given(end, claim(3, 0, 20)), given);
        assert_eq!(store.given(end + MINUTE_US / 2, claim(4, 0, 20)), half);
    }
    for hours in [1, 24] {
        let (mut store, began) = (minutely(RefillPolicy::Window(MINUTE)), MINUTE_US / 2);
        assert_eq!(store.given(began, claim(1, 0, 20)), 20);
        assert_eq!(store.acquire(began, "a", &[claim(1, 20, 1)]).outstanding, 0);
        let length_us = hours * 60 * MINUTE_US;
        let (seen_us, next) = (DAY + began + length_us, DAY + MINUTE_US + length_us);
        for (now_us, given) in [(seen_us + SECOND_US, 0), (next - 1, 0), (next, 20)] {
            let time = Bounds { latest_us: now_us, jump: Jump { seen_us, length_us } }.at(now_us).unwrap();
            let request = store.request(&[claim(now_us, 0, 20)]);
            assert_eq!(store.escrow.acquire(time, "a", &request).given, given);
        }
    }
}
