//! What one acquire from a calendar's quota does.
//!
//! Tests of I6.

use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, Escrow, NO_LEASE, WINDOW_TOKEN_NS};
use weir_budget::store_clock::{Bounds, Jump};
use weir_protocol::calendar::{Calendar, DAY_US, Window};
use weir_protocol::messages::Leased;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;

use crate::{SECOND_US, acquire, quota};

/// The first moment of some day, in microseconds.
const DAY: u64 = 20_000 * DAY_US;
const NOON: u64 = DAY + DAY_US / 2;
const LEASE: u64 = 600 * SECOND_US;
const LEASE_MS: u32 = 600_000;

fn twenty() -> Quota {
    quota(20, Period::Day, 20)
}

/// Tokens debited in the window and not given back.
fn used(store: &Escrow) -> u64 {
    store.deficit_ns() / WINDOW_TOKEN_NS
}

fn claim(epoch: u64, admitted: u64, ahead: u32) -> Claim {
    Claim::of(epoch, admitted, ahead)
}

fn daily(by_us: u64, claims: &[Claim]) -> AcquireRequest {
    // A month where days are: the boundaries are those that are named.
    let window = Some(Window { calendar: Calendar::Month, ..Calendar::Day.window(by_us) });
    AcquireRequest {
        lease_us: LEASE,
        refill_policy: RefillPolicy::Window(Calendar::Month),
        window,
        ..acquire(twenty(), claims)
    }
}

/// Acquires as "a" whose clock shows `by_us`.
fn ask_by(store: &mut Escrow, now_us: u64, by_us: u64, claims: &[Claim]) -> AcquireResult {
    store.acquire(now_us, "a", &daily(by_us, claims))
}

fn ask(store: &mut Escrow, now_us: u64, claims: &[Claim]) -> AcquireResult {
    ask_by(store, now_us, now_us, claims)
}

#[test]
fn a_window_gives_its_count_and_says_when_the_next_begins() {
    let mut store = Escrow::default();
    let first = ask(&mut store, NOON, &[claim(1, 0, 15)]);
    assert_eq!(first.leases, [Leased { left: 5, ..Leased::of(15, LEASE_MS) }]);
    assert_eq!((first.given, first.outstanding, first.deficit_ns), (15, 15, 15 * twenty().token_ns()));
    let rest = ask(&mut store, NOON + SECOND_US, &[claim(1, 15, 15)]);
    let wait_ms = (DAY_US / 2 - SECOND_US) / 1_000;
    assert_eq!(rest.leases, [Leased { wait_ms, ..Leased::of(20, LEASE_MS) }]);
    let none = ask(&mut store, NOON + DAY_US / 4, &[claim(2, 0, 1)]);
    let wait_ms = DAY_US / 4 / 1_000;
    assert_eq!(none.leases, [Leased { wait_ms, ..Leased::of(0, LEASE_MS) }], "and not refused");
    assert_eq!(used(&store), 20, "however long ago");
}

#[test]
fn the_next_window_is_whole_and_old_epochs_are_over() {
    let mut store = Escrow::default();
    ask(&mut store, NOON, &[claim(1, 0, 20)]);
    let last = DAY + DAY_US - 1;
    assert_eq!(ask(&mut store, last, &[claim(2, 0, 20)]).given, 0);
    assert_eq!(ask(&mut store, last + 1, &[claim(1, 5, 1)]).leases, [NO_LEASE]);
    assert_eq!(ask(&mut store, last + 1, &[claim(2, 0, 50)]).given, 20);
    let later = ask(&mut store, last + 1 + 40 * DAY_US, &[claim(3, 0, 50)]);
    assert_eq!((later.given, later.leases[0].left), (20, 0));
}

// I6
#[test]
fn no_lease_outlasts_its_window() {
    for before in [LEASE, 120 * SECOND_US, SECOND_US, 2_000, 1_016] {
        let mut store = Escrow::default();
        let lease = ask(&mut store, DAY - before, &[claim(1, 0, 1)]).leases[0];
        let lease_us = u64::from(lease.lease_ms) * 1_000;
        assert_eq!(lease.charged, 1);
        assert!(
            lease_us * 65 / 64 <= before && lease_us + 1_000 > before * 64 / 65,
            "{lease_us} of {before}"
        );
        assert_eq!(ask(&mut store, DAY - 1, &[]).outstanding, 1);
        assert_eq!(ask(&mut store, DAY, &[]).outstanding, 0);
    }
    let mut store = Escrow::default();
    let soon = ask(&mut store, DAY - 1_015, &[claim(1, 0, 1)]);
    let ends = Leased { wait_ms: 2, ..NO_LEASE };
    assert_eq!((soon.leases.as_slice(), soon.given), ([ends].as_slice(), 0), "too short to be of use");
}

