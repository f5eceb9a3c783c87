//! A request's cookies, read from their header.

use super::duplicates::OneOf;

/// The values of the cookies of this name (RFC 6265, 4.2.1), undecoded.
pub(crate) fn cookies<'a>(header: &'a [u8], name: &'a [u8]) -> impl Iterator<Item = OneOf<'a>> {
    header.split(|&b| b == b';').filter_map(move |pair| {
        let at = pair.iter().position(|&b| b == b'=')?;
        let (found, value) = (pair.get(..at)?, pair.get(at + 1..)?);
        (found.trim_ascii() == name).then(|| Some(value.trim_ascii().into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn a_cookie_is_found_among_others_and_taken_as_it_is() {
        let header = b"xsid=0; sid=%41+\"b=c\" ;sid=2; empty=; SID=3;bare";
        let found = |name: &'static [u8]| {
            cookies(header, name).flatten().map(alloc::borrow::Cow::into_owned).collect::<Vec<_>>()
        };
        assert_eq!(found(b"sid"), [b"%41+\"b=c\"".to_vec(), b"2".to_vec()]);
        assert_eq!(found(b"SID"), [b"3"]);
        assert_eq!(found(b"empty"), [b""]);
        assert!(found(b"bare").is_empty());
        assert_eq!(cookies(b"", b"sid").count(), 0);
    }

    proptest! {
        #[test]
        fn nothing_panics(text: Vec<u8>, name: Vec<u8>) {
            let _ = cookies(&text, &name).count();
        }
    }
}
