//! Local counters of a key: the token bucket, a POP's fair share of it, and the other algorithms.
//!
//! All are pure: a rule's parameters, state and time in, state out. A key's state is a [`Cell`] (several for a [sliding
//! log](sliding_log), a [`Bucket`] for a [leaky bucket](leaky_bucket)). [`take`], [`charge`], [`give_back`] and
//! [`status`] serve all algorithms, over cells. A bucket is the `until` of its cell, whose word is not touched.
//!
//! A window is identified by its end, which the cell stores in full, so no window number ever wraps. A cell that is not
//! empty continues its own windows; only a new cell computes the start of its key's windows. So keys can share a cell
//! (an overflow cell), and few requests pay for that computation.
//!
//! A `now` earlier than a previous one shows less room, never more (invariant I8).

use weir_protocol::time::Time;
use weir_rules::algorithm::Algorithm;

pub(crate) mod concurrency;
mod fair_share;
pub(crate) mod fixed_window;
pub(crate) mod leaky_bucket;
mod sliding_log;
mod sliding_window;
mod token_bucket;

pub use fair_share::FairShare;
pub use token_bucket::{Bucket, BucketStatus};
pub(crate) use token_bucket::{Portion, deepest_ns, missing_ns};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Receipt to give the tokens back with; under [`Algorithm::Concurrency`], to release the request with.
    pub receipt: Receipt,
    /// Nanoseconds to hold the request; zero except for turns in a queue of the POP or the fleet.
    pub hold_ns: u64,
}

/// Takes `n` at `now`, if there is room, for a key that hashes to `hash`. `cells` has the length [`Algorithm::cells`].
/// Without room, the cells are unchanged.
pub fn take(algorithm: &Algorithm, cells: &mut [Cell], hash: u64, n: u32, now: Time) -> Admission<Admitted> {
    let Some(cell) = cells.first_mut() else { return Admission::Short { wait_ns: NEVER_NS } };
    let (bucket, at_once) = (Bucket::full_at(cell.until), |after: Cell| (after, 0));
    let taken = match algorithm {
        Algorithm::TokenBucket(quota) => match bucket.take(quota, n, now) {
            Admission::Short { .. } if n > quota.burst() => Admission::Short { wait_ns: NEVER_NS },
            taken => taken.map(|after| (Cell { until: after.refilled(), ..*cell }, 0)),
        },
        Algorithm::FixedWindow(window) => fixed_window::take(window, *cell, hash, n, now).map(at_once),
        Algorithm::SlidingWindow(window) => sliding_window::take(window, *cell, hash, n, now).map(at_once),
        Algorithm::LeakyBucket(quota) => leaky_bucket::take(quota, bucket, n, now)
            .map(|turn| (Cell { until: turn.after.refilled(), ..*cell }, turn.hold_ns)),
        Algorithm::Concurrency(concurrency) => concurrency::acquire(concurrency, *cell, hash, n, now).map(at_once),
        Algorithm::SlidingLog(window) => {
            let taken = sliding_log::take(window, cells, n, now);
            return taken.map(|back_at| Admitted { receipt: Receipt(back_at), hold_ns: 0 });
        }
    };
    taken.map(|(after, hold_ns)| {
        *cell = after;
        Admitted { receipt: Receipt(after.until), hold_ns }
    })
}

/// Takes `n` at `now` even without room, for a cost known only afterwards. The debt of a bucket, and of a queue, is
/// limited to the maximum.
pub fn charge(algorithm: &Algorithm, cells: &mut [Cell], hash: u64, n: u32, now: Time) -> Receipt {
    let Some(cell) = cells.first_mut() else { return Receipt::NONE };
    let bucket = Bucket::full_at(cell.until);
    *cell = match algorithm {
        Algorithm::TokenBucket(quota) | Algorithm::LeakyBucket(quota) => {
            Cell { until: bucket.charged(quota, n, now).refilled(), ..*cell }
        }
        Algorithm::FixedWindow(window) => fixed_window::charge(window, *cell, hash, n, now),
        // An excess is dropped with its window.
        Algorithm::SlidingWindow(window) => Pair::at(*cell, window.length_ns(), hash, now).plus(n).cell(),
        Algorithm::Concurrency(flight) => Pair::at(*cell, flight.expires_ns(), hash, now).plus(n).cell(),
        Algorithm::SlidingLog(window) => return Receipt(sliding_log::charge(window, cells, n, now)),
    };
    Receipt(cell.until)
}

