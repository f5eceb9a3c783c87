//! Encodings of values in requests: lines of headers, cookies, query parameters, credentials and claims.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::Number;

use super::LINE_BREAK;

/// Longest query that conditions read, in bytes. Tests on later parameters are unsure.
pub const QUERY_BYTES_MAX: usize = 8_192;

/// One of several values. `None` stands for further values that were not read.
pub(crate) type OneOf<'a> = Option<Cow<'a, [u8]>>;

/// Values of the cookies of this name (RFC 6265, 4.2.1), undecoded.
pub(crate) fn cookies<'a>(header: &'a [u8], name: &'a [u8]) -> impl Iterator<Item = OneOf<'a>> {
    header.split(|&b| b == b';').filter_map(move |pair| {
        let at = pair.iter().position(|&b| b == b'=')?;
        let (found, value) = (pair.get(..at)?, pair.get(at + 1..)?);
        (found.trim_ascii() == name).then(|| Some(value.trim_ascii().into()))
    })
}

/// Decoded values of the parameters of this name in a request target (WHATWG URL, application/x-www-form-urlencoded).
/// If the query is longer than `bytes_max`, a final `None` stands for the rest.
pub(crate) fn parameters<'a>(target: &'a [u8], name: &'a str, bytes_max: usize) -> impl Iterator<Item = OneOf<'a>> {
    let at = target.iter().position(|&b| b == b'?').map_or(target.len(), |at| at + 1);
    let query = target.get(at..).unwrap_or_default();
    // A fragment is not part of the query.
    let query = query.split(|&b| b == b'#').next().unwrap_or(query);
    let seen = query.get(..bytes_max).map(|seen| {
        let whole = seen.iter().rposition(|&b| b == b'&').unwrap_or(0);
        seen.get(..whole).unwrap_or_default()
    });
    let cut = seen.filter(|_| query.len() > bytes_max);
    let pairs = cut.unwrap_or(query).split(|&b| b == b'&');
    let values = pairs.filter_map(move |pair| {
        let mut halves = pair.splitn(2, |&b| b == b'=');
        let (key, value) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
        (!pair.is_empty() && decoded(key).eq(name.bytes())).then(|| Some(form_value(value)))
    });
    values.chain(cut.map(|_| None))
}

fn form_value(text: &[u8]) -> Cow<'_, [u8]> {
    if text.iter().any(|b| matches!(b, b'%' | b'+')) {
        decoded(text).collect::<Vec<_>>().into()
    } else {
        Cow::Borrowed(text)
    }
}

fn decoded(text: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut rest = text;
    core::iter::from_fn(move || {
        let (byte, is_itself) = unescaped(&mut rest)?;
        Some(if is_itself && byte == b'+' { b' ' } else { byte })
    })
}

/// Removes and decodes the next byte of `text` (RFC 3986, 2.1); the bool is true if it was written literally.
pub(super) fn unescaped(text: &mut &[u8]) -> Option<(u8, bool)> {
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if let [b'%', high, low, rest @ ..] = *text
        && let (Some(high), Some(low)) = (digit(*high), digit(*low))
    {
        *text = rest;
        return Some((high << 4 | low, false));
    }
    let (first, rest) = text.split_first()?;
    *text = rest;
    Some((*first, true))
}

/// Normalises credentials: the scheme in lower case, one blank after it, no blanks around (RFC 9110, 11.1 and 11.4). A
/// value without a scheme is only trimmed.
#[inline(never)]
pub(crate) fn normalise_credentials(value: &mut Vec<u8>) {
    let is_blank = |b: &u8| matches!(b, b' ' | b'\t');
    let has_scheme = value.trim_ascii().iter().any(is_blank);
    value.truncate(value.trim_ascii_end().len());
    let (mut is_in_scheme, mut after_blank) = (has_scheme, true);
    value.retain_mut(|byte| {
        let is_kept = !(after_blank && is_blank(byte));
        // Blanks after the first byte of the rest are part of it.
        after_blank &= !is_kept;
        if is_in_scheme && is_kept {
            is_in_scheme = !is_blank(byte);
            after_blank = !is_in_scheme;
            *byte = if is_in_scheme { byte.to_ascii_lowercase() } else { b' ' };
        }
        is_kept
    });
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    joined: Vec<u8>,
    /// Positions of these commas.
    breaks: Vec<usize>,
    /// True if the host may have joined several lines to one.
    may_be_joined: bool,
}

