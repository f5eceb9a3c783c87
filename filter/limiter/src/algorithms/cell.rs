//! The state of one key under any algorithm, and the result of asking it for room.

use weir_protocol::time::Time;

/// Most cells of one key.
pub const CELLS_MAX: usize = 8;
/// Wait for a request that never fits, because it costs more than the limit.
pub const NEVER_NS: u64 = u64::MAX;

/// The state of one key: the 16 bytes of a slot's entry besides its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Time from which the cell is empty: it may be dropped, and reads as new.
    pub until: Time,
    /// State of the algorithm; each has its own encoding.
    pub word: u64,
}

impl Cell {
    /// The cell of a new key.
    pub const NEW: Self = Self { until: Time::ZERO, word: 0 };

    /// True if it is empty at `now`.
    pub fn is_spent(self, now: Time) -> bool {
        self.until <= now
    }
}

/// Receipt for tokens or places that were taken, to give them back: the time at which they come back without
/// that, or at which their window ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt(pub(super) Time);

impl Receipt {
    /// Receipt for something that is in no cell; giving it back changes nothing.
    pub const NONE: Self = Self(Time::ZERO);
}

/// The result of asking for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission<T> {
    /// There was room; carries the new state.
    Taken(T),
    /// There is no room.
    Short {
        /// Nanoseconds until the same request fits, if no other takes the room; [`NEVER_NS`] if it costs more
        /// than the limit.
        wait_ns: u64,
    },
}

impl<T> Admission<T> {
    /// Applies `f` to the new state.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Admission<U> {
        match self {
            Self::Taken(taken) => Admission::Taken(f(taken)),
            Self::Short { wait_ns } => Admission::Short { wait_ns },
        }
    }
}

/// The new state, for tests in which there is room.
#[cfg(test)]
pub(super) fn taken(answer: Admission<Cell>) -> Cell {
    let Admission::Taken(cell) = answer else { panic!("{answer:?}") };
    cell
}

/// End of the window that `now` is in, for a key that hashes to `hash`.
///
/// Windows of different keys begin at different times, evenly spread over a window's length, so that clients'
/// windows do not all start at once.
pub(super) fn window_end(length_ns: u64, hash: u64, now: Time) -> Time {
    let scaled = (u128::from(hash) * u128::from(length_ns)) >> u64::BITS;
    // Never fails: it is below the length.
    let offset_ns = u64::try_from(scaled).unwrap_or(0);
    // Bounds forbid a length of zero.
    let into_ns = (now + offset_ns).as_nanos() % length_ns.max(1);
    now + (length_ns - into_ns)
}

// The counts of the current window and of the previous one, in one cell.
//
// `until` is the end of the window after the current one; from then on neither counts. The word's upper half
// is the previous count, its lower half the current one.

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
    use weir_protocol::time::SECOND_NS;

    #[test]
    fn windows_of_keys_are_spread_evenly_over_the_length() {
        let (length, now) = (60 * SECOND_NS, Time::from_nanos(12_345 * SECOND_NS));
        let mut tenths = [0; 10];
        for n in 0..1_000u64 {
            let end = window_end(length, n.wrapping_mul(crate::FIBONACCI), now);
            assert!(now < end && end <= now + length);
            tenths[usize::try_from((end.nanos_since(now) - 1) * 10 / length).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|&count| (80..=120).contains(&count)), "{tenths:?}");
    }
}

#[cfg(test)]
mod pair_tests {
    use super::*;

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