#[test]
fn a_acquire_whose_window_is_about_to_end_is_told_when_and_the_next_has_tokens() {
    let minute = Calendar::every(60, 0);
    for refill_policy in [RefillPolicy::Window(minute), RefillPolicy::Sliding(minute)] {
        let mut store = Escrow::default();
        let mut ask = |now_us, epoch| {
            let acquired = store.acquire(
                now_us,
                "a",
                &AcquireRequest { refill_policy, ..minutely(&[claim(epoch, 0, 1)]) },
            );
            (acquired.given, acquired.leases[0].wait_ms)
        };
        let end = MINUTE + MINUTE_US;
        assert_eq!(ask(MINUTE, 1), (1, 0));
        assert_eq!([(end - 1_015, 2), (end - 1, 3)].map(|(us, epoch)| ask(us, epoch)), [(0, 2), (0, 1)]);
        assert_eq!(ask(end, 4), (1, 0));
    }
}

#[test]
fn what_others_hold_is_asked_for_again_sooner() {
    let mut store = Escrow::default();
    ask(&mut store, NOON, &[claim(1, 0, 20)]);
    let other = ask(&mut store, NOON, &[claim(2, 0, 1)]).leases[0];
    // Half of the ten minutes less thirty seconds for which a POP keeps it, and a second.
    assert_eq!((other.charged, other.wait_ms), (0, 286_000));
    let own = ask(&mut store, NOON, &[claim(1, 0, 21)]).leases[0];
    assert_eq!(own.wait_ms, DAY_US / 2 / 1_000, "nobody else has any");
    let late = ask(&mut store, DAY + DAY_US - SECOND_US, &[claim(3, 0, 1)]).leases[0];
    assert_eq!(late.wait_ms, 1_000);
}

/// Two weir-syncs, one of whose clocks is ahead and one behind.
#[test]
fn the_stores_clock_says_which_window_it_is() {
    for off in [60 * SECOND_US, DAY_US - 1] {
        let mut store = Escrow::default();
        let (before, end) = (DAY - 30 * SECOND_US, DAY);
        assert_eq!(ask_by(&mut store, before, before + off, &[claim(1, 0, 20)]).given, 20);
        assert_eq!(ask_by(&mut store, before, before - off, &[claim(2, 0, 20)]).given, 0);
        assert_eq!(ask_by(&mut store, end, end - off, &[claim(3, 0, 12)]).given, 12);
        assert_eq!(ask_by(&mut store, end, end + off, &[claim(4, 0, 20)]).given, 8);
        assert_eq!(ask_by(&mut store, end + DAY_US - 1, end + DAY_US + off, &[claim(5, 0, 20)]).given, 0);
    }
}

#[test]
fn a_clock_that_is_off_by_more_than_a_window_is_given_nothing() {
    let mut store = Escrow::default();
    for by_us in [0, NOON - 3 * DAY_US, NOON + 40 * DAY_US, u64::MAX] {
        let acquired = ask_by(&mut store, NOON, by_us, &[claim(1, 0, 1)]);
        assert_eq!((acquired.leases[0], acquired.given), (NO_LEASE, 0), "{by_us}");
    }
    let undated = AcquireRequest { window: None, ..daily(NOON, &[claim(1, 0, 1)]) };
    assert_eq!(store.acquire(NOON, "a", &undated).leases, [NO_LEASE]);
    // One that was entered goes on.
    ask(&mut store, NOON, &[claim(1, 0, 1)]);
    assert_eq!(ask_by(&mut store, NOON, 0, &[claim(1, 1, 1)]).given, 1);
}

