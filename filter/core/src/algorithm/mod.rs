//! The algorithms beside the token bucket: what a rule may count by, and the state of one key.
//!
//! All are pure: state and time in, state out. A key's state is a [`Cell`] (of a [`SlidingLog`], several;
//! of a [`LeakyBucket`], a [`Bucket`](crate::bucket::Bucket)). [`Algorithm`] does the same for all, over cells.
//!
//! Windows are named by the time at which they end, which the cell holds in full; no number of a window
//! ever wraps. A cell that holds something goes on with its own windows, and only a new one asks where the
//! windows of its key begin: so a cell may be shared by keys (an overflow cell), and no request divides.
//!
//! A `now` earlier than one seen before reads as less room, never as more (invariant I8).

mod concurrency;
mod debt;
mod dispatch;
mod fixed_window;
mod leaky_bucket;
mod pair;
mod sliding_log;
mod sliding_window;

#[cfg(test)]
mod boundary_burst;

pub use concurrency::{Acquired, Concurrency, Generation};
pub use dispatch::{Receipt, Taken};
pub use fixed_window::FixedWindow;
pub use leaky_bucket::{LeakyBucket, Turn};
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;

use core::fmt;

use crate::quota::{FILL_NS_MAX, Quota};
use crate::time::Time;

/// The highest limit a sliding log can keep.
pub const LOG_MAX: u32 = 16;
/// The most cells a key's state takes.
pub const CELLS_MAX: usize = 8;
/// The longest window, and the longest expiry of a request in flight: 400 days, in nanoseconds.
pub const LENGTH_NS_MAX: u64 = FILL_NS_MAX;
/// The wait for what never fits: it costs more than the limit.
pub const NEVER_NS: u64 = u64::MAX;

const _: () = assert!(LOG_MAX as usize == CELLS_MAX * PLACES_PER_CELL);

/// Places of a sliding log that one cell holds.
const PLACES_PER_CELL: usize = 2;

/// The state of one key: 16 bytes, what a slot's entry holds beside its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// From here on it holds nothing: it may be dropped, and reads as new.
    pub until: Time,
    /// What it holds; each algorithm has its own use for it.
    pub word: u64,
}

impl Cell {
    /// A key nobody has seen.
    pub const NEW: Self = Self { until: Time::ZERO, word: 0 };

    /// Whether it holds nothing at `now`.
    pub fn is_spent(self, now: Time) -> bool {
        self.until <= now
    }
}

/// What asking for room comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// There is room; this is the state with it taken.
    Taken(T),
    /// There is not.
    Short {
        /// Nanoseconds until the same request fits, if nobody else takes any; [`NEVER_NS`] if it costs more
        /// than the limit.
        wait_ns: u64,
    },
}

/// What a rule counts by, its parameters checked and ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A bucket that refills steadily ([`crate::bucket`]).
    TokenBucket(Quota),
    /// A count that starts again with every window.
    FixedWindow(FixedWindow),
    /// The same, with the window before weighted in.
    SlidingWindow(SlidingWindow),
    /// Every request of the last window.
    SlidingLog(SlidingLog),
    /// A queue that requests leave at a steady rate.
    LeakyBucket(LeakyBucket),
    /// Requests in flight.
    Concurrency(Concurrency),
}

impl Algorithm {
    /// Whether it holds requests until their turns come.
    pub fn holds_requests(&self) -> bool {
        matches!(self, Self::LeakyBucket(leaky) if leaky.places() > 1)
    }

    /// The most that a key can take at once when nothing is taken.
    pub const fn limit(&self) -> u32 {
        match self {
            Self::TokenBucket(quota) => quota.burst(),
            Self::FixedWindow(window) => window.limit(),
            Self::SlidingWindow(window) => window.limit(),
            Self::SlidingLog(log) => log.limit(),
            Self::LeakyBucket(bucket) => bucket.places(),
            Self::Concurrency(concurrency) => concurrency.limit(),
        }
    }

