//! Concurrency: the number of requests in flight.
//!
//! A request counts from its admission until its release. One that is never released, because its worker ended, would
//! count for ever. So requests are counted in generations as long as the expiry, and only the current and the previous
//! generation count: a request in flight expires after one to two expiries.

use crate::algorithms::{Admission, BucketStatus, Cell, NEVER_NS, Pair, Receipt};
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::algorithm::Concurrency;

/// Wait for a refused request, in nanoseconds. A request in flight may end at any time, so refusals are not cached.
pub(crate) const RETRY_NS: u64 = SECOND_NS;

/// Puts a request that counts for `n` in flight at `now`, if there is room, for a key that hashes to `hash`. Without
/// room, the wait is [`RETRY_NS`], or [`NEVER_NS`] if the request never fits.
pub(crate) fn acquire(concurrency: &Concurrency, cell: Cell, hash: u64, n: u32, now: Time) -> Admission<Cell> {
    let pair = Pair::at(cell, concurrency.expires_ns(), hash, now);
    if sum(pair) + u64::from(n) <= u64::from(concurrency.limit()) {
        return Admission::Taken(pair.plus(n).cell());
    }
    Admission::Short { wait_ns: if n > concurrency.limit() { NEVER_NS } else { RETRY_NS } }
}

/// Ends at `now` a request that counted for `n`, or undoes its start. Does nothing if the request has expired.
/// `generation` is the `until` of the cell that the request was put in flight with.
#[must_use]
pub(crate) fn release(concurrency: &Concurrency, cell: Cell, generation: Time, n: u32, now: Time) -> Cell {
    if cell.is_spent(now) {
        return cell;
    }
    let left = Pair::stored(cell).minus(n, generation, concurrency.expires_ns());
    match (left.previous, left.current) {
        // Nothing is in flight, so there is nothing to keep.
        (0, 0) => Cell::NEW,
        // If the current generation is empty, the cell is spent as soon as the previous one is.
        (previous, 0) => {
            let until = left.ends(concurrency.expires_ns());
            Pair { until, previous: 0, current: previous }.cell()
        }
        _ => left.cell(),
    }
}

/// The quota status at `now`. Both times are [`RETRY_NS`] while anything is in flight, since its end is unknown.
pub(crate) fn status(concurrency: &Concurrency, cell: Cell, now: Time) -> BucketStatus {
    let in_flight = in_flight(concurrency, cell, now);
    let back_ns = if in_flight == 0 { 0 } else { RETRY_NS };
    BucketStatus { remaining: concurrency.limit().saturating_sub(in_flight), more_ns: back_ns, full_ns: back_ns }
}

pub(crate) fn in_flight(concurrency: &Concurrency, cell: Cell, now: Time) -> u32 {
    let in_flight = Pair::live(cell, concurrency.expires_ns(), now).map_or(0, sum);
    u32::try_from(in_flight).unwrap_or(u32::MAX)
}

fn sum(pair: Pair) -> u64 {
    u64::from(pair.previous) + u64::from(pair.current)
}

// Tokens that requests reserve until their cost is known, counted in the same way. If a request's end is never seen,
// its tokens expire after one to two times `HELD_NS`.

/// Minimum time for which tokens stay reserved, in nanoseconds.
const HELD_NS: u64 = 600 * SECOND_NS;

/// Reserves `n` tokens of a key that hashes to `hash`. Returns the new state, and a receipt that ends the reservation.
pub(crate) fn reserve(cell: Cell, hash: u64, n: u32, now: Time) -> (Cell, Receipt) {
    let pair = Pair::at(cell, HELD_NS, hash, now).plus(n);
    (pair.cell(), Receipt(pair.until))
}

/// Ends a reservation; does nothing if it has expired.
#[must_use]
pub(crate) fn end_reservation(cell: Cell, receipt: Receipt, n: u32, now: Time) -> Cell {
    if cell.is_spent(now) {
        return cell;
    }
    let left = Pair::stored(cell).minus(n, receipt.0, HELD_NS);
    if left.previous == 0 && left.current == 0 { Cell::NEW } else { left.cell() }
}

