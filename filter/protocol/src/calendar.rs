//! Calendar windows: the window that contains a time, and its end.
//!
//! Times are in microseconds since 1970, without leap seconds (POSIX). The calendar is the proleptic Gregorian one, by
//! the algorithms of Hinnant, "chrono-Compatible Low-Level Date Algorithms" (days from civil, civil from days).

use serde::{Deserialize, Serialize};

pub const DAY_US: u64 = 86_400 * SECOND_US;
pub const LENGTH_S_MAX: u32 = 400 * DAY_S;
/// Largest difference between local time and UTC, in minutes.
pub const EAST_MIN_MAX: i32 = 14 * 60;

const SECOND_US: u64 = 1_000_000;
const DAY_S: u32 = 86_400;
/// 1970 began on a Thursday, so the first Monday was four days later.
const MONDAY_S: u32 = 4 * DAY_S;

/// Length and phase of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Calendar {
    /// Windows of a constant length.
    Every {
        /// Length of a window in seconds, 1 to [`LENGTH_S_MAX`].
        length_s: u32,
        /// Start of one of the windows, in seconds after the start of 1970. Less than the length.
        phase_s: u32,
    },
    /// Months in local time, this number of minutes ahead of UTC (negative if behind), at most ±[`EAST_MIN_MAX`].
    Month(i32),
}

/// A window of the calendar, and the end of the next one. Times are in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub calendar: Calendar,
    pub start_us: u64,
    pub end_us: u64,
    pub next_end_us: u64,
}

impl Calendar {
    /// Days in UTC.
    pub const DAY: Self = Self::every(DAY_S, 0);
    /// Months in UTC.
    pub const MONTH: Self = Self::Month(0);
    pub const NAMED: [(&str, Self); 4] = [
        ("hour", Self::every(3_600, 0)),
        ("day", Self::DAY),
        ("week", Self::every(7 * DAY_S, MONDAY_S)),
        ("month", Self::MONTH),
    ];

    /// Windows of `length_s` seconds, one of which starts `phase_s` seconds after the start of 1970.
    pub const fn every(length_s: u32, phase_s: u32) -> Self {
        Self::Every { length_s, phase_s }
    }

    /// The same windows in local time, `minutes` ahead of UTC (negative if behind), at most ±[`EAST_MIN_MAX`].
    #[must_use]
    pub fn east(self, minutes: i32) -> Self {
        let Self::Every { length_s, phase_s } = self else { return Self::Month(minutes) };
        let phase_s = (i64::from(phase_s) - 60 * i64::from(minutes)).rem_euclid(i64::from(length_s).max(1));
        Self::every(length_s, u32::try_from(phase_s).unwrap_or(0))
    }

    /// Length and phase in seconds; `None` for months, whose length varies.
    pub const fn even(self) -> Option<(u32, u32)> {
        match self {
            Self::Every { length_s, phase_s } => Some((length_s, phase_s)),
            Self::Month(_) => None,
        }
    }

    pub fn is_valid(self) -> bool {
        match self {
            Self::Every { length_s, phase_s } => length_s <= LENGTH_S_MAX && phase_s < length_s,
            Self::Month(minutes) => minutes.unsigned_abs() <= EAST_MIN_MAX.unsigned_abs(),
        }
    }

    pub const fn longest_us(self) -> u64 {
        match self.even() {
            Some((length_s, _)) => length_s as u64 * SECOND_US,
            None => 31 * DAY_US,
        }
    }

    /// Window length to show to clients, in seconds. A month counts as thirty days.
    pub const fn nominal_s(self) -> u64 {
        match self.even() {
            Some((length_s, _)) => length_s as u64,
            None => 30 * DAY_S as u64,
        }
    }

    pub fn window(self, unix_us: u64) -> Window {
        if let Some((length_s, phase_s)) = self.even() {
            let (length, phase) = (u64::from(length_s.max(1)) * SECOND_US, u64::from(phase_s) * SECOND_US);
            let elapsed = (unix_us % length + length - phase) % length;
            let end_us = unix_us.saturating_add(length - elapsed);
            let (start_us, next_end_us) = (unix_us.saturating_sub(elapsed), end_us.saturating_add(length));
            return Window { calendar: self, start_us, end_us, next_end_us };
        }
        let east_us = if let Self::Month(minutes) = self { i64::from(minutes) * 60_000_000 } else { 0 };
        let month = month_of_day(unix_us.saturating_add_signed(east_us) / DAY_US);
        let begins = |month| first_day(month).saturating_mul(DAY_US).saturating_add_signed(-east_us);
        Window { calendar: self, start_us: begins(month), end_us: begins(month + 1), next_end_us: begins(month + 2) }
    }
}