/// Gives back at `now` the `n` of a take or charge. Also releases a request in flight.
pub fn give_back(algorithm: &Algorithm, cells: &mut [Cell], receipt: Receipt, n: u32, now: Time) {
    let Some(cell) = cells.first_mut() else { return };
    let (bucket, taken) = (Bucket::full_at(cell.until), Cell { until: receipt.0, word: 0 });
    *cell = match algorithm {
        Algorithm::TokenBucket(quota) => Cell { until: bucket.give_back(quota, n).refilled(), ..*cell },
        Algorithm::FixedWindow(_) => fixed_window::give_back(*cell, taken, n),
        Algorithm::SlidingWindow(window) => sliding_window::give_back(window, *cell, taken, n),
        Algorithm::LeakyBucket(quota) => {
            let after = leaky_bucket::give_back(quota, bucket, Bucket::full_at(receipt.0), n);
            Cell { until: after.refilled(), ..*cell }
        }
        Algorithm::Concurrency(concurrency) => concurrency::release(concurrency, *cell, receipt.0, n, now),
        Algorithm::SlidingLog(window) => return sliding_log::give_back(window, cells, receipt.0, n),
    };
}

/// Gives back `n` of what counts at `now`, from any take or charge. Does nothing for requests in flight and turns.
pub fn refund(algorithm: &Algorithm, cells: &mut [Cell], n: u32, now: Time) {
    if let Algorithm::SlidingLog(window) = algorithm {
        return sliding_log::refund(window, cells, n);
    }
    let Some(cell) = cells.first_mut() else { return };
    let latest = Receipt(cell.until);
    if !matches!(algorithm, Algorithm::LeakyBucket(_) | Algorithm::Concurrency(_)) && !cell.is_spent(now) {
        give_back(algorithm, cells, latest, n, now);
    }
}

pub fn status(algorithm: &Algorithm, cells: &[Cell], now: Time) -> BucketStatus {
    let cell = cells.first().copied().unwrap_or(Cell::NEW);
    let bucket = Bucket::full_at(cell.until);
    match algorithm {
        Algorithm::TokenBucket(quota) | Algorithm::LeakyBucket(quota) => BucketStatus::allowed(bucket, quota, now),
        Algorithm::FixedWindow(window) => fixed_window::status(window, cell, now),
        Algorithm::SlidingWindow(window) => sliding_window::status(window, cell, now),
        Algorithm::SlidingLog(window) => sliding_log::status(window, cells, now),
        Algorithm::Concurrency(concurrency) => concurrency::status(concurrency, cell, now),
    }
}

/// Maximum number of cells of one key.
pub const CELLS_MAX: usize = 8;
/// Wait for a request that never fits, because it costs more than the limit.
pub const NEVER_NS: u64 = u64::MAX;

/// The state of one key: the 16 bytes of its entry in a slot besides the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Time from which the cell is empty: it may be dropped, and reads as new.
    pub until: Time,
    /// State of the algorithm; each has its own encoding.
    pub word: u64,
}

impl Cell {
    pub const NEW: Self = Self { until: Time::ZERO, word: 0 };

    pub fn is_spent(self, now: Time) -> bool {
        self.until <= now
    }
}

/// Receipt for tokens or places taken, to give them back: the time at which they return by themselves, or their
/// window ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt(Time);

impl Receipt {
    /// Receipt for something in no cell; giving it back changes nothing.
    pub const NONE: Self = Self(Time::ZERO);
}

/// Result of taking tokens, or of putting a request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission<T> {
    /// There was room; contains the new state.
    Taken(T),
    Short {
        /// Nanoseconds until the same request fits, if no other takes the room, or [`NEVER_NS`].
        wait_ns: u64,
    },
}

impl<T> Admission<T> {
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Admission<U> {
        match self {
            Self::Taken(taken) => Admission::Taken(f(taken)),
            Self::Short { wait_ns } => Admission::Short { wait_ns },
        }
    }
}

/// The new state, for tests with room.
#[cfg(test)]
fn taken(answer: Admission<Cell>) -> Cell {
    let Admission::Taken(cell) = answer else { panic!("{answer:?}") };
    cell
}

/// End of the window that contains `now`, for a key that hashes to `hash`. Windows of different keys begin at different
/// times, evenly spread over a window's length, so that clients' windows do not all start at once.
fn window_end(length_ns: u64, hash: u64, now: Time) -> Time {
    let scaled = (u128::from(hash) * u128::from(length_ns)) >> u64::BITS;
    // Never fails: the result is below the length.
    let offset_ns = u64::try_from(scaled).unwrap_or(0);
    // Bounds forbid a length of zero.
    let into_ns = (now + offset_ns).as_nanos() % length_ns.max(1);
    now + (length_ns - into_ns)
}

/// The counts of the current window and of the previous one, in one cell. `until` is the end of the window after the
/// current one; from then on neither counts. The word's upper half is the previous count, its lower half the current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    until: Time,
    previous: u32,
    current: u32,
}

impl Pair {
    /// The counts in `cell` at `now`. If the cell is empty, the key's `hash` sets the start of its windows.
    fn at(cell: Cell, length_ns: u64, hash: u64, now: Time) -> Self {
        Self::live(cell, length_ns, now).unwrap_or_else(|| Self {
            until: window_end(length_ns, hash, now) + length_ns,
            previous: 0,
            current: 0,
        })
    }

