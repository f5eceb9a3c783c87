//! The counts of the current window and of the previous one, in one cell.
//!
//! `until` is the end of the window after the current one; from then on neither counts. The word's upper half
//! is the previous count, its lower half the current one.

use super::cell::{Cell, window_end};
use weir_protocol::time::Time;

/// The two counts, as of some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) until: Time,
    pub(super) previous: u32,
    pub(super) current: u32,
}

impl Pair {
    /// The counts in `cell` at `now`. If the cell is empty, the key's `hash` sets the start of its windows.
    pub(super) fn at(cell: Cell, length_ns: u64, hash: u64, now: Time) -> Self {
        Self::live(cell, length_ns, now).unwrap_or_else(|| Self {
            until: window_end(length_ns, hash, now) + length_ns,
            previous: 0,
            current: 0,
        })
    }

    /// The counts in `cell` at `now`; none if it is empty.
    pub(super) fn live(cell: Cell, length_ns: u64, now: Time) -> Option<Self> {
        if cell.is_spent(now) {
            return None;
        }
        let stored = Self::stored(cell);
        // A `now` before the cell's windows counts as the beginning of its current one.
        let is_current = cell.until.nanos_since(now) > length_ns;
        Some(if is_current {
            stored
        } else {
            Self { until: stored.until + length_ns, previous: stored.current, current: 0 }
        })
    }

    /// The counts in `cell` when it was written.
    pub(super) fn stored(cell: Cell) -> Self {
        let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        Self { until: cell.until, previous: half(cell.word >> 32), current: half(cell.word) }
    }

    /// End of the current window.
    pub(super) fn ends(&self, length_ns: u64) -> Time {
        Time::from_nanos(self.until.as_nanos().saturating_sub(length_ns))
    }

    /// Adds `n` to the current window.
    pub(super) fn plus(self, n: u32) -> Self {
        Self { current: self.current.saturating_add(n), ..self }
    }

    /// Subtracts `n` from the window whose pair ends at `until`, if that is one of these two.
    pub(super) fn minus(self, n: u32, until: Time, length_ns: u64) -> Self {
        if self.until == until {
            return Self { current: self.current.saturating_sub(n), ..self };
        }
        if self.until == until + length_ns {
            return Self { previous: self.previous.saturating_sub(n), ..self };
        }
        self
    }

    pub(super) fn cell(self) -> Cell {
        Cell { until: self.until, word: u64::from(self.previous) << 32 | u64::from(self.current) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_the_largest_counts_side_by_side() {
        for (previous, current) in [(u32::MAX, 0), (0, u32::MAX), (u32::MAX, u32::MAX), (1_000_000, 1)] {
            let pair = Pair { until: Time::from_nanos(u64::MAX), previous, current };
            assert_eq!(Pair::stored(pair.cell()), pair);
        }
        let full = Pair { until: Time::from_nanos(9), previous: 1, current: u32::MAX };
        assert_eq!(full.plus(5), full);
    }

    #[test]
    fn moves_on_with_time_and_never_back() {
        let pair = Pair { until: Time::from_nanos(300), previous: 7, current: 3 };
        let at = |now| Pair::live(pair.cell(), 100, Time::from_nanos(now));
        assert_eq!([at(0), at(100), at(199)], [Some(pair); 3]);
        let rolled = Pair { until: Time::from_nanos(400), previous: 3, current: 0 };
        assert_eq!([at(200), at(299)], [Some(rolled); 2]);
        assert_eq!(at(300), None);
    }

    /// Windows have no number that could wrap: years of the shortest windows, one after the other.
    #[test]
    fn no_number_of_a_window_wraps() {
        for start in [0, 1 << 24, (1 << 24) - 1, 1 << 48, u64::MAX / 2] {
            let now = Time::from_nanos(start);
            let cell = Pair::at(Cell::NEW, 10, 0, now).plus(5).cell();
            let after = |ns| Pair::at(cell, 10, 0, now + ns);
            assert_eq!((after(10).previous, after(10).current), (5, 0), "{start}");
            // Even a multiple of 2^24 windows later it is a different window.
            assert_eq!((after(10 << 24).previous, after(10 << 24).current), (0, 0), "{start}");
        }
    }
}
