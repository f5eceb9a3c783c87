//! Every algorithm the same way: over a key's cells, with a receipt for what was taken.
//!
//! A bucket is the `until` of its cell; the word beside it is not touched.

use super::{Algorithm, Answer, Cell, Generation, NEVER_NS, debt};
use crate::bucket::{Bucket, Take};
use crate::decision::Standing;
use crate::time::Time;

/// Names what was taken, to give it back: when that comes back by itself, or an end of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt(Time);

impl Receipt {
    /// The receipt with this number.
    pub const fn from_bits(bits: u64) -> Self {
        Self(Time::from_nanos(bits))
    }

    /// Its number.
    pub const fn bits(self) -> u64 {
        self.0.as_nanos()
    }
}

/// What a request that fits gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// To give it back with; of [`Algorithm::Concurrency`], to release it with.
    pub receipt: Receipt,
    /// Nanoseconds that the request has to be held; more than zero of [`Algorithm::LeakyBucket`] only.
    pub hold_ns: u64,
}

impl Algorithm {
    /// Asks for `n` at `now`, for a key that hashes to `hash`. `cells` are the key's [`Algorithm::cells`];
    /// short, they are as they were.
    pub fn take(&self, cells: &mut [Cell], hash: u64, n: u32, now: Time) -> Answer<Taken> {
        if let Self::SlidingLog(log) = self {
            return log.take(cells, n, now).map(|back_at| Taken { receipt: Receipt(back_at), hold_ns: 0 });
        }
        let Some(cell) = cells.first_mut() else { return Answer::Short { wait_ns: NEVER_NS } };
        let taken = self.take_from(*cell, hash, n, now);
        taken.map(|(after, hold_ns)| {
            *cell = after;
            Taken { receipt: Receipt(after.until), hold_ns }
        })
    }

    /// Takes `n` at `now`, whether they are there or not: what a request turns out to have cost.
    pub fn charge(&self, cells: &mut [Cell], hash: u64, n: u32, now: Time) -> Receipt {
        if let Self::SlidingLog(log) = self {
            return Receipt(log.charge(cells, n, now));
        }
        let Some(cell) = cells.first_mut() else { return Receipt(Time::ZERO) };
        let bucket = Bucket::full_at(cell.until);
        *cell = match self {
            Self::TokenBucket(quota) => Cell { until: bucket.charged(quota, n, now).refilled(), ..*cell },
            Self::FixedWindow(window) => window.charge(*cell, hash, n, now),
            Self::SlidingWindow(window) => window.charge(*cell, hash, n, now),
            Self::LeakyBucket(leaky) => Cell { until: leaky.charge(bucket, n, now).refilled(), ..*cell },
            Self::Concurrency(concurrency) => concurrency.charge(*cell, hash, n, now).after,
            Self::SlidingLog(_) => *cell,
        };
        Receipt(cell.until)
    }

    /// Gives back at `now` the `n` that a take or charge took. A request in flight is released so.
    pub fn give_back(&self, cells: &mut [Cell], receipt: Receipt, n: u32, now: Time) {
        if let Self::SlidingLog(log) = self {
            return log.give_back(cells, receipt.0, n);
        }
        let Some(cell) = cells.first_mut() else { return };
        let (bucket, taken) = (Bucket::full_at(cell.until), Cell { until: receipt.0, word: 0 });
        *cell = match self {
            Self::TokenBucket(quota) => Cell { until: bucket.give_back(quota, n).refilled(), ..*cell },
            Self::FixedWindow(window) => window.give_back(*cell, taken, n),
            Self::SlidingWindow(window) => window.give_back(*cell, taken, n),
            Self::LeakyBucket(leaky) => {
                let after = leaky.give_back(bucket, Bucket::full_at(receipt.0), n);
                Cell { until: after.refilled(), ..*cell }
            }
            Self::Concurrency(concurrency) => concurrency.release(*cell, Generation(receipt.0), n, now),
            Self::SlidingLog(_) => *cell,
        };
    }

    /// What is left at `now`.
    pub fn standing(&self, cells: &[Cell], now: Time) -> Standing {
        let cell = cells.first().copied().unwrap_or(Cell::NEW);
        let bucket = Bucket::full_at(cell.until);
        match self {
            Self::TokenBucket(quota) => debt::standing(bucket, quota, now),
            Self::FixedWindow(window) => window.standing(cell, now),
            Self::SlidingWindow(window) => window.standing(cell, now),
            Self::SlidingLog(log) => log.standing(cells, now),
            Self::LeakyBucket(leaky) => leaky.standing(bucket, now),
            Self::Concurrency(concurrency) => concurrency.standing(cell, now),
        }
    }

