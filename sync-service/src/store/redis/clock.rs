//! How far a Redis's clock may have gone since it was last heard: as far as this process's own clock, and a margin.
//!
//! A clock that jumps ahead, as at a fail-over to a host whose clock is wrong, would fill every budget. So each script is
//! told the latest that the clock can show, and goes by that if the clock shows more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How much more than expected is taken for time, in microseconds: a call may be on its way for so long, and the clocks
/// of several servers may be so far apart.
const MARGIN_US: u64 = 5_000_000;

/// The clock, as its answers showed it. This process's own time is an argument.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// What the clock showed last, at which time of our own, and whether it is ahead of what it can show.
    state: Mutex<Option<(u64, u64, bool)>>,
    jumps: AtomicU64,
}

impl Clock {
    /// How often it jumped ahead.
    pub(super) fn jumps(&self) -> u64 {
        self.jumps.load(Ordering::Relaxed)
    }

    /// The latest that the clock can show now, in microseconds; 0 if it was never heard.
    pub(super) fn latest_us(&self, own_us: u64) -> u64 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.map_or(0, |(showed_us, at_us, _)| showed_us + own_us.saturating_sub(at_us) + MARGIN_US)
    }

    /// A call that was told `latest_us` answers that the clock showed `now_us`.
    pub(super) fn heard(&self, own_us: u64, latest_us: u64, now_us: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let was_ahead = state.is_some_and(|(_, _, is_ahead)| is_ahead);
        if latest_us == 0 || now_us < latest_us {
            *state = Some((now_us, own_us, false));
        } else if let Some((_, _, is_ahead)) = state.as_mut().filter(|_| !was_ahead) {
            // From here on time is this process's own, until the clock shows what it can show.
            *is_ahead = true;
            self.jumps.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                "the store's clock has jumped ahead: until it is right again, or this weir-sync is started anew, budgets \
                 refill by this machine's clock. Look at the clocks of the store's servers (NTP)"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    #[test]
    fn a_jump_ahead_is_counted_once_and_time_goes_on_by_this_clock() {
        let (clock, begin) = (Clock::default(), 3_600 * S);
        assert_eq!(clock.latest_us(0), 0);
        clock.heard(0, 0, begin);
        assert_eq!(clock.latest_us(10 * S), begin + 10 * S + MARGIN_US);
        for own_us in [10 * S, 11 * S, 12 * S] {
            // What the script makes of a clock that shows too much.
            let latest_us = clock.latest_us(own_us);
            clock.heard(own_us, latest_us, latest_us);
        }
        assert_eq!(
            (clock.jumps(), clock.latest_us(13 * S)),
            (1, begin + 13 * S + MARGIN_US),
            "one margin in all"
        );
        // It is right again, and then jumps once more.
        clock.heard(14 * S, clock.latest_us(14 * S), begin + 14 * S);
        clock.heard(15 * S, clock.latest_us(15 * S), clock.latest_us(15 * S));
        assert_eq!(clock.jumps(), 2);
        // A clock that steps back is taken as it is.
        clock.heard(16 * S, clock.latest_us(16 * S), 7);
        assert_eq!(clock.latest_us(16 * S), 7 + MARGIN_US);
    }
}
