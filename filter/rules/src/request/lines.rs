//! The lines of a header that a request may have several times.

use alloc::vec::Vec;

use super::attribute::LINE_BREAK;
use super::encodings::normalise_credentials;

/// The lines of a header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    /// All lines, joined by commas.
    joined: Vec<u8>,
    /// Positions of these commas.
    breaks: Vec<usize>,
    /// True if the host may have joined several lines to one.
    may_be_joined: bool,
}

impl Lines {
    /// The buffer for one line, or for several with a [`LINE_BREAK`] between them. [`Lines::read`] has to be
    /// called next.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        self.breaks.clear();
        self.may_be_joined = false;
        &mut self.joined
    }

    /// Splits the buffer into lines, and normalises each if they are credentials. A singular header should
    /// have one line.
    pub(super) fn read(&mut self, are_credentials: bool, is_singular: bool) {
        let has_breaks = self.joined.contains(&LINE_BREAK);
        self.may_be_joined = is_singular && !has_breaks && parts(&self.joined).nth(1).is_some();
        if has_breaks || self.may_be_joined && are_credentials {
            self.tell_apart(are_credentials);
        } else if are_credentials {
            normalise_credentials(&mut self.joined);
        }
    }

    #[inline(never)]
    fn tell_apart(&mut self, are_credentials: bool) {
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

    /// True if there is more than one line.
    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        !self.breaks.is_empty()
    }

    /// True if there is one line that the host may have joined from several by commas.
    #[inline]
    pub(crate) fn may_be_joined(&self) -> bool {
        self.may_be_joined
    }

    /// The lines that the host may have joined.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        parts(&self.joined)
    }

    /// The lines.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = core::iter::once(0).chain(self.breaks.iter().map(|at| at + 1));
        let ends = self.breaks.iter().copied().chain([self.joined.len()]);
        begins.zip(ends).map(|(begin, end)| self.joined.get(begin..end).unwrap_or_default())
    }
}

/// Splits a text at commas without a blank behind them, as hosts write them between joined lines.
fn parts(joined: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(joined);
    core::iter::from_fn(move || {
        let all = rest?;
        let joint = all.windows(2).position(|two| matches!(two, [b',', behind] if *behind != b' '));
        rest = joint.and_then(|at| all.get(at + 1..));
        all.get(..joint.unwrap_or(all.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn read(text: &str, are_credentials: bool) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut lines = Lines::default();
        for text in ["x\ny", text] {
            *lines.room() = text.into();
            lines.read(are_credentials, false);
        }
        (lines.joined().to_vec(), lines.iter().map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn lines_are_told_apart_from_commas() {
        let lines = |lines: &[&str]| lines.iter().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>();
        for (text, joined, expected) in [
            ("", "", &[""][..]),
            ("a,b", "a,b", &["a,b"]),
            ("a,b\nc", "a,b,c", &["a,b", "c"]),
            ("\n", ",", &["", ""]),
        ] {
            assert_eq!(read(text, false), (joined.into(), lines(expected)), "{text:?}");
        }
        let expected = (b"bearer a,basic B".to_vec(), lines(&["bearer a", "basic B"]));
        assert_eq!(read("BEARER  a\nBasic B ", true), expected);
        assert_eq!(read("BEARER  a", true), (b"bearer a".to_vec(), vec![b"bearer a".to_vec()]));
    }
    #[test]
    fn a_line_that_a_host_may_have_joined_has_parts() {
        for (text, expected) in [
            ("curl/8", None),
            ("Mozilla/5.0 (KHTML, like Gecko)", None),
            ("good,evil", Some(&["good", "evil"][..])),
            ("a, b,c,d", Some(&["a, b", "c", "d"])),
        ] {
            let mut lines = Lines::default();
            *lines.room() = text.into();
            lines.read(false, true);
            let parts: Vec<_> = lines.parts().collect();
            let expected = expected.map(|parts| parts.iter().map(|part| part.as_bytes()).collect());
            assert_eq!(lines.may_be_joined().then_some(parts), expected, "{text}");
        }
    }
}
