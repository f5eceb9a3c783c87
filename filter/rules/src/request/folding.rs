//! Folding of paths that upstreams may treat as equal.

use alloc::vec::Vec;

use super::encodings::unescaped;

/// A set of differences between paths that are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Folding(u8);

impl Folding {
    pub const NONE: Self = Self(0);
    /// The case of ASCII letters.
    pub const CASE: Self = Self(1);
    /// Slashes at the end, and doubled slashes.
    pub const SLASHES: Self = Self(2);
    /// Parameters of segments (RFC 3986, 3.3), which begin with `;`. A segment of parameters alone is dropped.
    pub const PARAMETERS: Self = Self(4);
    /// Percent-encoding, and blanks at the end of a segment. A `%2F` still differs from a `/`.
    pub const ENCODING: Self = Self(8);
    pub const ALL: Self = Self(15);
    pub const NAMES: [(&'static str, Self); 4] = [
        ("case", Self::CASE),
        ("slashes", Self::SLASHES),
        ("parameters", Self::PARAMETERS),
        ("encoding", Self::ENCODING),
    ];
    pub(crate) const COUNT: usize = 16;

    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn number(self) -> usize {
        usize::from(self.0)
    }

    #[inline(never)]
    pub fn of(self, path: &[u8]) -> Vec<u8> {
        let mut folded = Vec::new();
        self.fold(path, &mut folded);
        folded
    }

    /// Folds a head: once folded, every path that begins with `head` begins with the result.
    pub(crate) fn of_head(self, head: &str) -> Vec<u8> {
        let head = head.as_bytes();
        // The head may end within an escape.
        let end = head.len().saturating_sub(2);
        let tail = head.get(end..).unwrap_or(head);
        let cut = tail.iter().position(|&b| b == b'%').map_or(head.len(), |at| end + at);
        let mut folded = self.of(head.get(..cut).unwrap_or(head));
        while folded.pop_if(|last| *last == b'/').is_some() {}
        folded
    }

    /// Writes the folded path to `out`; true if it has segments `.` or `..`.
    #[inline(never)]
    pub(crate) fn fold(self, path: &[u8], out: &mut Vec<u8>) -> bool {
        out.clear();
        let mut has_dot_segments = false;
        for (n, segment) in path.split(|&b| b == b'/').enumerate() {
            let begin = out.len();
            if n > 0 {
                out.push(b'/');
            }
            let empty = out.len();
            let is_parameter = self.fold_segment(segment, out);
            has_dot_segments |= matches!(out.get(empty..), Some(b"." | b".."));
            if out.len() == empty && (is_parameter || self.has(Self::SLASHES)) {
                out.truncate(begin);
            }
        }
        if out.is_empty() && path.starts_with(b"/") {
            out.push(b'/');
        }
        has_dot_segments
    }

    /// Appends a folded segment; true if parameters were dropped.
    fn fold_segment(self, segment: &[u8], out: &mut Vec<u8>) -> bool {
        let begin = out.len();
        let mut rest = segment;
        let mut is_parameter = false;
        while let Some((mut byte, is_itself)) = self.next(&mut rest) {
            if byte == b';' && self.has(Self::PARAMETERS) {
                is_parameter = true;
                break;
            }
            if self.has(Self::CASE) {
                byte.make_ascii_lowercase();
            }
            match byte {
                // An escaped slash separates no segments, and an escaped star is no wildcard.
                b'/' if !is_itself => out.extend_from_slice(b"%2f"),
                b'*' if !is_itself => out.extend_from_slice(b"%2a"),
                _ => out.push(byte),
            }
        }
        if self.has(Self::ENCODING) {
            while out.len() > begin && out.pop_if(|last| *last <= b' ').is_some() {}
        }
        is_parameter
    }

    fn next(self, rest: &mut &[u8]) -> Option<(u8, bool)> {
        if self.has(Self::ENCODING) {
            return unescaped(rest);
        }
        let (first, behind) = rest.split_first()?;
        *rest = behind;
        Some((*first, true))
    }
}

/// Removes the segments `.` and `..` (RFC 3986, 5.2.4) from a path that is folded in all ways.
pub(crate) fn resolved(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in path.split(|&b| b == b'/').filter(|segment| !segment.is_empty()) {
        match segment {
            b"." => {}
            b".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let mut resolved = alloc::vec![b'/'];
    resolved.extend(kept.join(&b'/'));
    resolved
}

/// Result of one pass over the path in a request target.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathRead {
    /// Length of the path in bytes, up to the query or the end.
    pub(crate) len: usize,
    /// True if every folding leaves the path unchanged. `false` may be wrong.
    pub(crate) is_folded: bool,
}

/// A byte that some folding may change.
const ODD: u8 = 1;
/// A slash: folded away after another slash, or at the end.
const SLASH: u8 = 2;
const END: u8 = 4;
/// A dot: after a slash or beside another dot, it may belong to a segment that upstreams resolve.
const DOT: u8 = 8 | SLASH;

/// The kind of each byte value, for [`PathRead::of`].
const KINDS: [u8; 256] = {
    let mut kinds = [0; 256];
    let mut at = 0;
    while at < kinds.len() {
        #[allow(clippy::cast_possible_truncation, reason = "fewer than 256")]
        let kind = match at as u8 {
            b'?' => END,
            b'/' => SLASH,
            b'.' => DOT,
            b'A'..=b'Z' | 0..=b' ' | b'%' | b';' => ODD,
            _ => 0,
        };
        #[allow(clippy::indexing_slicing, reason = "while compiling")]
        (kinds[at] = kind);
        at += 1;
    }
    kinds
};

impl PathRead {
    #[inline(never)]
    pub(crate) fn of(target: &[u8]) -> Self {
        let (mut len, mut last, mut seen) = (0, 0, 0);
        for &byte in target {
            let kind = KINDS.get(usize::from(byte)).copied().unwrap_or(ODD);
            if kind == END {
                break;
            }
            // Set by an odd byte, and by a slash or a dot after another.
            seen |= kind & (last | ODD);
            (last, len) = (kind, len + 1);
        }
        Self { len, is_folded: seen == 0 && (last != SLASH || len == 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::String;

    fn folded(folding: Folding, path: &str) -> String {
        String::from_utf8(folding.of(path.as_bytes())).unwrap()
    }

    #[test]
    fn each_folding_ignores_its_differences() {
        use Folding as F;
        for (folding, path, expected) in [
            (F::NONE, "/A//b;c/%41 /", "/A//b;c/%41 /"),
            (F::CASE, "/Login/Ü", "/login/Ü"),
            (F::SLASHES, "//a///b/", "/a/b"),
            (F::SLASHES, "/", "/"),
            (F::SLASHES, "///", "/"),
            (F::PARAMETERS, "/login;x=1", "/login"),
            (F::PARAMETERS, "/;a/login;/b/;", "/login/b"),
            (F::PARAMETERS, "/a//b/", "/a//b/"),
            (F::PARAMETERS, "/;a", "/"),
            (F::ENCODING, "/%6cogin%20%09", "/login"),
            (F::ENCODING, "/a%2Fb/%2", "/a%2fb/%2"),
            (F::ENCODING, "/a b /%20/c", "/a b//c"),
            (F::ENCODING, "/100%25", "/100%"),
            (F::ALL, "/;a//LOGIN%20%3bx=1/", "/login"),
            (F::ALL, "*", "*"),
            (F::ALL, "", ""),
        ] {
            assert_eq!(folded(folding, path), expected, "{folding:?} {path}");
        }
    }

    proptest! {
        #[test]
        fn an_unchanged_path_folds_to_itself(path in "/?[aA/;%20 ]{0,8}") {
            let read = PathRead::of(path.as_bytes());
            prop_assert_eq!(read.len, path.len());
            prop_assert!(!read.is_folded || folded(Folding::ALL, &path) == path, "{}", path);
        }

        #[test]
        fn a_head_folds_to_a_head(path in "/[aA/;%206F1 ]{0,9}", at in 0usize..9) {
            let head = path.get(..=at.min(path.len() - 1)).unwrap();
            let (all, head) = (Folding::ALL, Folding::ALL.of_head(head));
            prop_assert!(all.of(path.as_bytes()).starts_with(&head), "{path} {head:?}");
        }
    }
}