#[test]
fn windows_of_one_length_need_no_clock_but_the_stores() {
    for calendar in [Calendar::Day, Calendar::every(60, 7)] {
        let mut store = Escrow::default();
        let refill_policy = RefillPolicy::Window(calendar);
        let one = |claims: &[Claim]| AcquireRequest { refill_policy, window: None, ..daily(0, claims) };
        let end_us = calendar.window(NOON).end_us;
        let first = store.acquire(NOON, "a", &one(&[claim(1, 0, 15), claim(1, 15, 15)]));
        assert_eq!((first.given, first.leases[1].wait_ms), (20, (end_us - NOON).div_ceil(1_000)));
        assert_eq!(store.acquire(end_us - 1, "a", &one(&[claim(2, 0, 1)])).given, 0);
        assert_eq!(store.acquire(end_us, "a", &one(&[claim(3, 0, 1)])).given, 1);
    }
}

/// What POPs still hold when the clock jumps into the next window is debited there.
#[test]
fn a_jump_of_the_stores_clock_gives_no_second_count() {
    let mut store = Escrow::default();
    ask(&mut store, NOON, &[claim(1, 0, 20)]);
    ask(&mut store, NOON, &[claim(1, 12, 8)]);
    // The caller's clock says that a second has passed.
    let expected_us = NOON + SECOND_US;
    let now_us = DAY + DAY_US + 60 * SECOND_US;
    let jump = Jump { seen_us: now_us, length_us: now_us - expected_us };
    let time = Bounds { latest_us: now_us, jump }.at(now_us).unwrap();
    let acquired = store.acquire(time, "a", &daily(time.now_us, &[claim(2, 0, 20)]));
    assert_eq!((acquired.given, acquired.outstanding), (12, 20), "eight are out");
    let later = time.now_us + SECOND_US;
    let back = ask(&mut store, later, &[claim(1, 14, 0), claim(3, 0, 9)]);
    assert_eq!(back.given, 6, "six came back");
}

/// The first moment of some minute, in microseconds.
const MINUTE: u64 = 28_000_000 * MINUTE_US;
const MINUTE_US: u64 = 60 * SECOND_US;

fn minutely(claims: &[Claim]) -> AcquireRequest {
    let refill_policy = RefillPolicy::Window(Calendar::every(60, 0));
    AcquireRequest { lease_us: LEASE, refill_policy, ..acquire(quota(20, Period::Minute, 20), claims) }
}

// I8
#[test]
fn a_step_back_of_many_windows_prolongs_one_by_less_than_its_length() {
    for (refill_policy, given) in [
        (RefillPolicy::Window(Calendar::every(60, 0)), 20),
        (RefillPolicy::Sliding(Calendar::every(60, 0)), 0),
    ] {
        let mut store = Escrow::default();
        let mut ask = |now_us, claims: &[Claim]| {
            store.acquire(now_us, "a", &AcquireRequest { refill_policy, ..minutely(claims) }).given
        };
        assert_eq!(ask(MINUTE, &[claim(1, 0, 20)]), 20);
        // An hour and ten seconds back: the minute had all of its time left.
        let back = MINUTE - 61 * MINUTE_US + 50 * SECOND_US;
        let end = MINUTE - 59 * MINUTE_US;
        assert_eq!([back, end - 1].map(|now_us| ask(now_us, &[claim(2, 0, 20)])), [0, 0]);
        assert_eq!(ask(end, &[claim(3, 0, 20)]), given);
        assert_eq!(ask(end + MINUTE_US / 2, &[claim(4, 0, 20)]), if given == 0 { 10 } else { 0 });
    }
}

// I8
#[test]
fn a_jump_of_whole_windows_that_is_seen_begins_none_early() {
    for hours in [1, 24] {
        let mut store = Escrow::default();
        let began = MINUTE + MINUTE_US / 2;
        assert_eq!(store.acquire(began, "a", &minutely(&[claim(1, 0, 20)])).given, 20);
        let spent = minutely(&[claim(1, 20, 1)]);
        assert_eq!(store.acquire(began, "a", &spent).outstanding, 0);
        let length_us = hours * 60 * MINUTE_US;
        let seen_us = began + length_us;
        let at = |now_us| Bounds { latest_us: now_us, jump: Jump { seen_us, length_us } }.at(now_us).unwrap();
        let next = MINUTE + MINUTE_US + length_us;
        for (now_us, given) in [(seen_us + SECOND_US, 0), (next - 1, 0), (next, 20)] {
            assert_eq!(store.acquire(at(now_us), "a", &minutely(&[claim(now_us, 0, 20)])).given, given);
        }
    }
}
