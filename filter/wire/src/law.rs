//! How a budget gets back what was taken of it.

use serde::{Deserialize, Serialize};

use crate::calendar::{Calendar, LENGTH_S_MAX};
use crate::quota::TOKENS_MAX;

/// The most tokens of a budget that remembers each of them.
pub const LOG_MAX: u32 = 1_000;

/// How long before the end of its lease a POP gives back what it has of a window's count if nobody asks for it, in seconds.
pub const GIVEN_BACK_S: u64 = 30;

/// How a budget gets back what was taken of it. All but the steady one need a strict rule: the fleet counts what it has
/// debited, not what POPs say later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Law {
    /// At the quota's rate, up to its burst: a token bucket.
    #[default]
    Steady,
    /// All of it when a window ends, and none before: a count for each window.
    Window(Calendar),
    /// The same, but what the window before took counts on, for the part of it that a window ending now would still
    /// cover. All windows are of one length.
    Sliding(Calendar),
    /// Each token so many seconds after it was spent, 1 to [`LENGTH_S_MAX`]. The budget remembers all of them, so it has
    /// [`LOG_MAX`] at most.
    Log(u32),
    /// Each place when its request ends: the budget counts requests in flight, each for so many seconds at most, 1 to
    /// [`LENGTH_S_MAX`]. A POP says of a place that it gives back that it is spent.
    InFlight(u32),
    /// At the quota's rate, but as turns in a queue: a token is a turn, which comes when those before it are over. A draw
    /// gives all that a request wants or nothing, and says when it comes. It is spent by that; nothing is leased ahead.
    Turns,
}

impl Law {
    /// Whose windows it goes by.
    pub const fn windows(self) -> Option<Calendar> {
        match self {
            Self::Window(calendar) | Self::Sliding(calendar) => Some(calendar),
            Self::Steady | Self::Log(_) | Self::InFlight(_) | Self::Turns => None,
        }
    }

    /// Whether tokens come back at the quota's rate.
    pub const fn is_by_rate(self) -> bool {
        matches!(self, Self::Steady | Self::Turns)
    }

    /// Whether nothing comes back before a window ends.
    pub const fn is_window(self) -> bool {
        matches!(self, Self::Window(_))
    }

    /// For how long a token counts once it is spent, in microseconds, if each comes back by itself.
    pub const fn counts_us(self) -> Option<u64> {
        match self {
            Self::Log(length_s) => Some(length_s as u64 * 1_000_000),
            Self::InFlight(_) => Some(0),
            Self::Steady | Self::Window(_) | Self::Sliding(_) | Self::Turns => None,
        }
    }

    /// For how long a request counts at most once it has begun, in microseconds; none if it takes tokens for good.
    pub const fn expires_us(self) -> u64 {
        if let Self::InFlight(expires_s) = self { expires_s as u64 * 1_000_000 } else { 0 }
    }

    /// The most tokens that its budget may have.
    pub const fn tokens_max(self) -> u32 {
        if let Self::Log(_) = self { LOG_MAX } else { TOKENS_MAX }
    }

    /// Whether it keeps to its bounds.
    pub fn is_valid(self) -> bool {
        match self {
            Self::Steady | Self::Turns => true,
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
    fn what_slides_has_windows_of_one_length() {
        for (_, calendar) in Calendar::NAMED {
            assert!(Law::Window(calendar).is_valid());
            assert_eq!(Law::Sliding(calendar).is_valid(), calendar != Calendar::Month);
        }
        assert!(!Law::Sliding(Calendar::every(5, 5)).is_valid());
    }

    #[test]
    fn a_log_is_some_time_long_and_at_most_as_long_as_a_window() {
        for law in [Law::Log, Law::InFlight] {
            let is_valid = |length_s| law(length_s).is_valid();
            assert_eq!([0, 1, LENGTH_S_MAX, LENGTH_S_MAX + 1].map(is_valid), [false, true, true, false]);
        }
    }

    #[test]
    fn what_is_no_law_is_not_read_as_one() {
        for bytes in [&[6, 0][..], &[3], &[4], &[1, 4, 0], &[2, 2, 10], &[2], &[]] {
            assert!(postcard::from_bytes::<Law>(bytes).is_err(), "{bytes:?}");
        }
    }

    /// Version 5 of the messages has the first of these only, as an option of a calendar.
    #[test]
    fn the_first_laws_are_written_as_version_5_writes_them() {
        let bytes = |law: Law| postcard::to_allocvec(&law).unwrap();
        assert_eq!(bytes(Law::Steady), postcard::to_allocvec(&None::<Calendar>).unwrap());
        for (n, calendar) in [(0, Calendar::Day), (1, Calendar::Month)] {
            assert_eq!(bytes(Law::Window(calendar)), [1, n]);
        }
        assert_eq!(bytes(Law::Window(Calendar::every(10, 0)))[..2], [1, 2], "and one that it does not know");
        assert_eq!(bytes(Law::Sliding(Calendar::Day))[0], 2);
    }
}
