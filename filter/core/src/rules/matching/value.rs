//! Tests of a value: a header's, a cookie's, a query parameter's, or a claim's.

use alloc::collections::BinaryHeap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use regex_lite::{Regex, RegexBuilder};

/// The longest regular expression, in bytes.
pub const PATTERN_BYTES_MAX: usize = 256;
/// A longer value meets no regular expression, in bytes; nor does one that is not UTF-8.
pub const REGEX_VALUE_BYTES_MAX: usize = 4_096;
/// The most that a compiled expression takes, in bytes: a repetition of repetitions does not fit.
const PROGRAM_BYTES_MAX: usize = 32 * 1_024;
/// How deep groups may be within each other.
const PATTERN_DEPTH_MAX: u32 = 16;

/// A test of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// It is one of these.
    In(Texts),
    /// It begins with this.
    Prefix(String),
    /// This is found in it.
    Regex(Pattern),
    /// It is there, or it is not.
    Present(bool),
}

impl Test {
    /// Whether the value passes; `None` is one that is not there.
    pub(super) fn holds(&self, value: Option<&[u8]>) -> bool {
        let Some(value) = value else { return *self == Self::Present(false) };
        match self {
            Self::In(texts) => texts.contains(value),
            Self::Prefix(prefix) => value.starts_with(prefix.as_bytes()),
            Self::Regex(pattern) => pattern.is_in(value),
            Self::Present(is_there) => *is_there,
        }
    }
}

/// Texts in order, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts(Vec<String>);

impl FromIterator<String> for Texts {
    fn from_iter<I: IntoIterator<Item = String>>(texts: I) -> Self {
        // A heap's sort is a fraction of the code of a slice's.
        let mut texts = texts.into_iter().collect::<BinaryHeap<_>>().into_sorted_vec();
        texts.dedup();
        Self(texts)
    }
}

impl Texts {
    /// Whether the value is one of them: a binary search.
    pub(in crate::rules) fn contains(&self, value: &[u8]) -> bool {
        self.0.binary_search_by(|text| text.as_bytes().cmp(value)).is_ok()
    }
}

/// A regular expression, compiled. Its search takes time in proportion to the value's length.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

impl Pattern {
    /// Compiles an expression; what is wrong with it, where it cannot be.
    pub fn new(text: &str) -> Result<Self, String> {
        let mut builder = RegexBuilder::new(text);
        let built = builder.size_limit(PROGRAM_BYTES_MAX).nest_limit(PATTERN_DEPTH_MAX).build();
        built.map(Self).map_err(|error| error.to_string())
    }

    fn is_in(&self, value: &[u8]) -> bool {
        value.len() <= REGEX_VALUE_BYTES_MAX
            && core::str::from_utf8(value).is_ok_and(|text| self.0.is_match(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).unwrap()
    }

    #[test]
    fn every_test_says_what_it_asks() {
        let texts = || Texts::from_iter(["b".into(), "a".into(), "b".into()]);
        for (test, value, expected) in [
            (Test::In(texts()), Some("b"), true),
            (Test::In(texts()), Some("ab"), false),
            (Test::In(texts()), None, false),
            (Test::Prefix("y".into()), Some("yes"), true),
            (Test::Prefix("y".into()), Some("ay"), false),
            (Test::Prefix("y".into()), None, false),
            (Test::Regex(pattern("^[a-z]+$")), Some("abc"), true),
            (Test::Regex(pattern("^[a-z]+$")), Some("a1"), false),
            (Test::Regex(pattern("b")), Some("abc"), true),
            (Test::Regex(pattern("")), None, false),
            (Test::Present(true), Some(""), true),
            (Test::Present(true), None, false),
            (Test::Present(false), Some(""), false),
            (Test::Present(false), None, true),
        ] {
            assert_eq!(test.holds(value.map(str::as_bytes)), expected, "{test:?} {value:?}");
        }
    }

    #[test]
    fn what_a_regular_expression_may_cost_is_limited() {
        let any = pattern("^a*$");
        assert!(any.is_in("a".repeat(REGEX_VALUE_BYTES_MAX).as_bytes()));
        assert!(!any.is_in("a".repeat(REGEX_VALUE_BYTES_MAX + 1).as_bytes()));
        assert!(!pattern(".*").is_in(&[0xff, 0xfe]));
        for text in ["a{1000}{1000}", "(a{100}){100}", "(", "[z-a]", r"\k", &"(".repeat(60)] {
            assert!(Pattern::new(text).is_err(), "{text}");
        }
        let nested = "(".repeat(17) + "a" + &")".repeat(17);
        assert!(Pattern::new(&nested).is_err());
        assert!(Pattern::new("(((a)))").is_ok());
    }
}
