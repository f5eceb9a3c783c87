//! Times as text: RFC 3339.

use std::time::SystemTime;

use prost_types::Timestamp;

/// End of the year 9999, the last one in RFC 3339.
const LAST_MS: u64 = 253_402_300_799_999;

/// Wall clock, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Formats a time in milliseconds since 1970, in UTC: `2026-11-23T11:12:13.456Z`. Times sort as text.
pub fn text(unix_ms: u64) -> String {
    let ms = unix_ms.min(LAST_MS);
    let seconds = i64::try_from(ms / 1_000).unwrap_or_default();
    let whole = Timestamp { seconds, nanos: 0 }.to_string();
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), ms % 1_000)
}

/// Parses a time to milliseconds since 1970; `None` if it is invalid or before 1970.
pub fn read(text: &str) -> Option<u64> {
    // The library also accepts dates, and times without a zone.
    let (_, clock) = text.split_once(['T', 't'])?;
    let has_zone = clock.contains(['Z', 'z', '+', '-']);
    let Timestamp { seconds, nanos } = has_zone.then(|| text.parse().ok())??;
    u64::try_from(i128::from(seconds) * 1_000 + i128::from(nanos) / 1_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sort_as_text() {
        let times = [1_795_432_320_999, 1_795_432_321_000, 1_795_432_321_001].map(text);
        assert!(times.is_sorted(), "{times:?}");
        assert_eq!(times[1], "2026-11-23T11:12:01.000Z");
    }

    #[test]
    fn a_time_has_a_zone() {
        assert_eq!(read("2026-11-23T14:00:00.25+02:00"), read("2026-11-23T12:00:00.250Z"));
        for text in ["", "tomorrow", "2026-11-23", "2026-11-23T12:00:00", "1969-12-31T23:59:59Z"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
