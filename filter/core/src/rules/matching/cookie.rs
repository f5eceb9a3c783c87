//! Cookies of a request, as their header has them.

/// The value of the first cookie of this name (RFC 6265, 4.2.1), as it is.
pub(crate) fn cookie<'a>(header: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    header.split(|&b| b == b';').find_map(|pair| {
        let at = pair.iter().position(|&b| b == b'=')?;
        let (found, value) = (pair.get(..at)?, pair.get(at + 1..)?);
        (found.trim_ascii() == name).then(|| value.trim_ascii())
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
        assert_eq!(cookie(header, b"sid"), Some(&b"%41+\"b=c\""[..]));
        assert_eq!(cookie(header, b"SID"), Some(&b"3"[..]));
        assert_eq!(cookie(header, b"empty"), Some(&b""[..]));
        assert_eq!(cookie(header, b"bare"), None);
        assert_eq!(cookie(b"", b"sid"), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(text: Vec<u8>, name: Vec<u8>) {
            let _ = cookie(&text, &name);
        }
    }
}
