//! How a budget gets back what was taken of it.

use serde::{Deserialize, Serialize};

use crate::calendar::Calendar;

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
}

impl Law {
    /// Whose windows it goes by.
    pub const fn windows(self) -> Option<Calendar> {
        match self {
            Self::Steady => None,
            Self::Window(calendar) | Self::Sliding(calendar) => Some(calendar),
        }
    }

    /// Whether nothing comes back before a window ends.
    pub const fn is_window(self) -> bool {
        matches!(self, Self::Window(_))
    }

    /// Whether it keeps to its bounds.
    pub fn is_valid(self) -> bool {
        match self {
            Self::Steady => true,
            Self::Window(calendar) => calendar.is_valid(),
            Self::Sliding(calendar) => calendar.is_valid() && calendar.even().is_some(),
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
    fn what_is_no_law_is_not_read_as_one() {
        for bytes in [&[3, 0][..], &[1, 4, 0], &[2, 2, 10], &[2], &[]] {
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