    /// The cell once `n` are taken from it, and how long the request is held.
    fn take_from(&self, cell: Cell, hash: u64, n: u32, now: Time) -> Answer<(Cell, u64)> {
        let bucket = Bucket::full_at(cell.until);
        match self {
            Self::TokenBucket(quota) => match bucket.take(quota, n, now) {
                Take::Taken(after) => Answer::Taken((Cell { until: after.refilled(), ..cell }, 0)),
                Take::Short { .. } if n > quota.burst() => Answer::Short { wait_ns: NEVER_NS },
                Take::Short { wait_ns } => Answer::Short { wait_ns },
            },
            Self::FixedWindow(window) => window.take(cell, hash, n, now).map(|after| (after, 0)),
            Self::SlidingWindow(window) => window.take(cell, hash, n, now).map(|after| (after, 0)),
            Self::LeakyBucket(leaky) => leaky
                .take(bucket, n, now)
                .map(|turn| (Cell { until: turn.after.refilled(), ..cell }, turn.hold_ns)),
            Self::Concurrency(concurrency) => {
                concurrency.acquire(cell, hash, n, now).map(|acquired| (acquired.after, 0))
            }
            Self::SlidingLog(_) => Answer::Short { wait_ns: NEVER_NS },
        }
    }
}

impl<T> Answer<T> {
    /// The same answer, with `f` of what was taken.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Taken(taken) => Answer::Taken(f(taken)),
            Self::Short { wait_ns } => Answer::Short { wait_ns },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Concurrency, FixedWindow, LeakyBucket, SlidingLog, SlidingWindow};
    use super::*;
    use crate::quota::Quota;
    use crate::time::SECOND_NS;

    const T0: Time = Time::from_nanos(1_000 * SECOND_NS);
    const LIMIT: u32 = 10;

    /// Ten at once, and a second until one or all of them are back.
    fn all() -> [Algorithm; 6] {
        [
            Algorithm::TokenBucket(Quota::new("10/s".parse().unwrap(), LIMIT).unwrap()),
            Algorithm::FixedWindow(FixedWindow::new(LIMIT, SECOND_NS).unwrap()),
            Algorithm::SlidingWindow(SlidingWindow::new(LIMIT, SECOND_NS).unwrap()),
            Algorithm::SlidingLog(SlidingLog::new(LIMIT, SECOND_NS).unwrap()),
            Algorithm::LeakyBucket(LeakyBucket::new(SECOND_NS / 10, LIMIT - 1).unwrap()),
            Algorithm::Concurrency(Concurrency::new(LIMIT, SECOND_NS).unwrap()),
        ]
    }

    #[test]
    fn each_gives_its_limit_and_takes_back_what_it_gave() {
        for algorithm in all() {
            let mut cells = std::vec![Cell::NEW; algorithm.cells()];
            assert_eq!(algorithm.limit(), LIMIT);
            let take = |cells: &mut [Cell], n| match algorithm.take(cells, 7, n, T0) {
                Answer::Taken(taken) => Some(taken.receipt),
                Answer::Short { .. } => None,
            };
            take(&mut cells, 6).unwrap();
            let receipt = take(&mut cells, 4).unwrap();
            assert_eq!(algorithm.standing(&cells, T0).remaining, 0, "{algorithm:?}");
            assert_eq!(take(&mut cells, 1), None, "{algorithm:?}");
            algorithm.give_back(&mut cells, receipt, 4, T0);
            assert_eq!(algorithm.standing(&cells, T0).remaining, 4, "{algorithm:?}");
            let never = algorithm.take(&mut cells, 7, LIMIT + 1, T0);
            assert_eq!(never, Answer::Short { wait_ns: NEVER_NS }, "{algorithm:?}");
        }
    }

    #[test]
    fn each_charges_beyond_its_limit_and_forgets_within_a_day_or_two_windows() {
        for algorithm in all() {
            let mut cells = std::vec![Cell::NEW; algorithm.cells()];
            for _ in 0..3 {
                algorithm.charge(&mut cells, 7, u32::MAX, T0);
            }
            assert_eq!(algorithm.standing(&cells, T0).remaining, 0, "{algorithm:?}");
            let later = T0 + 86_400 * SECOND_NS + SECOND_NS;
            assert!(cells.iter().all(|cell| cell.is_spent(later)), "{algorithm:?}");
            assert_eq!(algorithm.standing(&cells, later).remaining, LIMIT, "{algorithm:?}");
        }
    }

    #[test]
    fn a_bucket_leaves_the_word_beside_it_alone() {
        for algorithm in [all()[0], all()[4]] {
            let mut cells = [Cell { word: 42, ..Cell::NEW }];
            algorithm.take(&mut cells, 0, 1, T0);
            let receipt = algorithm.charge(&mut cells, 0, 1, T0);
            algorithm.give_back(&mut cells, receipt, 1, T0);
            assert_eq!(cells, [Cell { until: T0 + SECOND_NS / 10, word: 42 }]);
        }
    }

    #[test]
    fn without_a_cell_there_is_no_room() {
        for algorithm in all() {
            let never = Answer::Short { wait_ns: NEVER_NS };
            assert_eq!(algorithm.take(&mut [], 0, 1, T0), never);
            algorithm.give_back(&mut [], algorithm.charge(&mut [], 0, 1, T0), 1, T0);
        }
    }
}
