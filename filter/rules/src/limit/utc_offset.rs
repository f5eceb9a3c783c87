//! The field `utc_offset`: the time zone in which the windows of a quota begin.

use crate::reading::Fields;
use weir_protocol::calendar::EAST_MIN_MAX;

/// Reads the offset: the minutes that local time is ahead of UTC. Only a quota has one.
pub(super) fn east(fields: &mut Fields<'_>, is_quota: bool) -> i32 {
    let Some(item) = fields.take("utc_offset") else { return 0 };
    if !is_quota {
        item.record("expected only with algorithm: quota");
        return 0;
    }
    let minutes = item.value().as_str().and_then(minutes);
    if minutes.is_none() {
        item.record_unexpected("a time zone's offset from UTC, as in \"+02:00\"");
    }
    minutes.unwrap_or(0)
}

fn minutes(text: &str) -> Option<i32> {
    let [sign @ (b'+' | b'-'), digits @ .., b':', tens, ones] = text.as_bytes() else { return None };
    let number = |tens: &u8, ones: &u8| {
        let digit = |byte: &u8| byte.is_ascii_digit().then_some(i32::from(byte & 15));
        Some(10 * digit(tens)? + digit(ones)?)
    };
    let [hour_tens, hour_ones] = digits else { return None };
    let minutes = number(tens, ones).filter(|minutes| *minutes < 60)? + 60 * number(hour_tens, hour_ones)?;
    (minutes <= EAST_MIN_MAX).then_some(if *sign == b'-' { -minutes } else { minutes })
}
