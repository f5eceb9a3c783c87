//! The sliding log: exact, for small limits.
//!
//! A limit of N is N places for one token each. A used place is busy until the window's length has passed. A cell holds
//! two places, as the times from which they are free: the later in `until`, the earlier in the word. The earliest
//! places are in the first cells, so the first cells are spent first. If N is odd, one place is never used.

use crate::algorithms::{Admission, BucketStatus, CELLS_MAX, Cell, NEVER_NS};
use weir_protocol::time::Time;
use weir_rules::algorithm::{LOG_MAX, LOGGED_PER_CELL, WindowLimit};

/// Takes `n` at `now`, if there is room. Returns the time from which their places are free; without room, `cells` are
/// unchanged. Dropped cells are passed as [`Cell::NEW`]. Cells beyond [`WindowLimit::log_cells`] are ignored; fewer
/// lower the limit.
pub(super) fn take(window: &WindowLimit, cells: &mut [Cell], n: u32, now: Time) -> Admission<Time> {
    let mut log = read(window, cells);
    match log.wait_ns(n, now) {
        0 => {
            let back_at = log.stamp(n, window.length_ns(), now);
            log.write(cells);
            Admission::Taken(back_at)
        }
        wait_ns => Admission::Short { wait_ns },
    }
}

/// Takes `n` at `now` even without room, and returns the time from which their places are free. The places free
/// earliest are reused, so no more than the limit can count.
pub(super) fn charge(window: &WindowLimit, cells: &mut [Cell], n: u32, now: Time) -> Time {
    let mut log = read(window, cells);
    let back_at = log.stamp(n, window.length_ns(), now);
    log.write(cells);
    back_at
}

/// Frees `n` of the places that would be free last.
pub(super) fn refund(window: &WindowLimit, cells: &mut [Cell], n: u32) {
    let mut log = read(window, cells);
    log.places_mut().iter_mut().rev().take(n as usize).for_each(|place| *place = Time::ZERO);
    sort(log.places_mut());
    log.write(cells);
}

/// Gives back the `n` of a take or charge whose places are free from `back_at`, except places reused since.
pub(super) fn give_back(window: &WindowLimit, cells: &mut [Cell], back_at: Time, n: u32) {
    let mut log = read(window, cells);
    let taken = log.places_mut().iter_mut().filter(|place| **place == back_at);
    taken.take(n as usize).for_each(|place| *place = Time::ZERO);
    sort(log.places_mut());
    log.write(cells);
}

pub(super) fn status(window: &WindowLimit, cells: &[Cell], now: Time) -> BucketStatus {
    let log = read(window, cells);
    let free = log.places().iter().filter(|place| **place <= now).count();
    let remaining = u32::try_from(free).unwrap_or(u32::MAX);
    let wait_ns = |place: Option<&Time>| place.map_or(0, |place| place.nanos_since(now));
    BucketStatus { remaining, more_ns: wait_ns(log.places().get(free)), full_ns: wait_ns(log.places().last()) }
}

fn read(window: &WindowLimit, cells: &[Cell]) -> Log {
    let mut log = Log { times: [Time::ZERO; PLACES_MAX], spare: 0, len: 0 };
    let cells = cells.get(..window.log_cells()).unwrap_or(cells);
    for (pair, cell) in log.times.chunks_exact_mut(LOGGED_PER_CELL).zip(cells) {
        pair.copy_from_slice(&[Time::from_nanos(cell.word), cell.until]);
    }
    log.len = cells.len() * LOGGED_PER_CELL;
    // If the limit is odd, one place stays free: the first in order.
    log.spare = log.len.saturating_sub(window.limit() as usize);
    if let Some(times) = log.times.get_mut(..log.len) {
        sort(times);
    }
    log
}

const PLACES_MAX: usize = CELLS_MAX * LOGGED_PER_CELL;

const _: () = assert!(LOG_MAX as usize == PLACES_MAX);

/// All places, as the times from which they are free, earliest first.
struct Log {
    times: [Time; PLACES_MAX],
    /// Number of places, out of `len`, that stay free at the front.
    spare: usize,
    len: usize,
}

impl Log {
    fn places(&self) -> &[Time] {
        self.times.get(self.spare..self.len).unwrap_or_default()
    }

    fn places_mut(&mut self) -> &mut [Time] {
        self.times.get_mut(self.spare..self.len).unwrap_or_default()
    }

    /// Nanoseconds from `now` until `n` places are free.
    fn wait_ns(&self, n: u32, now: Time) -> u64 {
        let Some(last) = n.checked_sub(1) else { return 0 };
        self.places().get(last as usize).map_or(NEVER_NS, |place| place.nanos_since(now))
    }