impl Window {
    /// First boundary after `now_us`, a time of another clock; `None` if the boundary is more than a window away.
    pub fn end_at(&self, now_us: u64) -> Option<u64> {
        let end_us = [self.start_us, self.end_us, self.next_end_us].into_iter().find(|end| *end > now_us)?;
        (end_us - now_us <= self.calendar.longest_us()).then_some(end_us)
    }
}

/// Days from 1 March of the year 0 to 1 January 1970.
const EPOCH_DAYS: u64 = 719_468;
/// Days in 400 years.
const ERA_DAYS: u64 = 146_097;

/// The month that contains `day`. Months count from the year 0, days from 1970.
const fn month_of_day(day: u64) -> u64 {
    let day = day + EPOCH_DAYS;
    let (era, of_era) = (day / ERA_DAYS, day % ERA_DAYS);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // Years start in March here.
    let month = (5 * of_year + 2) / 153;
    (era * 400 + year) * 12 + month + 2
}

/// The first day of a month. Days count from 1970, months from the year 0.
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
            let window = Calendar::MONTH.window(day * DAY_US + day % DAY_US);
            let found = [window.start_us, window.end_us, window.next_end_us];
            let expected = [firsts[at], firsts[at + 1], firsts[at + 2]].map(|day| day * DAY_US);
            assert_eq!(found, expected, "day {day}");
        }
    }

    /// Days, weeks, hours and other windows of one length.
    fn even() -> impl Strategy<Value = Calendar> {
        (1..=LENGTH_S_MAX, any::<u32>()).prop_map(|(length_s, phase_s)| Calendar::every(length_s, phase_s % length_s))
    }

    fn any_calendar() -> impl Strategy<Value = Calendar> {
        let named = prop::sample::select(&Calendar::NAMED[..]).prop_map(|(_, calendar)| calendar);
        let calendar = prop_oneof![named, even()];
        (calendar, -EAST_MIN_MAX..=EAST_MIN_MAX).prop_map(|(calendar, minutes)| calendar.east(minutes))
    }

    #[test]
    fn weeks_begin_on_mondays_and_days_elsewhere_at_their_midnight() {
        // 2024-03-04 00:00 UTC was a Monday.
        let monday_us = 1_709_510_400_000_000;
        let [hour, day, week, month] = Calendar::NAMED.map(|(_, calendar)| calendar);
        assert_eq!(week.window(monday_us).start_us, monday_us);
        assert_eq!(week.window(monday_us - 1).end_us, monday_us);
        let two_hours_us = 7_200_000_000;
        for calendar in [day, week] {
            let window = calendar.east(120).window(monday_us);
            assert_eq!(window.start_us, monday_us - two_hours_us, "it began two hours earlier there");
        }
        let march_us = 1_709_251_200_000_000;
        assert_eq!(month.east(120).window(march_us).start_us, march_us - two_hours_us);
        assert_eq!(month.east(-120).window(march_us).end_us, march_us + two_hours_us);
        assert_eq!(hour.east(120), hour);
        assert_eq!(hour.east(330).window(0).end_us, 1_800_000_000, "half past");
        assert_eq!((day.east(0), month.east(0)), (Calendar::DAY, Calendar::MONTH));
    }

    #[test]
    fn a_calendar_out_of_bounds_is_invalid() {
        let every = |length_s, phase_s| Calendar::Every { length_s, phase_s };
        for wrong in [
            every(0, 0),
            every(5, 5),
            every(LENGTH_S_MAX + 1, 0),
            Calendar::Month(EAST_MIN_MAX + 1),
            Calendar::Month(i32::MIN),
        ] {
            assert!(!wrong.is_valid(), "{wrong:?}");
            wrong.window(1 << 50);
        }
    }

    proptest! {
        #[test]
        fn a_time_is_in_its_window_and_windows_follow_each_other(
            unix_us in prop_oneof![any::<u64>(), 50 * DAY_US..1 << 60], calendar in any_calendar()
        ) {
            prop_assert!(calendar.is_valid());
            let window = calendar.window(unix_us);
            let is_last = window.end_us >= u64::MAX - DAY_US;
            prop_assert!(window.start_us <= unix_us && (unix_us < window.end_us || is_last));
            prop_assert!(window.end_us - window.start_us <= calendar.longest_us());
            // In 1970 a window may have begun before time 0, and times have a maximum.
            if (400 * DAY_US..u64::MAX - 900 * DAY_US).contains(&unix_us) {
                let next = calendar.window(window.end_us);
                prop_assert_eq!((next.start_us, next.end_us), (window.end_us, window.next_end_us));
                prop_assert_eq!(calendar.window(window.end_us - 1), window);
                if let Some((length_s, phase_s)) = calendar.even() {
                    let phase_us = window.start_us % (u64::from(length_s) * 1_000_000);
                    prop_assert_eq!(phase_us, u64::from(phase_s) * 1_000_000);
                }
            }
        }
    }
}
