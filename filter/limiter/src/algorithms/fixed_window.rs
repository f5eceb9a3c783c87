//! The fixed window: a count that restarts with every window.
//!
//! A cell's `until` is the end of its window, its word the count. Up to twice the limit can pass around a boundary.

use crate::algorithms::{Admission, BucketStatus, Cell, NEVER_NS, window_end};
use weir_protocol::time::Time;
use weir_rules::algorithm::WindowLimit;

pub(crate) fn take(window: &WindowLimit, cell: Cell, hash: u64, n: u32, now: Time) -> Admission<Cell> {
    let taken = charge(window, cell, hash, n, now);
    if taken.word <= u64::from(window.limit()) {
        return Admission::Taken(taken);
    }
    let wait_ns = if n > window.limit() { NEVER_NS } else { taken.until.nanos_since(now) };
    Admission::Short { wait_ns }
}

/// Takes `n` at `now` even without room. An excess is dropped when the window ends.
#[must_use]
pub(crate) fn charge(window: &WindowLimit, cell: Cell, hash: u64, n: u32, now: Time) -> Cell {
    if cell.is_spent(now) {
        return Cell { until: window_end(window.length_ns(), hash, now), word: u64::from(n) };
    }
    Cell { until: cell.until, word: cell.word.saturating_add(u64::from(n)) }
}

/// Gives back `n` tokens of the take or charge that produced `taken`. Does nothing once their window is over.
#[must_use]
pub(crate) fn give_back(cell: Cell, taken: Cell, n: u32) -> Cell {
    let given = if cell.until == taken.until { u64::from(n) } else { 0 };
    Cell { word: cell.word.saturating_sub(given), ..cell }
}

pub(crate) fn status(window: &WindowLimit, cell: Cell, now: Time) -> BucketStatus {
    let used = if cell.is_spent(now) { 0 } else { cell.word };
    let used = u32::try_from(used).unwrap_or(u32::MAX);
    let back_ns = if used == 0 { 0 } else { cell.until.nanos_since(now) };
    BucketStatus { remaining: window.limit().saturating_sub(used), more_ns: back_ns, full_ns: back_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::taken;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const T0: Time = Time::from_nanos(1_000);

    #[test]
    fn a_refund_goes_back_to_its_own_window() {
        let window = WindowLimit::new(5, 100).unwrap();
        let first = taken(take(&window, Cell::NEW, 0, 3, T0));
        assert_eq!(give_back(first, first, 3).word, 0);
        let next = taken(take(&window, first, 0, 5, T0 + 100));
        assert_eq!(give_back(next, first, 3), next);
    }

    proptest! {
        /// The exact model: a count for every window.
        // I3
        #[test]
        fn a_fixed_window_agrees_with_exact_counts(
            limit in 1u32..20, length in 1u64..60, hash: u64, start in 0u64..1_000,
            steps in prop::collection::vec((0u64..50, 0u32..22, 0..4), 1..200),
        ) {
            let window = WindowLimit::new(limit, length).unwrap();
            let offset = u64::try_from((u128::from(hash) * u128::from(length)) >> 64).unwrap();
            let (mut cell, mut now, mut used) = (Cell::NEW, start, BTreeMap::<u64, u64>::new());
            for (step, n, act) in steps {
                now += step;
                let (index, at) = ((now + offset) / length, Time::from_nanos(now));
                let count = used.entry(index).or_default();
                let left_ns = (index + 1) * length - offset - now;
                // A table may drop it once it is spent.
                cell = if cell.is_spent(at) && act > 2 { Cell::NEW } else { cell };
                if act == 0 {
                    cell = charge(&window, cell, hash, n, at);
                    *count += u64::from(n);
                } else {
                    let fits = *count + u64::from(n) <= u64::from(limit);
                    match take(&window, cell, hash, n, at) {
                        Admission::Taken(after) => {
                            prop_assert!(fits);
                            cell = if act == 1 { give_back(after, after, n) } else { after };
                            *count += if act == 1 { 0 } else { u64::from(n) };
                        }
                        Admission::Short { wait_ns } => {
                            prop_assert!(!fits);
                            prop_assert_eq!(wait_ns, if n > limit { NEVER_NS } else { left_ns });
                        }
                    }
                }
                let status = status(&window, cell, at);
                prop_assert_eq!(u64::from(status.remaining), u64::from(limit).saturating_sub(*count));
                prop_assert_eq!(status.full_ns, if *count == 0 { 0 } else { left_ns });
            }
        }
    }
}
