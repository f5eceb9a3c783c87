//! The sliding window: the count of the current window, plus the part of the previous one's count that a window ending
//! now still covers (Cloudflare, "How we built rate limiting capable of scaling to millions of domains", 2017).
//!
//! The result is exact if the previous window's requests were evenly spread. If not, up to twice the limit may pass
//! within a window's length, but only for a client that spent the previous limit at its end. Counts are not rounded.

use crate::algorithms::{Admission, BucketStatus, Cell, NEVER_NS, Pair};
use weir_protocol::time::Time;
use weir_rules::algorithm::WindowLimit;

pub(super) fn take(window: &WindowLimit, cell: Cell, hash: u64, n: u32, now: Time) -> Admission<Cell> {
    let pair = Pair::at(cell, window.length_ns(), hash, now);
    match wait_ns(window, pair, n, now) {
        0 => Admission::Taken(pair.plus(n).cell()),
        wait_ns => Admission::Short { wait_ns },
    }
}

/// Gives back `n` tokens of the take or charge that produced `taken`. Does nothing once their window no longer counts.
#[must_use]
pub(super) fn give_back(window: &WindowLimit, cell: Cell, taken: Cell, n: u32) -> Cell {
    Pair::stored(cell).minus(n, taken.until, window.length_ns()).cell()
}

pub(super) fn status(window: &WindowLimit, cell: Cell, now: Time) -> BucketStatus {
    let Some(pair) = Pair::live(cell, window.length_ns(), now) else {
        return BucketStatus { remaining: window.limit(), more_ns: 0, full_ns: 0 };
    };
    let covered_ns = u128::from(pair.ends(window.length_ns()).nanos_since(now).min(window.length_ns()));
    let weighted = (u128::from(pair.previous) * covered_ns).div_ceil(u128::from(window.length_ns()));
    let used = weighted + u128::from(pair.current);
    let remaining = window.limit().saturating_sub(u32::try_from(used).unwrap_or(u32::MAX));
    BucketStatus {
        remaining,
        more_ns: if remaining < window.limit() { wait_ns(window, pair, remaining + 1, now) } else { 0 },
        full_ns: wait_ns(window, pair, window.limit(), now),
    }
}