impl Lines {
    /// The buffer for lines with a [`LINE_BREAK`] between them. The caller must call [`Lines::read`] next.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        self.breaks.clear();
        self.may_be_joined = false;
        &mut self.joined
    }

    /// Splits the buffer into lines, and normalises credentials. A singular header should have one line.
    pub(super) fn read(&mut self, are_credentials: bool, is_singular: bool) {
        let has_breaks = self.joined.contains(&LINE_BREAK);
        self.may_be_joined = is_singular && !has_breaks && parts(&self.joined).nth(1).is_some();
        if has_breaks || self.may_be_joined && are_credentials {
            self.separate(are_credentials);
        } else if are_credentials {
            normalise_credentials(&mut self.joined);
        }
    }

    #[inline(never)]
    fn separate(&mut self, are_credentials: bool) {
        let text = core::mem::take(&mut self.joined);
        for (number, line) in text.split(|&b| b == LINE_BREAK).enumerate() {
            if number > 0 {
                self.breaks.push(self.joined.len());
                self.joined.push(b',');
            }
            for (number, part) in parts(line).enumerate() {
                if number > 0 {
                    self.joined.push(b',');
                }
                let mut part = part.to_vec();
                if are_credentials {
                    normalise_credentials(&mut part);
                }
                self.joined.append(&mut part);
            }
        }
    }

    /// All lines as one text with commas (RFC 9110, 5.3).
    #[inline]
    pub(crate) fn joined(&self) -> &[u8] {
        &self.joined
    }

    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        !self.breaks.is_empty()
    }

    /// True if the host may have joined the only line from several by commas.
    #[inline]
    pub(crate) fn may_be_joined(&self) -> bool {
        self.may_be_joined
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        parts(&self.joined)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = core::iter::once(0).chain(self.breaks.iter().map(|at| at + 1));
        let ends = self.breaks.iter().copied().chain([self.joined.len()]);
        begins.zip(ends).map(|(begin, end)| self.joined.get(begin..end).unwrap_or_default())
    }
}

/// Splits a text at commas without a blank after them, as hosts write them between joined lines.
fn parts(joined: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(joined);
    core::iter::from_fn(move || {
        let all = rest?;
        let joint = all.windows(2).position(|two| matches!(two, [b',', behind] if *behind != b' '));
        rest = joint.and_then(|at| all.get(at + 1..));
        all.get(..joint.unwrap_or(all.len()))
    })
}

/// Largest number up to which doubles represent every whole number.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Value of a claim as in the token: a text unchanged, `3`, `0.5`, `true`. Lists and objects keep the host's format.
///
/// Envoy returns the bytes of a metadata value without its type: a text unchanged, a number as eight bytes (IEEE 754,
/// little-endian), true and false as one byte (`serializeValue` in its `source/extensions/common/wasm/context.cc`).
///
/// Eight bytes that are text without control characters count as text. The bytes of a whole number below 2^44
/// never are, since the lowest byte is zero.
#[inline(never)]
pub fn claim_as_text(value: Vec<u8>) -> Vec<u8> {
    match value.as_slice() {
        [0] => b"false".to_vec(),
        [1] => b"true".to_vec(),
        bytes => match <[u8; 8]>::try_from(bytes) {
            Ok(eight) if !is_text(bytes) => number(f64::from_le_bytes(eight)).map_or(value, String::into_bytes),
            _ => value,
        },
    }
}

fn is_text(bytes: &[u8]) -> bool {
    core::str::from_utf8(bytes).is_ok_and(|text| !text.contains(char::is_control))
}

