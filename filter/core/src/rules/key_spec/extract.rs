//! Values inside of request targets.

use alloc::borrow::Cow;
use alloc::vec::Vec;

/// The first value of the query parameter of this name, both decoded as forms are (WHATWG URL, 5.1). One that is
/// named without `=` is there, and empty.
pub(super) fn query<'a>(target: &'a [u8], name: &[u8]) -> Option<Cow<'a, [u8]>> {
    let (_, query) = split_at(target, b'?')?;
    let query = split_at(query, b'#').map_or(query, |(query, _)| query);
    query.split(|&b| b == b'&').find_map(|pair| {
        let (found, value) = split_at(pair, b'=').unwrap_or((pair, &[]));
        (!pair.is_empty() && *decoded(found) == *name).then(|| decoded(value))
    })
}

/// The segments of a path that are not empty.
pub(super) fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    path.split(|&b| b == b'/').filter(|segment| !segment.is_empty())
}

/// `text` with `+` as a space, and `%` with two hexadecimal digits as the byte they write; any other `%` is itself.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|b| matches!(b, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let (byte, behind) = match (first, behind) {
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => (first, behind),
            },
            (b'+', _) => (b' ', behind),
            _ => (first, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    Cow::Owned(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn split_at(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = text.iter().position(|&b| b == at)?;
    Some((text.get(..place)?, text.get(place + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{format, string::String, vec};

    #[test]
    fn a_query_parameter_is_found_however_it_is_written() {
        let first = |target: &'static str| query(target.as_bytes(), b"key").map(Cow::into_owned);
        for (target, value) in [
            ("/?key=a", "a"),
            ("/?x=1&key=a&key=b", "a"),
            ("/?%6bey=%61", "a"),
            ("/?key=a%20b+c", "a b c"),
            ("/?key=100%&x", "100%"),
            ("/?key=%4g%", "%4g%"),
            ("/?key=a=b#key=c", "a=b"),
            ("/?key", ""),
            ("/?key=", ""),
            ("/?key=a?b", "a?b"),
        ] {
            assert_eq!(first(target).as_deref(), Some(value.as_bytes()), "{target}");
        }
        for target in ["/", "/key=a", "/?", "/?&&", "/?KEY=a", "/?x#key=a", ""] {
            assert_eq!(first(target), None, "{target}");
        }
    }

    #[test]
    fn empty_segments_do_not_count() {
        assert_eq!(segments(b"//a/b//c/").collect::<Vec<_>>(), vec![b"a", b"b", b"c"]);
        assert_eq!(segments(b"/").count(), 0);
    }

    proptest! {
        /// Whatever is written with every byte escaped is read again.
        #[test]
        fn reads_what_was_escaped(value: Vec<u8>) {
            let escaped = value.iter().fold(String::new(), |text, b| text + &format!("%{b:02X}"));
            let target = format!("/?key={escaped}");
            prop_assert_eq!(query(target.as_bytes(), b"key").map(Cow::into_owned), Some(value));
        }

        #[test]
        fn nothing_panics(text: Vec<u8>, name: Vec<u8>) {
            let _ = (query(&text, &name), segments(&text).count());
        }
    }
}