    /// The same limit in one cell, for keys that share it: of a log, the window.
    #[must_use]
    pub fn in_one_cell(self) -> Self {
        match self {
            Self::SlidingLog(log) => {
                FixedWindow::new(log.limit(), log.length_ns()).map_or(self, Self::FixedWindow)
            }
            other => other,
        }
    }

    /// A number of its own for each algorithm, which no later version changes.
    pub const fn number(&self) -> u8 {
        match self {
            Self::TokenBucket(_) => 0,
            Self::FixedWindow(_) => 1,
            Self::SlidingWindow(_) => 2,
            Self::SlidingLog(_) => 3,
            Self::LeakyBucket(_) => 4,
            Self::Concurrency(_) => 5,
        }
    }

    /// Cells of one key, 1 to [`CELLS_MAX`].
    pub const fn cells(&self) -> usize {
        match self {
            Self::SlidingLog(log) => log.cells(),
            _ => 1,
        }
    }
}

/// A parameter out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundsError {
    /// The limit is not from 1 to this.
    Limit {
        /// The highest limit the algorithm can keep.
        most: u32,
    },
    /// The length or expiry is not from 1 to [`LENGTH_NS_MAX`] nanoseconds.
    Length,
}

impl fmt::Display for BoundsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { most } => write!(f, "expected a limit from 1 to {most}"),
            Self::Length => f.write_str("expected a time of more than zero and at most 400 days"),
        }
    }
}

/// Checks a limit and a length.
const fn checked(limit: u32, most: u32, length_ns: u64) -> Result<(), BoundsError> {
    if limit == 0 || limit > most {
        return Err(BoundsError::Limit { most });
    }
    if length_ns == 0 || length_ns > LENGTH_NS_MAX {
        return Err(BoundsError::Length);
    }
    Ok(())
}

/// The end of the window that `now` is in, of a key that hashes to `hash`.
///
/// Windows begin at different times for different keys, evenly spread over a length, so that not every
/// client's starts again at once.
fn window_end(length_ns: u64, hash: u64, now: Time) -> Time {
    let scaled = (u128::from(hash) * u128::from(length_ns)) >> u64::BITS;
    // Below the length, which fits.
    let offset_ns = u64::try_from(scaled).unwrap_or(0);
    // Bounds forbid a length of zero.
    let into_ns = (now + offset_ns).as_nanos() % length_ns.max(1);
    now + (length_ns - into_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::TOKENS_MAX;
    use crate::time::SECOND_NS;

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

    #[test]
    fn bounds_are_kept() {
        let limit = Err(BoundsError::Limit { most: TOKENS_MAX });
        assert_eq!(FixedWindow::new(0, 1), limit);
        assert_eq!(FixedWindow::new(TOKENS_MAX + 1, 1), limit);
        assert_eq!(FixedWindow::new(1, 0), Err(BoundsError::Length));
        assert_eq!(SlidingWindow::new(1, LENGTH_NS_MAX + 1), Err(BoundsError::Length));
        assert!(SlidingWindow::new(TOKENS_MAX, LENGTH_NS_MAX).is_ok());
        assert_eq!(SlidingLog::new(LOG_MAX + 1, 1), Err(BoundsError::Limit { most: LOG_MAX }));
        assert_eq!(Concurrency::new(1, 0), Err(BoundsError::Length));
        assert!(LeakyBucket::new(SECOND_NS, 0).is_ok());
        assert!(LeakyBucket::new(SECOND_NS, TOKENS_MAX - 1).is_ok());
        assert!(LeakyBucket::new(SECOND_NS, TOKENS_MAX).is_err());
        assert!(LeakyBucket::new(SECOND_NS, u32::MAX).is_err());
    }

    #[test]
    fn a_log_takes_a_cell_for_two_places() {
        for (limit, cells) in [(1, 1), (2, 1), (3, 2), (15, 8), (16, 8)] {
            assert_eq!(Algorithm::SlidingLog(SlidingLog::new(limit, 1).unwrap()).cells(), cells);
        }
        assert_eq!(Algorithm::FixedWindow(FixedWindow::new(9, 1).unwrap()).cells(), 1);
    }
}
