//! Calendar windows in UTC: which day or month a time is in, and where it ends.
//!
//! Times are in microseconds since 1970, without leap seconds (POSIX). The calendar is the proleptic
//! Gregorian one, by the arithmetic of Hinnant, "chrono-Compatible Low-Level Date Algorithms" (days
//! from civil, civil from days).

use serde::{Deserialize, Serialize};

/// Microseconds in a day.
pub const DAY_US: u64 = 86_400_000_000;

/// How long a window of the calendar is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Calendar {
    /// From midnight to midnight.
    Day,
    /// From the first of a month to the first of the next.
    Month,
}

/// A window of the calendar and the one after it, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its length.
    pub calendar: Calendar,
    /// When it begins.
    pub start_us: u64,
    /// When it ends, and the next one begins.
    pub end_us: u64,
    /// When the next one ends.
    pub next_end_us: u64,
}

impl Calendar {
    /// Every length, shortest first.
    pub const ALL: [Self; 2] = [Self::Day, Self::Month];

    /// What it is called in a rule's rate.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// The length of the longest window, in microseconds.
    pub const fn longest_us(self) -> u64 {
        match self {
            Self::Day => DAY_US,
            Self::Month => 31 * DAY_US,
        }
    }

    /// The length of a window that clients are told, in seconds; a month counts as thirty days.
    pub const fn nominal_s(self) -> u64 {
        match self {
            Self::Day => 86_400,
            Self::Month => 30 * 86_400,
        }
    }

    /// The window that `unix_us` is in.
    pub const fn window(self, unix_us: u64) -> Window {
        let day = unix_us / DAY_US;
        let (start, end, next_end) = match self {
            Self::Day => (day, day + 1, day + 2),
            Self::Month => {
                let month = month_of_day(day);
                (first_day(month), first_day(month + 1), first_day(month + 2))
            }
        };
        Window {
            calendar: self,
            start_us: start.saturating_mul(DAY_US),
            end_us: end.saturating_mul(DAY_US),
            next_end_us: next_end.saturating_mul(DAY_US),
        }
    }
}

impl Window {
    /// A placeholder for a window that is not known yet; [`Window::end_at`] finds no end in it.
    pub const fn unknown(calendar: Calendar) -> Self {
        Self { calendar, start_us: 0, end_us: 0, next_end_us: 0 }
    }

    /// The end of the window that `now_us`, read from another clock, is in: the first boundary after it. `None` if that
    /// is further off than a window is long, or if no boundary follows: then one of the clocks is wrong by more than a
    /// window.
    pub fn end_at(&self, now_us: u64) -> Option<u64> {
        let end_us = [self.start_us, self.end_us, self.next_end_us].into_iter().find(|end| *end > now_us)?;
        (end_us - now_us <= self.calendar.longest_us()).then_some(end_us)
    }
}

/// Days from the 1st of March of the year 0 to 1970.
const EPOCH_DAYS: u64 = 719_468;
/// Days in 400 years.
const ERA_DAYS: u64 = 146_097;

/// The month that `day` is in; months count from the year 0, days from 1970.
const fn month_of_day(day: u64) -> u64 {
    let day = day + EPOCH_DAYS;
    let (era, of_era) = (day / ERA_DAYS, day % ERA_DAYS);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // Years begin in March here.
    let month = (5 * of_year + 2) / 153;
    (era * 400 + year) * 12 + month + 2
}

/// The first day of a month; days count from 1970, months from the year 0.
const fn first_day(month: u64) -> u64 {
    let (year, month) = ((month - 2) / 12, (month - 2) % 12);
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5;
    era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - EPOCH_DAYS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first days of all months from 1970 on, counted one by one.
    fn months(until_day: u64) -> std::vec::Vec<u64> {
        let (mut firsts, mut day, mut year) = (std::vec![], 0, 1970_u64);
        while day <= until_day {
            let is_leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
            for days in [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
                firsts.push(day);
                day += days;
            }
            year += 1;
        }
        firsts
    }

    #[test]
    fn every_day_of_eight_centuries_is_in_its_month() {
        let last = 800 * 366;
        let firsts = months(last + 62);
        let mut at = 0;
        for day in 0..last {
            if firsts[at + 1] == day {
                at += 1;
            }
            let window = Calendar::Month.window(day * DAY_US + day % DAY_US);
            let found = [window.start_us, window.end_us, window.next_end_us];
            let expected = [firsts[at], firsts[at + 1], firsts[at + 2]].map(|day| day * DAY_US);
            assert_eq!(found, expected, "day {day}");
        }
    }

    #[test]
    fn known_windows() {
        // 2024-02-29 23:59:59.999999 and the microsecond after it.
        let last_us = 1_709_251_199_999_999;
        let february = Calendar::Month.window(last_us);
        assert_eq!((february.start_us, february.end_us), (1_706_745_600_000_000, last_us + 1));
        let march = Calendar::Month.window(last_us + 1);
        assert_eq!((march.start_us, march.end_us), (last_us + 1, 1_711_929_600_000_000));
        assert_eq!(february.next_end_us, march.end_us);
        let day = Calendar::Day.window(last_us);
        assert_eq!((day.start_us, day.end_us), (last_us + 1 - DAY_US, last_us + 1));
    }

    #[test]
    fn a_clock_that_is_off_by_less_than_a_window_finds_the_same_end() {
        let window = Calendar::Day.window(10 * DAY_US + 5);
        assert_eq!(window.end_at(10 * DAY_US + 5), Some(11 * DAY_US));
        assert_eq!(window.end_at(10 * DAY_US - 1), Some(10 * DAY_US), "the other is ahead");
        assert_eq!(window.end_at(11 * DAY_US), Some(12 * DAY_US), "the other is behind");
        assert_eq!(window.end_at(9 * DAY_US - 1), None);
        assert_eq!(window.end_at(12 * DAY_US), None);
        assert_eq!(Window::unknown(Calendar::Day).end_at(0), None);
    }

    proptest! {
        #[test]
        fn a_time_is_in_its_window_and_windows_follow_each_other(unix_us in any::<u64>()) {
            for calendar in Calendar::ALL {
                let window = calendar.window(unix_us);
                prop_assert!(window.start_us <= unix_us && (unix_us < window.end_us || window.end_us == u64::MAX));
                prop_assert!(window.end_us - window.start_us <= calendar.longest_us());
                if window.next_end_us < u64::MAX {
                    let next = calendar.window(window.end_us);
                    prop_assert_eq!((next.start_us, next.end_us), (window.end_us, window.next_end_us));
                    prop_assert_eq!(calendar.window(window.end_us - 1), window);
                }
            }
        }
    }
}
