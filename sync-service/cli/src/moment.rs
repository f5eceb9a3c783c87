//! Times as text: RFC 3339.

use std::time::SystemTime;

use prost_types::Timestamp;

/// End of the year 9999: RFC 3339 has no later ones.
const LAST_MS: u64 = 253_402_300_799_999;

/// Wall clock, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Formats a time in milliseconds since 1970, in UTC: `2026-11-23T11:12:13.456Z`, or `2026-11-23T11:12:13Z` for
/// a whole second.
pub fn text(unix_ms: u64) -> String {
    let ms = unix_ms.min(LAST_MS);
    let seconds = i64::try_from(ms / 1_000).unwrap_or_default();
    let nanos = i32::try_from(ms % 1_000).unwrap_or_default() * 1_000_000;
    Timestamp { seconds, nanos }.to_string()
}

/// Parses a time to milliseconds since 1970. None if it is not a time, or before 1970.
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
    fn a_time_has_a_zone() {
        assert_eq!(read("2026-11-23T14:00:00.25+02:00"), read("2026-11-23T12:00:00.250Z"));
        for text in ["", "tomorrow", "2026-11-23", "2026-11-23T12:00:00", "1969-12-31T23:59:59Z"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
