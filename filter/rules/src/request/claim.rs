//! Values of claims in the form in which Envoy returns them.
//!
//! Envoy returns the bytes of a metadata value without its type: a text as it is, a number as eight bytes
//! (IEEE 754, little-endian), true and false as one byte, a list or an object in an internal format
//! (`serializeValue` in Envoy's `source/extensions/common/wasm/context.cc`).

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::Number;

/// Largest number up to which doubles represent every whole number.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// The value as in the token: a text as it is, `3`, `0.5`, `true`. Lists and objects keep the host's format.
///
/// Eight bytes that are text without control characters count as text. The bytes of a whole number below 2^44
/// never are, since the lowest byte is zero.
pub fn as_text(value: Vec<u8>) -> Vec<u8> {
    match value.as_slice() {
        [0] => b"false".to_vec(),
        [1] => b"true".to_vec(),
        bytes => match <[u8; 8]>::try_from(bytes) {
            Ok(eight) if !is_text(bytes) => {
                number(f64::from_le_bytes(eight)).map_or(value, String::into_bytes)
            }
            _ => value,
        },
    }
}

fn is_text(bytes: &[u8]) -> bool {
    core::str::from_utf8(bytes).is_ok_and(|text| !text.contains(char::is_control))
}

/// The number in JSON notation; `None` if JSON has none.
fn number(number: f64) -> Option<String> {
    if !number.is_finite() {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, reason = "compared right after")]
    let whole = number as i64;
    #[allow(
        clippy::cast_precision_loss,
        clippy::float_cmp,
        reason = "whole exactly when the cast changed nothing"
    )]
    let is_whole = whole as f64 == number && number.abs() <= WHOLE_MAX;
    if is_whole { Some(whole.to_string()) } else { Number::from_f64(number).map(|number| number.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(value: &[u8]) -> String {
        String::from_utf8(as_text(value.to_vec())).unwrap()
    }

    #[test]
    fn a_text_stays_a_text() {
        for text in ["", "a", "0", "alice", "12345678", "account7", "gr\u{fc}n-01", "ab\0cd", "123456789"] {
            assert_eq!(told(text.as_bytes()), text);
        }
    }

    #[test]
    fn numbers_and_truths_are_written_as_in_json() {
        let of = |number: f64| told(&number.to_le_bytes());
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (3.0, "3"),
            (-17.0, "-17"),
            (0.5, "0.5"),
            (1_700_000_000.0, "1700000000"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (1e300, "1e+300"),
        ] {
            assert_eq!(of(number), text);
        }
        assert_eq!([told(&[0]), told(&[1]), told(&[2])], ["false", "true", "\u{2}"]);
        let infinite = f64::INFINITY.to_le_bytes().to_vec();
        assert_eq!(as_text(infinite.clone()), infinite);
    }

    proptest! {
        #[test]
        fn every_whole_number_below_the_limit_is_told(number in -(1i64 << 44) + 1..1 << 44) {
            #[allow(clippy::cast_precision_loss, reason = "it is below 2^53")]
            let bytes = (number as f64).to_le_bytes();
            prop_assert_eq!(told(&bytes), number.to_string());
        }

        #[test]
        fn any_bytes_give_bytes(value: Vec<u8>) {
            let told = as_text(value.clone());
            prop_assert!(told == value || [1, 8].contains(&value.len()));
        }
    }
}