    /// The counts in `cell` at `now`, or `None` if it is empty.
    fn live(cell: Cell, length_ns: u64, now: Time) -> Option<Self> {
        if cell.is_spent(now) {
            return None;
        }
        let stored = Self::stored(cell);
        // A `now` before the cell's windows counts as the beginning of the current one.
        let is_current = cell.until.nanos_since(now) > length_ns;
        Some(if is_current {
            stored
        } else {
            Self { until: stored.until + length_ns, previous: stored.current, current: 0 }
        })
    }

    /// The counts in `cell` as stored.
    fn stored(cell: Cell) -> Self {
        let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        Self { until: cell.until, previous: half(cell.word >> 32), current: half(cell.word) }
    }

    /// End of the current window.
    fn ends(&self, length_ns: u64) -> Time {
        Time::from_nanos(self.until.as_nanos().saturating_sub(length_ns))
    }

    fn plus(self, n: u32) -> Self {
        Self { current: self.current.saturating_add(n), ..self }
    }

    /// Subtracts `n` from the window whose pair ends at `until`, if it is one of these two.
    fn minus(self, n: u32, until: Time, length_ns: u64) -> Self {
        if self.until == until {
            return Self { current: self.current.saturating_sub(n), ..self };
        }
        if self.until == until + length_ns {
            return Self { previous: self.previous.saturating_sub(n), ..self };
        }
        self
    }

    fn cell(self) -> Cell {
        Cell { until: self.until, word: u64::from(self.previous) << 32 | u64::from(self.current) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_protocol::quota::Quota;
    use weir_protocol::time::SECOND_NS;
    use weir_rules::algorithm::{Concurrency, WindowLimit};

    const T0: Time = Time::from_nanos(1_000 * SECOND_NS);
    const LIMIT: u32 = 10;

    /// Each algorithm with a limit of ten, which returns within a second, one by one or all at once.
    fn all() -> [Algorithm; 6] {
        [
            Algorithm::TokenBucket(Quota::new("10/s".parse().unwrap(), LIMIT).unwrap()),
            Algorithm::FixedWindow(WindowLimit::new(LIMIT, SECOND_NS).unwrap()),
            Algorithm::SlidingWindow(WindowLimit::new(LIMIT, SECOND_NS).unwrap()),
            Algorithm::SlidingLog(WindowLimit::new(LIMIT, SECOND_NS).unwrap()),
            Algorithm::LeakyBucket(Quota::from_token_ns(SECOND_NS / 10, LIMIT).unwrap()),
            Algorithm::Concurrency(Concurrency::new(LIMIT, SECOND_NS).unwrap()),
        ]
    }

    #[test]
    fn a_charge_beyond_the_limit_expires() {
        for algorithm in all() {
            let mut cells = std::vec![Cell::NEW; algorithm.cells()];
            for _ in 0..3 {
                charge(&algorithm, &mut cells, 7, u32::MAX, T0);
            }
            assert_eq!(status(&algorithm, &cells, T0).remaining, 0, "{algorithm:?}");
            let later = T0 + 86_400 * SECOND_NS + SECOND_NS;
            assert!(cells.iter().all(|cell| cell.is_spent(later)), "{algorithm:?}");
            assert_eq!(status(&algorithm, &cells, later).remaining, LIMIT, "{algorithm:?}");
        }
    }

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

    /// Windows have no number that could wrap: years of the shortest windows, one after another.
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

    proptest! {
        /// I3 and I8: however the clock steps, an earlier time has no more room than a later one, and at most the limit
        /// for each second, and once more, is admitted.
        #[test]
        fn a_clock_that_steps_back_gives_nothing(
            hash: u64,
            steps in prop::collection::vec((-800i64..1_000, 1u32..8, any::<bool>()), 1..200),
        ) {
            for algorithm in all() {
                let mut cells = std::vec![Cell::NEW; algorithm.cells()];
                let (mut now, mut earliest, mut latest, mut admitted) = (T0, T0, T0, 0);
                for &(step_ms, n, comes_back) in &steps {
                    let before = status(&algorithm, &cells, now).remaining;
                    now = Time::from_nanos(now.as_nanos().saturating_add_signed(step_ms * 1_000_000));
                    prop_assert!(step_ms > 0 || status(&algorithm, &cells, now).remaining <= before, "{algorithm:?}");
                    (earliest, latest) = (earliest.min(now), latest.max(now));
                    match take(&algorithm, &mut cells, hash, n, now) {
                        Admission::Taken(taken) if comes_back => {
                            give_back(&algorithm, &mut cells, taken.receipt, n, now);
                        }
                        Admission::Taken(_) => admitted += u64::from(n),
                        Admission::Short { .. } => {}
                    }
                    let seconds = latest.nanos_since(earliest).div_ceil(SECOND_NS) + 1;
                    prop_assert!(admitted <= u64::from(LIMIT) * seconds, "{admitted} in {seconds} s: {algorithm:?}");
                }
            }
        }
    }
}
