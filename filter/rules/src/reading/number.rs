//! Whole numbers in all forms that hosts and templates write.

use serde_json::Value;

/// The value of a whole JSON number in any notation. A Struct's numbers are doubles, a host may write 100 as
/// `100.0` or `1e2`, and templates write numbers as text.
pub(super) fn whole_number(value: &Value) -> Option<u64> {
    if let Some(digits) = value.as_str() {
        return digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?;
    }
    if let Some(n) = value.as_u64() {
        return Some(n);
    }
    let n = value.as_f64()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "compared right after")]
    let whole = n as u64;
    #[allow(
        clippy::float_cmp,
        clippy::cast_precision_loss,
        reason = "whole exactly when the cast changed nothing"
    )]
    let is_whole = whole as f64 == n && whole < 1 << 53;
    is_whole.then_some(whole)
}
