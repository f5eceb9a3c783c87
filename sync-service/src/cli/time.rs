//! Times as people read them.

/// Seconds in a minute, an hour and a day.
const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 60 * MINUTE_S;
const DAY_S: u64 = 24 * HOUR_S;

/// A time in seconds since 1970, in UTC, as in `2026-11-23 11:19:52Z`.
pub(super) fn utc(unix_s: u64) -> String {
    let (day, second) = (unix_s / DAY_S, unix_s % DAY_S);
    let (year, month, day) = date(day);
    let (hour, minute, second) = (second / HOUR_S, second % HOUR_S / MINUTE_S, second % MINUTE_S);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// The date that is so many days after 1970 began, by Hinnant's "civil from days".
fn date(days: u64) -> (u64, u64, u64) {
    // Eras of 400 years, the first of which begins on 1 March of the year 0.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months begin with March, so that the day that leap years add is the last.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (400 * era + year + next, month, day)
}

/// How long something takes, in seconds, in the largest unit of which it has two, as in `0.4 s` or `3 h`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "for people")]
pub(super) fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..10 => format!("{:.1} s", seconds.max(0.0)),
        10..120 => format!("{whole} s"),
        120..7_200 => format!("{} min", whole / MINUTE_S),
        7_200..172_800 => format!("{} h", whole / HOUR_S),
        _ => format!("{} days", whole / DAY_S),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        // By `date -u -d @N`.
        for (unix_s, expected) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (951_868_800, "2000-03-01 00:00:00Z"),
            (1_763_900_000, "2025-11-23 12:13:20Z"),
            (1_798_761_599, "2026-12-31 23:59:59Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
        ] {
            assert_eq!(utc(unix_s), expected);
        }
    }

    #[test]
    fn spans_are_short() {
        let told = [0.04, 9.96, 10.0, 119.9, 120.0, 7_199.0, 7_200.0, 172_800.0].map(span);
        assert_eq!(told, ["0.0 s", "10.0 s", "10 s", "119 s", "2 min", "119 min", "2 h", "2 days"]);
    }
}
