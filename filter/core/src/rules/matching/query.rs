//! Query parameters, as forms write them (WHATWG URL, application/x-www-form-urlencoded).

use alloc::borrow::Cow;
use alloc::vec::Vec;

/// How much of a query is looked at, in bytes; a parameter that goes beyond it is not there.
pub const QUERY_BYTES_MAX: usize = 8_192;

/// The value of the first parameter of this name in a request target, decoded.
pub(crate) fn parameter<'a>(target: &'a [u8], name: &str) -> Option<Cow<'a, [u8]>> {
    let at = target.iter().position(|&b| b == b'?')?;
    let query = target.get(at + 1..)?;
    // A fragment is no part of the query.
    let query = query.split(|&b| b == b'#').next().unwrap_or(query);
    let is_cut = query.len() > QUERY_BYTES_MAX;
    let mut pairs = query.get(..QUERY_BYTES_MAX).unwrap_or(query).split(|&b| b == b'&').peekable();
    while let Some(pair) = pairs.next() {
        if is_cut && pairs.peek().is_none() {
            return None;
        }
        let mut halves = pair.splitn(2, |&b| b == b'=');
        let (key, value) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
        if !pair.is_empty() && Decoded(key).eq(name.bytes()) {
            let is_plain = !value.iter().any(|b| matches!(b, b'%' | b'+'));
            return Some(if is_plain {
                Cow::Borrowed(value)
            } else {
                Decoded(value).collect::<Vec<_>>().into()
            });
        }
    }
    None
}

/// Bytes as they were before encoding; a `%` that encodes nothing stands for itself.
struct Decoded<'a>(&'a [u8]);

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        if let [b'%', high, low, rest @ ..] = self.0
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            self.0 = rest;
            return Some(high << 4 | low);
        }
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(if *first == b'+' { b' ' } else { *first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::String;

    fn value(target: &str, name: &str) -> Option<String> {
        parameter(target.as_bytes(), name).map(|value| String::from_utf8_lossy(&value).into_owned())
    }

    #[test]
    fn the_first_of_a_name_counts_decoded() {
        for (target, expected) in [
            ("/?a=1", Some("1")),
            ("/?a=1&a=2", Some("1")),
            ("/?b=2&a=1=3", Some("1=3")),
            ("/?a", Some("")),
            ("/?a=", Some("")),
            ("/?%61=x+y%2Fz", Some("x y/z")),
            ("/?a=%zz%4", Some("%zz%4")),
            ("/?a=%2B", Some("+")),
            ("/?b=?a=1", None),
            ("/?aa=1&=2&&", None),
            ("/a=1", None),
            ("/?b#&a=1", None),
            ("", None),
        ] {
            assert_eq!(value(target, "a").as_deref(), expected, "{target}");
        }
    }

    #[test]
    fn what_goes_beyond_the_limit_is_not_there() {
        let padded = |n: usize| format!("/?{}&a=1", "x".repeat(n));
        assert_eq!(value(&padded(QUERY_BYTES_MAX - 4), "a").as_deref(), Some("1"));
        assert_eq!(value(&padded(QUERY_BYTES_MAX - 3), "a"), None);
        assert_eq!(value(&format!("/?a=1&{}", "x".repeat(QUERY_BYTES_MAX)), "a").as_deref(), Some("1"));
    }
}
