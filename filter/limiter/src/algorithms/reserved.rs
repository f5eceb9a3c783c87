//! Count of tokens that requests reserve until their cost is known.
//!
//! They are counted in generations like requests in flight (see [`crate::algorithms::concurrency`]). So the tokens of a
//! request whose end is never seen expire after one to two times [`HELD_NS`].

use crate::algorithms::Receipt;
use crate::algorithms::cell::{Cell, Pair};
use weir_protocol::time::{SECOND_NS, Time};

/// Shortest time for which tokens stay reserved, in nanoseconds.
const HELD_NS: u64 = 600 * SECOND_NS;

/// Reserves `n` tokens of a key that hashes to `hash`. Returns the new state, and the receipt that ends the
/// reservation.
pub fn begin(cell: Cell, hash: u64, n: u32, now: Time) -> (Cell, Receipt) {
    let pair = Pair::at(cell, HELD_NS, hash, now).plus(n);
    (pair.cell(), Receipt::from_bits(pair.until.as_nanos()))
}

/// Ends a reservation; does nothing if it has expired.
#[must_use]
pub fn end(cell: Cell, receipt: Receipt, n: u32, now: Time) -> Cell {
    if cell.is_spent(now) {
        return cell;
    }
    let left = Pair::stored(cell).minus(n, Time::from_nanos(receipt.bits()), HELD_NS);
    if left.previous == 0 && left.current == 0 { Cell::NEW } else { left.cell() }
}

/// Tokens reserved at `now`.
pub fn held(cell: Cell, now: Time) -> u64 {
    Pair::live(cell, HELD_NS, now).map_or(0, |pair| u64::from(pair.previous) + u64::from(pair.current))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Time = Time::from_nanos(1_000 * SECOND_NS);

    #[test]
    fn reserved_tokens_are_held_until_released_or_expired() {
        let (one, first) = begin(Cell::NEW, 7, 30, T0);
        let later = T0 + HELD_NS;
        let (both, second) = begin(one, 7, 12, later);
        assert_eq!([T0, later].map(|now| held(both, now)), [42, 42]);
        let left = end(both, first, 30, later);
        assert_eq!((held(left, later), held(end(left, second, 12, later), later)), (12, 0));
        assert_eq!(end(left, second, 12, later), Cell::NEW);
        assert_eq!(held(end(left, first, 30, later), later), 12, "once is enough");
        let forgotten = later + 2 * HELD_NS;
        assert_eq!((held(left, forgotten), held(end(left, second, 12, forgotten), forgotten)), (0, 0));
    }
}
