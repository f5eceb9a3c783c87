//! Times, as operators write and read them.

use prost_types::Timestamp;

/// The longest that an order is in force, in milliseconds: 400 days.
pub const ORDER_MS_MAX: u64 = 400 * DAY_MS;

const SECOND_MS: u64 = 1_000;
const DAY_MS: u64 = 86_400 * SECOND_MS;

/// The time that a text names, as in RFC 3339, in milliseconds since 1970.
pub fn time(text: &str) -> Option<u64> {
    // The library also reads dates, and times of no zone.
    let (_, clock) = text.split_once(['T', 't'])?;
    let has_zone = clock.contains(['Z', 'z', '+', '-']);
    let Timestamp { seconds, nanos } = has_zone.then(|| text.parse().ok())??;
    u64::try_from(i128::from(seconds) * 1_000 + i128::from(nanos) / 1_000_000).ok()
}

/// A time span such as `90s`, `15m`, `1h` or `7d`, in milliseconds: more than none.
pub fn span(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit_s = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = is_number.then(|| number.parse().ok())??;
    number.checked_mul(unit_s * SECOND_MS).filter(|span_ms| *span_ms > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moment;

    #[test]
    fn spans_are_a_number_and_a_unit() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("1h", 3_600), ("7d", 604_800)] {
            assert_eq!(span(text), Some(seconds * SECOND_MS), "{text}");
        }
        for text in
            ["", "s", "0s", "1", "1w", "+1h", "-1h", "1.5h", " 1h", "1h ", "99999999999999999999d", "1\u{e9}"]
        {
            assert_eq!(span(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_those_of_rfc_3339() {
        for (text, shown_as) in [
            ("2026-11-23T12:00:00Z", "2026-11-23T12:00:00.000Z"),
            ("2026-11-23T14:00:00.25+02:00", "2026-11-23T12:00:00.250Z"),
        ] {
            assert_eq!(moment::text(time(text).unwrap()), shown_as);
        }
        for text in ["", "tomorrow", "2026-11-23", "2026-11-23T12:00:00", "1969-12-31T23:59:59Z"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
