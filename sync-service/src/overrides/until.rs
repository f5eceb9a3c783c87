//! Durations, as operators write them.

/// Maximum duration of an override in milliseconds: 400 days.
pub const OVERRIDE_MS_MAX: u64 = 400 * DAY_MS;

const SECOND_MS: u64 = 1_000;
const DAY_MS: u64 = 86_400 * SECOND_MS;

/// Parses a positive duration such as `90s`, `15m`, `1h` or `7d` into milliseconds.
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
}
