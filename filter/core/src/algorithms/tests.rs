//! The classic attack on windows: 100 requests at :58 and 100 at :01, under 100 a minute.
//!
//! The bad outcome is 200 within three seconds. Below is each algorithm's outcome, and why.
//!
//! Tests of I3.

use std::vec::Vec;

use crate::algorithms::{
    Admission, Bucket, Cell, TakeResult, concurrency, fixed_window, leaky_bucket, sliding_log, sliding_window,
};
use weir_protocol::quota::Quota;
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::algorithm::{Concurrency, LeakyBucket, SlidingLog, WindowLimit};

const MINUTE_NS: u64 = 60 * SECOND_NS;
/// Two seconds before a minute ends, and one second into the next.
const BEFORE: Time = Time::from_nanos(9 * MINUTE_NS + 58 * SECOND_NS);
const AFTER: Time = Time::from_nanos(10 * MINUTE_NS + SECOND_NS);
/// A key whose windows begin with the minutes, and one whose windows begin half a minute later.
const ON_THE_MINUTE: u64 = 0;
const HALF_A_MINUTE_LATER: u64 = 1 << 63;

/// How many of `n` requests go through before the boundary, and how many after it.
fn bursts(n: u32, mut goes_through: impl FnMut(Time) -> bool) -> [usize; 2] {
    [BEFORE, AFTER].map(|at| (0..n).filter(|_| goes_through(at)).count())
}

/// Counts by an algorithm whose state is one cell.
fn of_a_cell(take: impl Fn(Cell, Time) -> Admission<Cell>) -> [usize; 2] {
    let mut cell = Cell::NEW;
    bursts(100, |now| match take(cell, now) {
        Admission::Taken(after) => {
            cell = after;
            true
        }
        Admission::Short { .. } => false,
    })
}

/// All 200: each burst is the first in its window. The attack is made for this.
#[test]
fn a_fixed_window_lets_both_through_if_its_boundary_lies_between() {
    let window = WindowLimit::new(100, MINUTE_NS).unwrap();
    assert_eq!(of_a_cell(|cell, now| fixed_window::take(&window, cell, ON_THE_MINUTE, 1, now)), [100, 100]);
}

/// Only 100: each key's windows begin at another time, so a client that aims at the full minute hits few boundaries.
#[test]
fn a_fixed_window_stops_the_second_if_its_boundary_lies_elsewhere() {
    let window = WindowLimit::new(100, MINUTE_NS).unwrap();
    assert_eq!(
        of_a_cell(|cell, now| fixed_window::take(&window, cell, HALF_A_MINUTE_LATER, 1, now)),
        [100, 0]
    );
}

/// 101: at :01 the window before still counts with 59 of its 60 seconds, 98.3 of 100. One more fits.
#[test]
fn a_sliding_window_lets_one_more_through() {
    let window = WindowLimit::new(100, MINUTE_NS).unwrap();
    assert_eq!(of_a_cell(|cell, now| sliding_window::take(&window, cell, ON_THE_MINUTE, 1, now)), [100, 1]);
    assert_eq!(
        of_a_cell(|cell, now| sliding_window::take(&window, cell, HALF_A_MINUTE_LATER, 1, now)),
        [100, 0]
    );
}

/// None of the second burst: the log knows that the first was three seconds ago. (It keeps up to 16.)
#[test]
fn a_sliding_log_lets_none_of_the_second_through() {
    let (log, mut cells) = (SlidingLog::new(16, MINUTE_NS).unwrap(), [Cell::NEW; 8]);
    let through =
        bursts(16, |now| matches!(sliding_log::take(&log, &mut cells, 1, now), Admission::Taken(_)));
    assert_eq!(through, [16, 0]);
}

/// 105: the burst, and what refilled in three seconds at 100 a minute.
#[test]
fn a_token_bucket_lets_through_what_has_refilled() {
    let (quota, mut bucket) = (Quota::new("100/m".parse().unwrap(), 100).unwrap(), Bucket::FULL);
    let through = bursts(100, |now| match bucket.take(&quota, 1, now) {
        TakeResult::Taken(after) => {
            bucket = after;
            true
        }
        TakeResult::Short { .. } => false,
    });
    assert_eq!(through, [100, 5]);
}

/// 105 are accepted, as many as there are places for; but they leave one by one, 0.6 s apart. The
/// upstream sees no burst: only six within those three seconds.
#[test]
fn a_leaky_bucket_accepts_what_has_left_and_lets_them_go_one_by_one() {
    let (leaky, mut bucket) = (LeakyBucket::new(MINUTE_NS / 100, 99).unwrap(), Bucket::FULL);
    let mut leaves = Vec::new();
    let through = bursts(100, |now| match leaky_bucket::take(&leaky, bucket, 1, now) {
        Admission::Taken(turn) => {
            leaves.push(now + turn.hold_ns);
            bucket = turn.after;
            true
        }
        Admission::Short { .. } => false,
    });
    assert_eq!(through, [100, 5]);
    assert!(leaves.windows(2).all(|two| two[1].nanos_since(two[0]) == MINUTE_NS / 100));
    assert_eq!(leaves.iter().filter(|at| **at <= AFTER).count(), 6);
}

/// It is not a rate: the second burst goes through if the first has ended by then, and not at all while the
/// first is in flight.
#[test]
fn concurrency_asks_only_what_is_still_in_flight() {
    let concurrency = Concurrency::new(100, 5 * MINUTE_NS).unwrap();
    for (ends, second) in [(false, 0), (true, 100)] {
        let (mut cell, mut flight) = (Cell::NEW, Vec::new());
        let through = bursts(100, |now| {
            if ends && now == AFTER {
                for generation in flight.drain(..) {
                    cell = concurrency::release(&concurrency, cell, generation, 1, now);
                }
            }
            match concurrency::acquire(&concurrency, cell, ON_THE_MINUTE, 1, now) {
                Admission::Taken(acquired) => {
                    cell = acquired.after;
                    if now == BEFORE {
                        flight.push(acquired.generation);
                    }
                    true
                }
                Admission::Short { .. } => false,
            }
        });
        assert_eq!(through, [100, second]);
    }
}
