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

    #[test]
    fn windows_of_one_key_follow_each_other() {
        for hash in [0, 1 << 63, u64::MAX] {
            let mut end = window_end(100, hash, Time::ZERO);
            for _ in 0..1_000 {
                assert_eq!(window_end(100, hash, end), end + 100);
                assert_eq!(window_end(100, hash, end + 99), end + 100);
                end += 100;
            }
        }
    }
}
