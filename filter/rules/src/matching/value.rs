//! Tests of a value of a header, cookie, query parameter or claim.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use regex_lite::{Regex, RegexBuilder};

use super::holds::Holds;
use crate::request::{Duplicates, Fetched, Lines, OneOf, QUERY_BYTES_MAX, Repeated, Source, ValueOf};
use crate::sorting::sorted;

pub const PATTERN_BYTES_MAX: usize = 256;
/// Longest value that regular expressions are tried on, in bytes. Longer ones are unsure.
pub const REGEX_VALUE_BYTES_MAX: usize = 1_024;
/// Memory limit of all compiled expressions of a rule set, in bytes.
pub const PROGRAMS_BYTES_MAX: usize = 32 * 1_024;
/// Minimum size counted for an expression, in bytes.
const PROGRAM_BYTES_MIN: usize = 128;
/// Maximum nesting of groups.
const PATTERN_DEPTH_MAX: u32 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueTest {
    In(Texts),
    Prefix(String),
    PrefixInAnyCase(String),
    Regex(Pattern),
    Present(bool),
}

impl ValueTest {
    /// Tests one value; `None` stands for an absent one.
    fn holds(&self, value: Option<&[u8]>, work: &mut usize) -> Holds {
        let Some(value) = value else { return Holds::of(matches!(self, Self::Present(false))) };
        Holds::of(match self {
            Self::In(texts) => texts.contains(value),
            Self::Prefix(prefix) => value.starts_with(prefix.as_bytes()),
            Self::PrefixInAnyCase(prefix) => {
                value.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix.as_bytes()))
            }
            Self::Regex(pattern) => return pattern.is_in(value, work),
            Self::Present(is_there) => *is_there,
        })
    }

    pub(super) fn holds_for(&self, value: &ValueOf, request: &mut Fetched<'_>) -> Holds {
        let mut work = request.search_work;
        let holds = test_of(value, request, &mut |value| self.holds(value, &mut work));
        request.search_work = work;
        holds
    }

    pub(crate) fn is_dear(&self) -> bool {
        matches!(self, Self::Regex(_))
    }
}

/// Applies `test` to the request's value, or to `None` if there is none. Several values are tried one by one.
#[inline]
pub(crate) fn test_of(
    value: &ValueOf,
    request: &mut Fetched<'_>,
    test: &mut dyn FnMut(Option<&[u8]>) -> Holds,
) -> Holds {
    match (&value.source, value.duplicates) {
        (Source::Attribute(id), Duplicates::Unset) => match request.lines(*id) {
            Some(lines) if lines.are_several() => test_of_lines(lines, test),
            Some(line) if line.may_be_joined() => test_of_joined(line, test),
            line => test(line.map(Lines::joined)),
        },
        (_, duplicates) => value.each(request, QUERY_BYTES_MAX, |values| test_of_several(duplicates, values, test)),
    }
}

/// Applies `test` to a header in several lines: unsure unless each line and the joined text agree.
#[inline(never)]
fn test_of_lines(lines: &Lines, test: &mut dyn FnMut(Option<&[u8]>) -> Holds) -> Holds {
    // The joined text first: it is the longest, and if it is unsure, no line needs to be tried.
    let joined = test(Some(lines.joined()));
    let is_alike = joined != Holds::Unsure && lines.iter().all(|line| test(Some(line)) == joined);
    if is_alike { joined } else { Holds::Unsure }
}

/// Applies `test` to a line that may consist of several values: unsure if only one of its parts passes.
#[inline(never)]
fn test_of_joined(line: &Lines, test: &mut dyn FnMut(Option<&[u8]>) -> Holds) -> Holds {
    let joined = test(Some(line.joined()));
    let is_sure = joined != Holds::No || line.parts().all(|part| test(Some(part)) == Holds::No);
    if is_sure { joined } else { Holds::Unsure }
}

#[inline(never)]
fn test_of_several<'a>(
    duplicates: Duplicates,
    mut values: &mut dyn Iterator<Item = OneOf<'a>>,
    test: &mut dyn FnMut(Option<&[u8]>) -> Holds,
) -> Holds {
    let mut of = |value: OneOf<'a>| value.map_or(Holds::Unsure, |value| test(Some(&value)));
    let first = match duplicates.pick(values) {
        Err(Repeated) => return Holds::Unsure,
        Ok(None) => return test(None),
        Ok(Some(value)) => of(value),
    };
    let is_alike = duplicates != Duplicates::Unset || Iterator::all(&mut values, |value| of(value) == first);
    if is_alike { first } else { Holds::Unsure }
}

/// Distinct texts in sorted order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts(Vec<String>);

impl FromIterator<String> for Texts {
    fn from_iter<I: IntoIterator<Item = String>>(texts: I) -> Self {
        let mut texts = sorted(texts.into_iter().collect());
        texts.dedup();
        Self(texts)
    }
}

impl Texts {
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    pub fn contains(&self, value: &[u8]) -> bool {
        self.0.binary_search_by(|text| text.as_bytes().cmp(value)).is_ok()
    }
}

