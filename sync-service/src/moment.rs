//! Times as people read them: RFC 3339, in UTC.

use std::time::SystemTime;

const DAY_MS: u64 = 86_400_000;
/// Days from the first of March of the year 0 to the beginning of 1970.
const DAYS_BEFORE_1970: u64 = 719_468;
/// Days in 400 years.
const ERA_DAYS: u64 = 146_097;

/// The wall clock, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A time in milliseconds since 1970, as in `2026-11-23T11:12:13.456Z`. By the arithmetic of Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms" (civil from days), where years begin in March.
pub fn text(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / DAY_MS + DAYS_BEFORE_1970, unix_ms % DAY_MS);
    let (era, day) = (days / ERA_DAYS, days % ERA_DAYS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day + 2) / 153;
    let day = day - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
    let (second, ms) = (ms / 1_000 % 60, ms % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (unix_s, expected) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_399, "2000-02-28T23:59:59.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (1_709_251_200, "2024-03-01T00:00:00.007Z"),
            (1_798_761_599, "2026-12-31T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
        ] {
            assert_eq!(text(unix_s * 1_000 + 7), expected);
        }
        assert!(text(u64::MAX).ends_with('Z'));
    }
}