    /// Uses the first `n` places until the returned time: `length_ns` after `now`, or the log's latest if later.
    fn stamp(&mut self, n: u32, length_ns: u64, now: Time) -> Time {
        let places = self.places_mut();
        let back_at = places.iter().copied().fold(now + length_ns, Time::max);
        let n = (n as usize).min(places.len());
        places.iter_mut().take(n).for_each(|place| *place = back_at);
        // These are now the latest times, so they go to the end.
        places.rotate_left(n);
        back_at
    }

    fn write(&self, cells: &mut [Cell]) {
        let times = self.times.get(..self.len).unwrap_or_default();
        for (pair, cell) in times.chunks_exact(LOGGED_PER_CELL).zip(cells) {
            if let [earlier, later] = pair {
                *cell = Cell { until: *later, word: earlier.as_nanos() };
            }
        }
    }
}

/// Sorts places by insertion: they are few, and mostly in order already.
fn sort(places: &mut [Time]) {
    for end in 1..=places.len() {
        let Some([sorted @ .., last]) = places.get(..end) else { return };
        let at = sorted.partition_point(|place| place <= last);
        if let Some(later) = places.get_mut(at..end) {
            later.rotate_right(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const T0: Time = Time::from_nanos(1_000);

    #[test]
    fn fewer_cells_lower_the_limit_and_more_stay_unused() {
        let log = WindowLimit::new(5, 100).unwrap();
        assert_eq!(take(&log, &mut [], 1, T0), Admission::Short { wait_ns: NEVER_NS });
        assert_eq!(status(&log, &[Cell::NEW; 2], T0).remaining, 4);
        let other = Cell { until: T0 + 7, word: 3 };
        let mut cells = [Cell::NEW, Cell::NEW, Cell::NEW, other];
        charge(&log, &mut cells, u32::MAX, T0);
        assert_eq!(cells[3], other);
    }

    #[test]
    fn cells_may_be_dropped_in_any_order() {
        let (log, time) = (WindowLimit::new(6, 100).unwrap(), |ns| T0 + ns);
        let cell = |word, until| Cell { until: time(until), word: time(word).as_nanos() };
        let cells = [cell(40, 50), Cell::NEW, cell(80, 90)];
        assert_eq!(status(&log, &cells, time(45)), BucketStatus { remaining: 3, more_ns: 5, full_ns: 45 });
    }

    proptest! {
        /// The exact model: every token ever taken, with its time.
        // I3
        #[test]
        fn a_sliding_log_agrees_with_a_complete_one(
            limit in 1u32..=LOG_MAX, length in 1u64..60,
            steps in prop::collection::vec((0u64..20, 0u32..18, 0..6), 1..100),
        ) {
            let log = WindowLimit::new(limit, length).unwrap();
            let (mut cells, mut now, mut all) = ([Cell::NEW; CELLS_MAX], 1_000, Vec::<u64>::new());
            let limit = usize::try_from(limit).unwrap();
            for (step, n, act) in steps {
                now += step;
                let (at, count) = (Time::from_nanos(now), usize::try_from(n).unwrap());
                // A table may drop spent cells.
                for cell in cells.iter_mut().filter(|cell| cell.is_spent(at) && act > 2) {
                    *cell = Cell::NEW;
                }
                let fits = |all: &[u64], n: usize, now: u64| {
                    n == 0 || all.iter().filter(|&&t| now < t + length).count() + n <= limit
                };
                let wait = |all: &[u64], n: usize| {
                    if n > limit { NEVER_NS } else { (0..=length).find(|w| fits(all, n, now + w)).unwrap() }
                };
                if act == 0 {
                    charge(&log, &mut cells, n, at);
                    all.extend(core::iter::repeat_n(now, count));
                } else {
                    let before = cells;
                    match take(&log, &mut cells, n, at) {
                        Admission::Taken(back_at) => {
                            prop_assert!(fits(&all, count, now));
                            if act == 1 {
                                give_back(&log, &mut cells, back_at, n);
                                prop_assert_eq!(status(&log, &cells, at), status(&log, &before, at));
                            } else {
                                all.extend(core::iter::repeat_n(now, count));
                            }
                        }
                        Admission::Short { wait_ns } => {
                            prop_assert_eq!(wait_ns, wait(&all, count));
                            prop_assert_eq!(cells, before);
                        }
                    }
                }
                let remaining = (1..=limit).rev().find(|&n| fits(&all, n, now)).unwrap_or(0);
                let more_ns = if remaining < limit { wait(&all, remaining + 1) } else { 0 };
                let remaining = u32::try_from(remaining).unwrap();
                let expected = BucketStatus { remaining, more_ns, full_ns: wait(&all, limit) };
                prop_assert_eq!(status(&log, &cells, at), expected);
            }
        }
    }
}
