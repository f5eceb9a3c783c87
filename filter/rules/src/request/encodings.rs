//! Encodings of values in requests: cookies, query parameters and credentials.

use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Maximum length of a query that conditions read, in bytes. Parameters beyond it are unsure.
pub const QUERY_BYTES_MAX: usize = 8_192;

/// One of several values. `None` stands for further values that were not read.
pub(crate) type OneOf<'a> = Option<Cow<'a, [u8]>>;

/// The values of the cookies of this name (RFC 6265, 4.2.1), undecoded.
pub(crate) fn cookies<'a>(header: &'a [u8], name: &'a [u8]) -> impl Iterator<Item = OneOf<'a>> {
    header.split(|&b| b == b';').filter_map(move |pair| {
        let at = pair.iter().position(|&b| b == b'=')?;
        let (found, value) = (pair.get(..at)?, pair.get(at + 1..)?);
        (found.trim_ascii() == name).then(|| Some(value.trim_ascii().into()))
    })
}

/// The decoded values of the parameters of this name in a request target (WHATWG URL,
/// application/x-www-form-urlencoded). A query longer than `bytes_max` is
/// cut, and a final `None` stands for the parameters that were not read.
pub(crate) fn parameters<'a>(
    target: &'a [u8],
    name: &'a str,
    bytes_max: usize,
) -> impl Iterator<Item = OneOf<'a>> {
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

/// Decodes a value of a form.
fn form_value(text: &[u8]) -> Cow<'_, [u8]> {
    if text.iter().any(|b| matches!(b, b'%' | b'+')) {
        decoded(text).collect::<Vec<_>>().into()
    } else {
        Cow::Borrowed(text)
    }
}

/// Decodes form-encoded bytes.
fn decoded(text: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut rest = text;
    core::iter::from_fn(move || {
        let (byte, is_itself) = unescaped(&mut rest)?;
        Some(if is_itself && byte == b'+' { b' ' } else { byte })
    })
}

/// Takes the next byte off `text`, with true if it was written literally. `%` and two hexadecimal digits
/// stand for a byte (RFC 3986, 2.1), any other `%` for itself.
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

/// Normalises credentials: the scheme in lower case, one blank behind it, and no blanks around (RFC 9110,
/// 11.1 and 11.4). A value without a scheme only loses the blanks around it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;
    use std::string::String;

    fn values(target: &str, name: &str) -> Vec<Option<String>> {
        let text = |value: Cow<'_, [u8]>| String::from_utf8_lossy(&value).into_owned();
        parameters(target.as_bytes(), name, QUERY_BYTES_MAX).map(|value| value.map(text)).collect()
    }

    #[test]
    fn a_cookie_is_found_among_others_and_taken_as_it_is() {
        let header = b"xsid=0; sid=%41+\"b=c\" ;sid=2; empty=; SID=3;bare";
        let found =
            |name: &'static [u8]| cookies(header, name).flatten().map(Cow::into_owned).collect::<Vec<_>>();
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

    #[test]
    fn a_query_beyond_the_limit_is_undecided() {
        let padded = |n: usize| format!("/?{}&a=1", "x".repeat(n));
        let one = Some(String::from("1"));
        assert_eq!(values(&padded(QUERY_BYTES_MAX - 4), "a"), std::slice::from_ref(&one));
        assert_eq!(values(&padded(QUERY_BYTES_MAX - 3), "a"), [None]);
        assert_eq!(values(&format!("/?a=1&{}", "x".repeat(QUERY_BYTES_MAX)), "a"), [one, None]);
        assert_eq!(values(&format!("/?{}", "a".repeat(QUERY_BYTES_MAX + 1)), "a"), [None]);
    }

    proptest! {
        /// A value that is written with every byte escaped is read as it was.
        #[test]
        fn reads_what_was_escaped(value: Vec<u8>) {
            let escaped = value.iter().fold(String::new(), |text, b| text + &format!("%{b:02X}"));
            let target = format!("/?key={escaped}");
            let found: Vec<_> = parameters(target.as_bytes(), "key", usize::MAX).collect();
            prop_assert_eq!(found, [Some(value.into())]);
        }

        #[test]
        fn nothing_panics(text: Vec<u8>, name: String, bytes_max in 0usize..20) {
            let _ = parameters(&text, &name, bytes_max).count();
            let _ = cookies(&text, name.as_bytes()).count();
        }
    }
}