fn number(number: f64) -> Option<String> {
    if !number.is_finite() {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, reason = "compared right after")]
    let whole = number as i64;
    #[allow(clippy::cast_precision_loss, clippy::float_cmp, reason = "whole exactly when the cast changed nothing")]
    let is_whole = whole as f64 == number && number.abs() <= WHOLE_MAX;
    if is_whole { Some(whole.to_string()) } else { Number::from_f64(number).map(|number| number.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(target: &str, name: &str) -> Vec<Option<String>> {
        let text = |value: Cow<'_, [u8]>| String::from_utf8_lossy(&value).into_owned();
        parameters(target.as_bytes(), name, QUERY_BYTES_MAX).map(|value| value.map(text)).collect()
    }

    #[test]
    fn a_cookie_is_found_among_others_and_left_unchanged() {
        let header = b"xsid=0; sid=%41+\"b=c\" ;sid=2; empty=; SID=3;bare";
        let found = |name: &'static [u8]| cookies(header, name).flatten().map(Cow::into_owned).collect::<Vec<_>>();
        assert_eq!(found(b"sid"), [b"%41+\"b=c\"".to_vec(), b"2".to_vec()]);
        assert_eq!(found(b"SID"), [b"3"]);
        assert_eq!(found(b"empty"), [b""]);
        assert!(found(b"bare").is_empty());
        assert_eq!(cookies(b"", b"sid").count(), 0);
    }

    #[test]
    fn credentials_have_one_form() {
        for (value, expected) in [
            ("Bearer aB", "bearer aB"),
            ("  BEARER \t aB c ", "bearer aB c"),
            ("bearer\taB", "bearer aB"),
            ("aB", "aB"),
            (" aB\t", "aB"),
            ("", ""),
            ("  ", ""),
        ] {
            let mut bytes = value.as_bytes().to_vec();
            normalise_credentials(&mut bytes);
            assert_eq!(bytes, expected.as_bytes(), "{value:?}");
        }
    }

    #[test]
    fn each_of_a_name_is_found_decoded() {
        for (target, expected) in [
            ("/?a=1", &["1"][..]),
            ("/?a=1&a=2", &["1", "2"]),
            ("/?b=2&a=1=3", &["1=3"]),
            ("/?a", &[""]),
            ("/?a=", &[""]),
            ("/?%61=x+y%2Fz", &["x y/z"]),
            ("/?a=%zz%4", &["%zz%4"]),
            ("/?a=%2B", &["+"]),
            ("/?a=1#a=2", &["1"]),
            ("/?a=?b", &["?b"]),
            ("/?b=?a=1", &[]),
            ("/?aa=1&=2&&A=1", &[]),
            ("/a=1", &[]),
            ("/?b#&a=1", &[]),
            ("", &[]),
        ] {
            let expected: Vec<_> = expected.iter().map(|value| Some((*value).into())).collect();
            assert_eq!(values(target, "a"), expected, "{target}");
        }
    }

    fn as_text(value: &[u8]) -> String {
        String::from_utf8(claim_as_text(value.to_vec())).unwrap()
    }

    #[test]
    fn a_text_stays_a_text() {
        for text in ["", "a", "0", "alice", "12345678", "account7", "gr\u{fc}n-01", "ab\0cd", "123456789"] {
            assert_eq!(as_text(text.as_bytes()), text);
        }
    }

    #[test]
    fn numbers_and_truths_are_written_as_in_json() {
        let of = |number: f64| as_text(&number.to_le_bytes());
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
        assert_eq!([as_text(&[0]), as_text(&[1]), as_text(&[2])], ["false", "true", "\u{2}"]);
        let infinite = f64::INFINITY.to_le_bytes().to_vec();
        assert_eq!(claim_as_text(infinite.clone()), infinite);
    }

    proptest! {
        #[test]
        fn every_whole_number_below_the_limit_is_exact(number in -(1i64 << 44) + 1..1 << 44) {
            #[allow(clippy::cast_precision_loss, reason = "it is below 2^53")]
            let bytes = (number as f64).to_le_bytes();
            prop_assert_eq!(as_text(&bytes), number.to_string());
        }
    }
}