/// A compiled regular expression. Searches take time in proportion to the value's length.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    program_bytes: usize,
    /// True if values begin with an authentication scheme, whose case is ignored.
    is_of_credentials: bool,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.regex.as_str() == other.regex.as_str() && self.is_of_credentials == other.is_of_credentials
    }
}

impl Eq for Pattern {}

impl Pattern {
    /// Compiles an expression; the error describes the mistake in it.
    pub fn new(text: &str, is_of_credentials: bool) -> Result<Self, String> {
        let mut builder = RegexBuilder::new(text);
        builder.nest_limit(PATTERN_DEPTH_MAX);
        // The library does not report the size of a program, only whether it fits a limit.
        let mut program_bytes = PROGRAM_BYTES_MIN;
        loop {
            match builder.size_limit(program_bytes).build() {
                Ok(regex) => return Ok(Self { regex, program_bytes, is_of_credentials }),
                Err(error) if program_bytes >= PROGRAMS_BYTES_MAX => return Err(error.to_string()),
                Err(_) => program_bytes = (program_bytes + program_bytes / 2).min(PROGRAMS_BYTES_MAX),
            }
        }
    }

    pub fn text(&self) -> &str {
        self.regex.as_str()
    }

    /// Memory of the compiled expression in bytes, overstated by up to half; at least 128.
    pub fn program_bytes(&self) -> usize {
        self.program_bytes
    }

    /// Searches the value; unsure if the search would cost more than `work`, the request's remaining search work.
    fn is_in(&self, value: &[u8], work: &mut usize) -> Holds {
        let left = work.checked_sub(value.len().saturating_mul(self.program_bytes));
        let Some(left) = left.filter(|_| value.len() <= REGEX_VALUE_BYTES_MAX) else { return Holds::Unsure };
        *work = left;
        if self.is_of_credentials { self.is_in_credentials(value) } else { self.is_in_text(value) }
    }

    fn is_in_text(&self, value: &[u8]) -> Holds {
        core::str::from_utf8(value).map_or(Holds::Unsure, |text| Holds::of(self.regex.is_match(text)))
    }

    /// Searches credentials, with the scheme spelled as in the expression. The copy is on the stack.
    #[inline(never)]
    fn is_in_credentials(&self, value: &[u8]) -> Holds {
        let mut room = [0; REGEX_VALUE_BYTES_MAX];
        let (Some(scheme), Some(spelled)) = (self.scheme_of(value), room.get_mut(..value.len())) else {
            return self.is_in_text(value);
        };
        spelled.copy_from_slice(value);
        spelled.iter_mut().zip(scheme).for_each(|(to, from)| *to = *from);
        self.is_in_text(spelled)
    }

    /// The scheme of the credentials in `value`, spelled as in the expression, if the expression contains it.
    fn scheme_of(&self, value: &[u8]) -> Option<&[u8]> {
        let scheme = value.split(|byte| *byte == b' ').next().filter(|scheme| scheme.len() < value.len())?;
        let mut heads = self.regex.as_str().as_bytes().windows(scheme.len().max(1));
        heads.find(|head| head.eq_ignore_ascii_case(scheme))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::SEARCH_WORK_MAX;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text, false).unwrap()
    }

    fn is_in(pattern: &Pattern, value: &[u8]) -> Holds {
        let mut work = SEARCH_WORK_MAX;
        pattern.is_in(value, &mut work)
    }

    #[test]
    fn the_cost_of_a_regular_expression_is_limited() {
        let any = pattern("^a*$");
        assert_eq!(is_in(&any, "a".repeat(REGEX_VALUE_BYTES_MAX).as_bytes()), Holds::Yes);
        assert_eq!(is_in(&any, "a".repeat(REGEX_VALUE_BYTES_MAX + 1).as_bytes()), Holds::Unsure);
        assert_eq!(is_in(&pattern(".*"), &[0xff, 0xfe]), Holds::Unsure);
        assert!(any.program_bytes() < 512 && pattern("(a?){50}").program_bytes() > 2_048);
        for text in ["a{1000}{1000}", "(a{100}){100}", "(", "[z-a]", r"\k", &"(".repeat(60)] {
            assert!(Pattern::new(text, false).is_err(), "{text}");
        }
        let nested = "(".repeat(17) + "a" + &")".repeat(17);
        assert!(Pattern::new(&nested, false).is_err());
        assert!(Pattern::new("(((a)))", false).is_ok());
    }

    #[test]
    fn a_scheme_is_spelled_as_the_expression_has_it() {
        for (text, value, expected) in [
            ("^Bearer sk_", "bearer sk_1", true),
            ("^(Basic|DPoP) a$", "dpop a", true),
            ("^[bB]earer a$", "bearer a", true),
            ("^Bearer a$", "bearer A", false),
            ("^Bearer", "bearer", false),
            ("bü", "bü x", true),
        ] {
            let pattern = Pattern::new(text, true).unwrap();
            assert_eq!(is_in(&pattern, value.as_bytes()), Holds::of(expected), "{text} {value}");
        }
    }
}
