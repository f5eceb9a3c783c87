//! List in Redis that is read incrementally.
//!
//! The list may be long and is read every interval, so Redis returns the changes since the last read. From time
//! to time it returns the whole list. That repairs changes lost on the way, lost by a clock that stepped back,
//! or not recorded by a weir-sync of an older version.

use std::sync::{Mutex, PoisonError};

/// Overlap of two reads, in milliseconds: the clocks of two Redis servers may differ by this, and answers may
/// overtake each other.
const OVERLAP_MS: u64 = 1_000;
/// Interval at which the whole list is read, in milliseconds.
pub(super) const WHOLE_MS: u64 = 10_000;

/// The list as last read from Redis.
#[derive(Debug, Default)]
pub(super) struct ChangedList<L>(Mutex<State<L>>);

#[derive(Debug, Default)]
struct State<L> {
    list: L,
    /// Time of the last read, and of the last read of the whole list, on Redis's clock; zero if never.
    at_ms: u64,
    whole_at_ms: u64,
}

impl<L: Default> ChangedList<L> {
    /// Time from which to read changes, in milliseconds of Redis's clock; 0 for the whole list.
    pub(super) fn since_ms(&self) -> u64 {
        self.with(|state| {
            let is_whole_due = state.at_ms.saturating_sub(state.whole_at_ms) >= WHOLE_MS;
            if is_whole_due { 0 } else { state.at_ms.saturating_sub(OVERLAP_MS) }
        })
    }

    /// Applies Redis's answer of `now_ms` with the changes since `since_ms`. `take_in` adds them to the list,
    /// which is empty if the whole list was read, and returns its content.
    pub(super) fn heard<T>(&self, since_ms: u64, now_ms: u64, take_in: impl FnOnce(&mut L) -> T) -> T {
        self.with(|state| {
            if since_ms == 0 {
                (state.list, state.whole_at_ms) = (L::default(), now_ms);
            }
            // If the clock stepped back, the next read is of the whole list.
            state.at_ms = if now_ms < since_ms { 0 } else { now_ms };
            take_in(&mut state.list)
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut State<L>) -> T) -> T {
        // Nothing here panics; if it did, the list would still be valid.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_list_is_asked_for_at_first_now_and_then_and_after_a_step_back() {
        let list = ChangedList::<Vec<u64>>::default();
        let asked = |now_ms: u64| {
            let since_ms = list.since_ms();
            let known = list.heard(since_ms, now_ms, |list| {
                list.push(now_ms);
                list.len()
            });
            (since_ms, known)
        };
        assert_eq!(asked(50_000), (0, 1));
        assert_eq!(asked(50_250), (49_000, 2));
        assert_eq!(asked(59_000), (49_250, 3));
        assert_eq!(asked(60_000), (58_000, 4));
        assert_eq!(asked(60_250), (0, 1), "after ten seconds");
        assert_eq!(asked(20_000), (59_250, 2));
        assert_eq!(asked(20_250), (0, 1), "after a step back");
    }
}
