//! Durations for people.

/// Seconds per minute, hour and day.
const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 60 * MINUTE_S;
const DAY_S: u64 = 24 * HOUR_S;

/// Formats a duration in the largest unit of which it has at least two, as in `0.4 s` or `3 h`.
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
    fn spans_are_short() {
        let told = [0.04, 9.96, 10.0, 119.9, 120.0, 7_199.0, 7_200.0, 172_800.0].map(span);
        assert_eq!(told, ["0.0 s", "10.0 s", "10 s", "119 s", "2 min", "119 min", "2 h", "2 days"]);
    }
}