pub(crate) fn reserved(cell: Cell, now: Time) -> u64 {
    Pair::live(cell, HELD_NS, now).map_or(0, sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::charge;
    use proptest::prelude::*;
    use std::vec::Vec;
    use weir_rules::algorithm::Algorithm;

    proptest! {
        /// The exact model: every request in flight, with its start and its generation's number.
        // I3
        #[test]
        fn concurrency_agrees_with_a_list_of_requests(
            limit in 1u32..12, expires in 1u64..60, hash: u64,
            steps in prop::collection::vec((0u64..25, 1u32..5, 0..8, 0usize..50), 1..200),
        ) {
            let concurrency = Concurrency::new(limit, expires).unwrap();
            let offset = u64::try_from((u128::from(hash) * u128::from(expires)) >> 64).unwrap();
            let (mut cell, mut now) = (Cell::NEW, 1_000);
            let mut flight = Vec::<(u64, u32, Time)>::new();
            for (step, n, act, which) in steps {
                now += step;
                let (at, number) = (Time::from_nanos(now), |at: u64| (at + offset) / expires);
                cell = if cell.is_spent(at) && act > 2 { Cell::NEW } else { cell };
                let counts = |began: u64| number(began) + 2 > number(now);
                if act < 3 {
                    // Any request may be released, even an expired one.
                    if !flight.is_empty() {
                        let (_, n, generation) = flight.remove(which % flight.len());
                        cell = release(&concurrency, cell, generation, n, at);
                    }
                } else {
                    let busy: u32 = flight.iter().filter(|f| counts(f.0)).map(|f| f.1).sum();
                    match acquire(&concurrency, cell, hash, n, at) {
                        Admission::Taken(after) => {
                            prop_assert!(busy + n <= limit);
                            cell = after;
                            flight.push((now, n, after.until));
                        }
                        Admission::Short { .. } if act == 7 => {
                            charge(&Algorithm::Concurrency(concurrency), core::slice::from_mut(&mut cell), hash, n, at);
                            flight.push((now, n, cell.until));
                        }
                        Admission::Short { .. } => prop_assert!(busy + n > limit),
                    }
                }
                let busy: u32 = flight.iter().filter(|f| counts(f.0)).map(|f| f.1).sum();
                prop_assert_eq!(status(&concurrency, cell, at).remaining, limit.saturating_sub(busy));
                prop_assert_eq!(cell.is_spent(at), busy == 0);
                for &(began, ..) in &flight {
                    let age = now - began;
                    let keeps_time = if counts(began) { age < 2 * expires } else { age > expires };
                    prop_assert!(keeps_time, "{} after {}", counts(began), age);
                }
            }
        }
    }
}

#[cfg(test)]
mod reserved_tests {
    use super::*;

    const T0: Time = Time::from_nanos(1_000 * SECOND_NS);

    #[test]
    fn reserved_tokens_are_held_until_released_or_expired() {
        let (one, first) = reserve(Cell::NEW, 7, 30, T0);
        let later = T0 + HELD_NS;
        let (both, second) = reserve(one, 7, 12, later);
        assert_eq!([T0, later].map(|now| reserved(both, now)), [42, 42]);
        let left = end_reservation(both, first, 30, later);
        assert_eq!((reserved(left, later), reserved(end_reservation(left, second, 12, later), later)), (12, 0));
        assert_eq!(end_reservation(left, second, 12, later), Cell::NEW);
        assert_eq!(reserved(end_reservation(left, first, 30, later), later), 12, "once is enough");
        let forgotten = later + 2 * HELD_NS;
        assert_eq!(
            (reserved(left, forgotten), reserved(end_reservation(left, second, 12, forgotten), forgotten)),
            (0, 0)
        );
    }
}
