//! Local counters of a key: the token bucket, a POP's fair share of it, and the other algorithms.
//!
//! All are pure: a rule's parameters, state and time in, state out. A key's state is a [`Cell`] (several for a [sliding
//! log](sliding_log), a [`Bucket`] for a [leaky bucket](leaky_bucket)). [`take`], [`charge`], [`give_back`] and
//! [`status`] are the same for every algorithm, over cells. A bucket is the `until` of its cell, whose word is not
//! touched.
//!
//! A window is identified by its end, which the cell holds in full, so no window number ever wraps. A cell
//! that is not empty continues its own windows; only a new one computes the start of its key's windows. So
//! keys can share a cell (an overflow cell), and few requests pay for that computation.
//!
//! A `now` earlier than one seen before shows less room, never more (invariant I8).

use weir_protocol::time::Time;
use weir_rules::algorithm::Algorithm;

mod cell;
pub(crate) mod concurrency;
mod fair_share;
pub(crate) mod fixed_window;
mod leaky_bucket;
mod sliding_log;
mod sliding_window;
mod token_bucket;

pub use cell::{Admission, CELLS_MAX, Cell, NEVER_NS, Receipt};
pub use fair_share::FairShare;
pub use token_bucket::{Bucket, BucketStatus};
pub(crate) use token_bucket::{Portion, deepest_ns, missing_ns};

/// The record of a request that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Receipt to give it back with; under [`Algorithm::Concurrency`], to release it with.
    pub receipt: Receipt,
    /// Nanoseconds to hold the request. Zero except under [`Algorithm::LeakyBucket`] and for turns of the
    /// fleet's queue.
    pub hold_ns: u64,
}

/// Takes `n` at `now`, if there is room, for a key that hashes to `hash`. `cells` has the length
/// [`Algorithm::cells`]. Without room, they are unchanged.
pub fn take(algorithm: &Algorithm, cells: &mut [Cell], hash: u64, n: u32, now: Time) -> Admission<Admitted> {
    if let Algorithm::SlidingLog(log) = algorithm {
        return sliding_log::take(log, cells, n, now).map(|back_at| Admitted { receipt: Receipt(back_at), hold_ns: 0 });
    }
    let Some(cell) = cells.first_mut() else { return Admission::Short { wait_ns: NEVER_NS } };
    let taken = take_from(algorithm, *cell, hash, n, now);
    taken.map(|(after, hold_ns)| {
        *cell = after;
        Admitted { receipt: Receipt(after.until), hold_ns }
    })
}

/// Takes `n` at `now` even without room, for a cost that is known only afterwards.
pub fn charge(algorithm: &Algorithm, cells: &mut [Cell], hash: u64, n: u32, now: Time) -> Receipt {
    if let Algorithm::SlidingLog(log) = algorithm {
        return Receipt(sliding_log::charge(log, cells, n, now));
    }
    let Some(cell) = cells.first_mut() else { return Receipt::NONE };
    let bucket = Bucket::full_at(cell.until);
    *cell = match algorithm {
        Algorithm::TokenBucket(quota) => Cell { until: bucket.charged(quota, n, now).refilled(), ..*cell },
        Algorithm::FixedWindow(window) => fixed_window::charge(window, *cell, hash, n, now),
        Algorithm::SlidingWindow(window) => sliding_window::charge(window, *cell, hash, n, now),
        Algorithm::LeakyBucket(leaky) => {
            Cell { until: leaky_bucket::charge(leaky, bucket, n, now).refilled(), ..*cell }
        }
        Algorithm::Concurrency(concurrency) => concurrency::charge(concurrency, *cell, hash, n, now),
        Algorithm::SlidingLog(_) => *cell,
    };
    Receipt(cell.until)
}

/// Gives back at `now` the `n` of a take or charge. This also releases a request in flight.
pub fn give_back(algorithm: &Algorithm, cells: &mut [Cell], receipt: Receipt, n: u32, now: Time) {
    if let Algorithm::SlidingLog(log) = algorithm {
        return sliding_log::give_back(log, cells, receipt.0, n);
    }
    let Some(cell) = cells.first_mut() else { return };
    let (bucket, taken) = (Bucket::full_at(cell.until), Cell { until: receipt.0, word: 0 });
    *cell = match algorithm {
        Algorithm::TokenBucket(quota) => Cell { until: bucket.give_back(quota, n).refilled(), ..*cell },
        Algorithm::FixedWindow(_) => fixed_window::give_back(*cell, taken, n),
        Algorithm::SlidingWindow(window) => sliding_window::give_back(window, *cell, taken, n),
        Algorithm::LeakyBucket(leaky) => {
            let after = leaky_bucket::give_back(leaky, bucket, Bucket::full_at(receipt.0), n);
            Cell { until: after.refilled(), ..*cell }
        }
        Algorithm::Concurrency(concurrency) => concurrency::release(concurrency, *cell, receipt.0, n, now),
        Algorithm::SlidingLog(_) => *cell,
    };
}