/// Nanoseconds from `now` until `n` fit.
fn wait_ns(window: &WindowLimit, pair: Pair, n: u32, now: Time) -> u64 {
    let Some(room_without) = window.limit().checked_sub(n) else { return NEVER_NS };
    // They fit once the previous window has faded enough, or the current one if that alone is too full.
    let (fades_until, count, room) = match room_without.checked_sub(pair.current) {
        Some(room) => (pair.ends(window.length_ns()), pair.previous, room),
        None => (pair.until, pair.current, room_without),
    };
    let room_ns = u128::from(room) * u128::from(window.length_ns());
    let covered_ns = fades_until.nanos_since(now).min(window.length_ns());
    if u128::from(count) * u128::from(covered_ns) <= room_ns {
        return 0;
    }
    // Less than the length, because the count exceeds the room.
    let fits_before_ns = u64::try_from(room_ns / u128::from(count.max(1))).unwrap_or(0);
    fades_until.nanos_since(now + fits_before_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::{charge, taken};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use weir_protocol::quota::TOKENS_MAX;
    use weir_rules::algorithm::{Algorithm, LENGTH_NS_MAX};

    const T0: Time = Time::from_nanos(1_000);

    #[test]
    fn the_longest_window_and_the_highest_limit_do_not_overflow() {
        let window = WindowLimit::new(TOKENS_MAX, LENGTH_NS_MAX).unwrap();
        let cell = taken(take(&window, Cell::NEW, u64::MAX, TOKENS_MAX, T0));
        let Admission::Short { wait_ns } = take(&window, cell, 0, 1, T0) else { panic!("full") };
        assert!(matches!(take(&window, cell, 0, 1, T0 + (wait_ns - 1)), Admission::Short { wait_ns: 1 }));
        assert!(matches!(take(&window, cell, 0, 1, T0 + wait_ns), Admission::Taken(_)));
    }

    #[test]
    fn a_refund_goes_back_to_its_own_window() {
        let window = WindowLimit::new(10, 100).unwrap();
        let first = taken(take(&window, Cell::NEW, 0, 4, T0));
        let second = taken(take(&window, first, 0, 5, T0 + 150));
        assert_eq!(give_back(&window, second, first, 4).word, 5);
        assert_eq!(give_back(&window, second, second, 5).word, 4 << 32);
        let third = taken(take(&window, second, 0, 5, T0 + 250));
        assert_eq!(give_back(&window, third, first, 4), third);
    }

    /// The exact model: a count for every window, and the formula as written.
    struct Model {
        limit: u32,
        length: u64,
        offset: u64,
        counts: BTreeMap<u64, u64>,
    }

    impl Model {
        fn fits(&self, n: u32, now: u64) -> bool {
            let (index, length) = ((now + self.offset) / self.length, u128::from(self.length));
            let elapsed = u128::from((now + self.offset) % self.length);
            let count = |index: u64| u128::from(self.counts.get(&index).copied().unwrap_or(0));
            let before = if index == 0 { 0 } else { count(index - 1) };
            before * (length - elapsed) + (count(index) + u128::from(n)) * length <= u128::from(self.limit) * length
        }

        fn wait(&self, n: u32, now: u64) -> u64 {
            let wait = (0..=2 * self.length).find(|wait| self.fits(n, now + wait));
            if n > self.limit { NEVER_NS } else { wait.unwrap() }
        }
    }

    proptest! {
        // I3
        #[test]
        fn a_sliding_window_agrees_with_its_formula(
            limit in 1u32..20, length in 1u64..60, hash: u64, start in 0u64..1_000,
            steps in prop::collection::vec((0u64..50, 0u32..22, 0..6), 1..60),
        ) {
            let window = WindowLimit::new(limit, length).unwrap();
            let offset = u64::try_from((u128::from(hash) * u128::from(length)) >> 64).unwrap();
            let mut model = Model { limit, length, offset, counts: BTreeMap::new() };
            let (mut cell, mut now) = (Cell::NEW, start);
            for (step, n, act) in steps {
                now += step;
                let (at, index) = (Time::from_nanos(now), (now + offset) / length);
                // A table may drop it once it is spent.
                cell = if cell.is_spent(at) && act > 2 { Cell::NEW } else { cell };
                if act == 0 {
                    charge(&Algorithm::SlidingWindow(window), core::slice::from_mut(&mut cell), hash, n, at);
                    *model.counts.entry(index).or_default() += u64::from(n);
                } else {
                    match take(&window, cell, hash, n, at) {
                        Admission::Taken(after) if act == 1 => {
                            prop_assert!(model.fits(n, now));
                            cell = give_back(&window, after, after, n);
                        }
                        Admission::Taken(after) => {
                            prop_assert!(model.fits(n, now));
                            cell = after;
                            *model.counts.entry(index).or_default() += u64::from(n);
                        }
                        Admission::Short { wait_ns } => prop_assert_eq!(wait_ns, model.wait(n, now)),
                    }
                }
                let remaining = (1..=limit).rev().find(|&n| model.fits(n, now)).unwrap_or(0);
                let more_ns = if remaining < limit { model.wait(remaining + 1, now) } else { 0 };
                let expected = BucketStatus { remaining, more_ns, full_ns: model.wait(limit, now) };
                prop_assert_eq!(status(&window, cell, at), expected);
            }
        }

        /// So the fleet's token bucket of the same rate can replace a window that only a POP counts (docs/budgets.md).
        #[test]
        fn a_token_bucket_of_the_same_rate_lets_no_less_through(
            limit in 1u32..20, length in 1u64..60, hash: u64,
            steps in prop::collection::vec((0u64..50, 1u32..22), 1..100),
        ) {
            let window = WindowLimit::new(limit, length).unwrap();
            // The bucket's deficit in parts of a token: a token is `length` parts, and each ns refills `limit` parts.
            let (mut cell, mut now, mut lacks) = (Cell::NEW, T0, 0u64);
            for (step, n) in steps {
                now += step;
                lacks = lacks.saturating_sub(step * u64::from(limit));
                if let Admission::Taken(after) = take(&window, cell, hash, n, now) {
                    cell = after;
                    lacks += u64::from(n) * length;
                }
                prop_assert!(lacks <= u64::from(limit) * length);
            }
        }
    }
}
