//! Globs on paths: `*` matches bytes within a segment, `**` any bytes, and `/**/` also a single `/`.

use alloc::string::String;
use alloc::vec::Vec;

use super::holds::Holds;

pub const GLOB_BYTES_MAX: usize = 255;
/// Longest path that globs decide, in bytes. For longer paths the result is `No` or `Unsure`.
pub const GLOB_PATH_BYTES_MAX: usize = 2_048;

const WORDS: usize = 4;
// One place before each token, and one after the last.
const _: () = assert!(GLOB_BYTES_MAX < WORDS * 64);

/// A compiled glob. Matching reads the path once and keeps the set of places reached in the glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    head: String,
    tokens: Vec<Token>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `*`.
    Within,
    /// `**`.
    Across,
    /// `**/` after a `/`: nothing, or anything that ends in `/`.
    Segments,
}

impl Glob {
    pub fn new(text: &str) -> Option<Self> {
        if text.len() > GLOB_BYTES_MAX {
            return None;
        }
        let (head, mut rest) = text.split_at_checked(text.find('*').unwrap_or(text.len()))?;
        let mut tokens = Vec::with_capacity(rest.len());
        let mut is_behind_slash = head.ends_with('/');
        while !rest.is_empty() {
            let (token, after) = if let Some(after) = rest.strip_prefix("**/").filter(|_| is_behind_slash) {
                (Token::Segments, after)
            } else if rest.starts_with("**") {
                // `***` means the same as `**`.
                (Token::Across, rest.trim_start_matches('*'))
            } else if let Some(after) = rest.strip_prefix('*') {
                (Token::Within, after)
            } else {
                let (literal, after) = rest.split_at_checked(rest.find('*').unwrap_or(rest.len()))?;
                tokens.extend(literal.bytes().map(Token::Byte));
                is_behind_slash = literal.ends_with('/');
                rest = after;
                continue;
            };
            tokens.push(token);
            is_behind_slash = token == Token::Segments;
            rest = after;
        }
        Some(Self { head: head.into(), tokens })
    }

    /// Matches the whole path, with a slash appended if `has_slash`.
    pub fn holds(&self, path: &[u8], has_slash: bool) -> Holds {
        let (head, end) = (self.head.as_bytes(), if has_slash { &b"/"[..] } else { &[] });
        let (rest, end) = match path.strip_prefix(head) {
            Some(rest) => (rest, end),
            None if has_slash && head.strip_suffix(b"/") == Some(path) => (&[][..], &[][..]),
            None => return Holds::No,
        };
        if path.len() > GLOB_PATH_BYTES_MAX {
            return Holds::Unsure;
        }
        let mut places = Places::default();
        self.enter(&mut places, 0);
        for &byte in rest.iter().chain(end) {
            if places.is_empty() {
                return Holds::No;
            }
            let mut next = Places::default();
            places.each(|place| match self.tokens.get(place) {
                Some(Token::Byte(b)) if *b == byte => self.enter(&mut next, place + 1),
                Some(Token::Within) if byte != b'/' => self.enter(&mut next, place),
                Some(Token::Across) => self.enter(&mut next, place),
                Some(Token::Segments) => {
                    next.add(place);
                    if byte == b'/' {
                        self.enter(&mut next, place + 1);
                    }
                }
                _ => {}
            });
            places = next;
        }
        Holds::of(places.has(self.tokens.len()))
    }

    /// Adds a place, and the places reached from it by wildcards that match nothing.
    fn enter(&self, places: &mut Places, mut place: usize) {
        places.add(place);
        while matches!(self.tokens.get(place), Some(Token::Within | Token::Across | Token::Segments)) {
            place += 1;
            places.add(place);
        }
    }
}

/// A set of places in a glob: before each token, and after the last.
#[derive(Clone, Copy, Default)]
struct Places([u64; WORDS]);

impl Places {
    fn add(&mut self, place: usize) {
        if let Some(word) = self.0.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
    }

    fn has(&self, place: usize) -> bool {
        self.0.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    fn each(&self, mut f: impl FnMut(usize)) {
        for (base, word) in (0..).step_by(64).zip(self.0) {
            let mut left = word;
            while left != 0 {
                f(base + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holds(glob: &str, path: &str) -> bool {
        Glob::new(glob).unwrap().holds(path.as_bytes(), false) == Holds::Yes
    }

    /// Matches by the definition of globs, without compiling.
    pub(in crate::matching) fn naive(glob: &[u8], path: &[u8], is_behind_slash: bool) -> bool {
        if let Some(rest) = glob.strip_prefix(b"**/").filter(|_| is_behind_slash) {
            return (0..=path.len()).any(|n| (n == 0 || path[n - 1] == b'/') && naive(rest, &path[n..], true));
        }
        match glob {
            [] => path.is_empty(),
            [b'*', b'*', rest @ ..] => {
                let stars = rest.iter().take_while(|b| **b == b'*').count();
                (0..=path.len()).any(|n| naive(&rest[stars..], &path[n..], false))
            }
            [b'*', rest @ ..] => {
                (0..=path.len()).take_while(|n| !path[..*n].contains(&b'/')).any(|n| naive(rest, &path[n..], false))
            }
            [byte, rest @ ..] => path.first() == Some(byte) && naive(rest, &path[1..], *byte == b'/'),
        }
    }

    #[test]
    fn length_is_limited() {
        assert!(Glob::new(&"*".repeat(GLOB_BYTES_MAX)).is_some());
        assert!(Glob::new(&"a".repeat(GLOB_BYTES_MAX + 1)).is_none());
        let path = |len: usize| "/".repeat(len);
        assert!(holds("/**", &path(GLOB_PATH_BYTES_MAX)));
        let long = path(GLOB_PATH_BYTES_MAX + 1);
        assert_eq!(Glob::new("/**").unwrap().holds(long.as_bytes(), false), Holds::Unsure);
        assert_eq!(Glob::new("/a/**").unwrap().holds(long.as_bytes(), false), Holds::No);
    }

    #[test]
    fn the_longest_glob_uses_every_place() {
        let glob = "a*".repeat(GLOB_BYTES_MAX / 2) + "b";
        assert!(holds(&glob, &("a".repeat(GLOB_PATH_BYTES_MAX - 1) + "b")));
        assert!(!holds(&glob, &"a".repeat(GLOB_PATH_BYTES_MAX)));
    }

    proptest! {
        #[test]
        fn a_glob_agrees_with_its_definition(glob in "/[ab/*]{0,9}", path in "/[ab/]{0,9}") {
            prop_assert_eq!(holds(&glob, &path), naive(glob.as_bytes(), path.as_bytes(), false));
        }
    }
}