/// Gives back `n` of what counts at `now`, from any take or charge. Does nothing for places in flight and in queues.
pub fn refund(algorithm: &Algorithm, cells: &mut [Cell], n: u32, now: Time) {
    if let Algorithm::SlidingLog(log) = algorithm {
        return sliding_log::refund(log, cells, n);
    }
    let Some(cell) = cells.first_mut() else { return };
    let latest = Receipt(cell.until);
    if !matches!(algorithm, Algorithm::LeakyBucket(_) | Algorithm::Concurrency(_)) && !cell.is_spent(now) {
        give_back(algorithm, cells, latest, n, now);
    }
}

/// The quota status at `now`.
pub fn status(algorithm: &Algorithm, cells: &[Cell], now: Time) -> BucketStatus {
    let cell = cells.first().copied().unwrap_or(Cell::NEW);
    let bucket = Bucket::full_at(cell.until);
    match algorithm {
        Algorithm::TokenBucket(quota) => BucketStatus::allowed(bucket, quota, now),
        Algorithm::FixedWindow(window) => fixed_window::status(window, cell, now),
        Algorithm::SlidingWindow(window) => sliding_window::status(window, cell, now),
        Algorithm::SlidingLog(log) => sliding_log::status(log, cells, now),
        Algorithm::LeakyBucket(leaky) => leaky_bucket::status(leaky, bucket, now),
        Algorithm::Concurrency(concurrency) => concurrency::status(concurrency, cell, now),
    }
}

/// The cell after `n` are taken from it, and the nanoseconds to hold the request.
fn take_from(algorithm: &Algorithm, cell: Cell, hash: u64, n: u32, now: Time) -> Admission<(Cell, u64)> {
    let bucket = Bucket::full_at(cell.until);
    match algorithm {
        Algorithm::TokenBucket(quota) => match bucket.take(quota, n, now) {
            Admission::Short { .. } if n > quota.burst() => Admission::Short { wait_ns: NEVER_NS },
            taken => taken.map(|after| (Cell { until: after.refilled(), ..cell }, 0)),
        },
        Algorithm::FixedWindow(window) => fixed_window::take(window, cell, hash, n, now).map(|after| (after, 0)),
        Algorithm::SlidingWindow(window) => sliding_window::take(window, cell, hash, n, now).map(|after| (after, 0)),
        Algorithm::LeakyBucket(leaky) => leaky_bucket::take(leaky, bucket, n, now)
            .map(|turn| (Cell { until: turn.after.refilled(), ..cell }, turn.hold_ns)),
        Algorithm::Concurrency(concurrency) => {
            concurrency::acquire(concurrency, cell, hash, n, now).map(|after| (after, 0))
        }
        Algorithm::SlidingLog(_) => Admission::Short { wait_ns: NEVER_NS },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_protocol::quota::Quota;
    use weir_protocol::time::SECOND_NS;
    use weir_rules::algorithm::{Concurrency, LeakyBucket, SlidingLog, WindowLimit};

    const T0: Time = Time::from_nanos(1_000 * SECOND_NS);
    const LIMIT: u32 = 10;

    /// Each algorithm with a limit of ten, which comes back within a second, one by one or all together.
    fn all() -> [Algorithm; 6] {
        [
            Algorithm::TokenBucket(Quota::new("10/s".parse().unwrap(), LIMIT).unwrap()),
            Algorithm::FixedWindow(WindowLimit::new(LIMIT, SECOND_NS).unwrap()),
            Algorithm::SlidingWindow(WindowLimit::new(LIMIT, SECOND_NS).unwrap()),
            Algorithm::SlidingLog(SlidingLog::new(LIMIT, SECOND_NS).unwrap()),
            Algorithm::LeakyBucket(LeakyBucket::new(SECOND_NS / 10, LIMIT - 1).unwrap()),
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

    proptest! {
        /// I3 and I8: however the clock steps, an earlier time has no more room than a later one, and what is admitted
        /// stays within the limit for each second, and once more.
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
