//! Refill policies of a budget.

use serde::{Deserialize, Serialize};

use crate::calendar::{Calendar, LENGTH_S_MAX};
use crate::quota::TOKENS_MAX;

/// Maximum number of tokens of a budget that records each token.
pub const LOG_MAX: u32 = 1_000;

/// Time before the end of a lease at which a POP returns tokens that no request asks for, in seconds.
pub const GIVEN_BACK_S: u64 = 30;

/// Refill policy of a budget. All but `Continuous` need a strict rule: the fleet counts the tokens that it has debited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RefillPolicy {
    /// Continuous: at the quota's rate, up to its burst, like a token bucket.
    #[default]
    Continuous,
    /// Window: all tokens return when a window ends, and none before.
    Window(Calendar),
    /// Like `Window`, but tokens taken in the previous window still count, weighted by the part of it that a
    /// window ending now would cover. All windows have the same length.
    Sliding(Calendar),
    /// Log: each token returns this number of seconds after it was spent, 1 to [`LENGTH_S_MAX`]. The budget
    /// records every token, so it has at most [`LOG_MAX`].
    Log(u32),
    /// In flight: each place returns when its request ends, and at the latest after this number of seconds, 1 to
    /// [`LENGTH_S_MAX`]. A POP that returns a place reports it as spent.
    InFlight(u32),
    /// Queue: at the quota's rate, but a token is a turn, which comes when the turns before it are over. A request
    /// acquires and spends all its tokens or none, and gets the time of its turn. Nothing is leased ahead.
    Queue,
}

impl RefillPolicy {
    pub const fn windows(self) -> Option<Calendar> {
        match self {
            Self::Window(calendar) | Self::Sliding(calendar) => Some(calendar),
            Self::Continuous | Self::Log(_) | Self::InFlight(_) | Self::Queue => None,
        }
    }

    pub const fn is_by_rate(self) -> bool {
        matches!(self, Self::Continuous | Self::Queue)
    }

    /// True if all tokens return when a window ends, and none before: not for [`Self::Sliding`].
    pub const fn is_window(self) -> bool {
        matches!(self, Self::Window(_))
    }

    /// Time for which a spent token counts, in microseconds; `None` unless each token returns by itself.
    pub const fn counts_us(self) -> Option<u64> {
        match self {
            Self::Log(length_s) => Some(length_s as u64 * 1_000_000),
            Self::InFlight(_) => Some(0),
            Self::Continuous | Self::Window(_) | Self::Sliding(_) | Self::Queue => None,
        }
    }

    /// Maximum time for which a request in flight counts, in microseconds; 0 for other policies.
    pub const fn expires_us(self) -> u64 {
        if let Self::InFlight(expires_s) = self { expires_s as u64 * 1_000_000 } else { 0 }
    }

    pub const fn tokens_max(self) -> u32 {
        if let Self::Log(_) = self { LOG_MAX } else { TOKENS_MAX }
    }

    pub fn is_valid(self) -> bool {
        match self {
            Self::Continuous | Self::Queue => true,
            Self::Window(calendar) => calendar.is_valid(),
            Self::Sliding(calendar) => calendar.is_valid() && calendar.even().is_some(),
            Self::Log(length_s) | Self::InFlight(length_s) => length_s > 0 && length_s <= LENGTH_S_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_log_is_bounded() {
        for refill_policy in [RefillPolicy::Log, RefillPolicy::InFlight] {
            let is_valid = |length_s| refill_policy(length_s).is_valid();
            assert_eq!([0, 1, LENGTH_S_MAX, LENGTH_S_MAX + 1].map(is_valid), [false, true, true, false]);
        }
    }
}
