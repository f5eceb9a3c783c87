//! Templates of response texts, compiled when configuration arrives.
//!
//! A placeholder is a name in double braces, `{{retry_after}}`, without spaces. All other text is literal, so that a
//! template may be JSON.

use alloc::borrow::{Cow, ToOwned};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use crate::reading::{joined, quoted};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeholder {
    Rule,
    /// Seconds until a request can succeed, as in `Retry-After`.
    RetryAfter,
    /// The quota's burst, as in `X-RateLimit-Limit`.
    Limit,
    Remaining,
    /// Time at which the bucket is full, as in `X-RateLimit-Reset`.
    Reset,
}

const PLACEHOLDERS: [(&str, Placeholder); 5] = [
    ("rule", Placeholder::Rule),
    ("retry_after", Placeholder::RetryAfter),
    ("limit", Placeholder::Limit),
    ("remaining", Placeholder::Remaining),
    ("reset", Placeholder::Reset),
];

/// Values that are known only when a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Seconds until there is one more token. No placeholder uses it.
    pub more_s: u64,
    pub retry_after_s: u64,
    pub remaining: u32,
    pub reset_s: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Placeholder(Placeholder),
}

/// A text with placeholders, split into pieces. No literal is empty or follows another literal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

impl Template {
    /// Splits `text` into pieces. The error states the expected and the found text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut template = Self::default();
        let mut rest = text;
        while let Some((literal, after)) = cut_at(rest, *b"{{") {
            template.push_literal(literal);
            let known = cut_at(after, *b"}}").and_then(|(name, after)| {
                let (_, placeholder) = PLACEHOLDERS.iter().find(|(known, _)| *known == name)?;
                Some((*placeholder, after))
            });
            let Some((placeholder, after)) = known else { return Err(unknown(after)) };
            template.pieces.push(Piece::Placeholder(placeholder));
            rest = after;
        }
        template.push_literal(rest);
        Ok(template)
    }

    pub fn written(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Literal(text) => text.clone(),
            Piece::Placeholder(placeholder) => {
                let name = PLACEHOLDERS.iter().find(|(_, one)| one == placeholder).map(|(name, _)| *name);
                format!("{{{{{}}}}}", name.unwrap_or_default())
            }
        };
        self.pieces.iter().map(piece).collect()
    }

    /// Fills in the placeholders that a rule determines in advance.
    #[must_use]
    pub fn prepared(&self, rule: &str, limit: &str) -> Self {
        let mut prepared = Self::default();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => prepared.push_literal(text),
                Piece::Placeholder(Placeholder::Rule) => prepared.push_literal(rule),
                Piece::Placeholder(Placeholder::Limit) => prepared.push_literal(limit),
                Piece::Placeholder(_) => prepared.pieces.push(piece.clone()),
            }
        }
        prepared
    }

    /// The text of a prepared template; borrowed if there is nothing to fill in.
    pub fn text(&self, numbers: &Numbers) -> Cow<'_, str> {
        let pieces = match self.pieces.as_slice() {
            [] => return Cow::Borrowed(""),
            [Piece::Literal(text)] => return Cow::Borrowed(text),
            pieces => pieces,
        };
        let mut text = String::new();
        for piece in pieces {
            // Writing to a string cannot fail.
            let _ = match piece {
                Piece::Literal(literal) => text.write_str(literal),
                Piece::Placeholder(Placeholder::RetryAfter) => write!(text, "{}", numbers.retry_after_s),
                Piece::Placeholder(Placeholder::Remaining) => write!(text, "{}", numbers.remaining),
                Piece::Placeholder(Placeholder::Reset) => write!(text, "{}", numbers.reset_s),
                // Filled in by `prepared`.
                Piece::Placeholder(Placeholder::Rule | Placeholder::Limit) => Ok(()),
            };
        }
        Cow::Owned(text)
    }

    fn push_literal(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Literal(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Literal(text.to_owned())),
        }
    }
}

/// Splits at the first occurrence of these braces. Searching for bytes takes a fraction of the code of a text search.
fn cut_at(text: &str, braces: [u8; 2]) -> Option<(&str, &str)> {
    let at = text.as_bytes().windows(2).position(|two| *two == braces)?;
    text.get(..at).zip(text.get(at + 2..))
}

/// The error for an unknown placeholder; `after` is the text after the opening braces.
fn unknown(after: &str) -> String {
    let expected = joined(PLACEHOLDERS.iter().map(|(name, _)| format!("{{{{{name}}}}}")), ", ");
    let Some((name, _)) = cut_at(after, *b"}}") else {
        return format!("expected }}}} after {{{{, as in {expected}");
    };
    format!("expected only the placeholders {expected}, found {}", quoted(&format!("{{{{{name}}}}}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Numbers = Numbers { more_s: 7, retry_after_s: 7, remaining: 3, reset_s: 90 };

    fn text(template: &str) -> String {
        Template::parse(template).unwrap().prepared("api", "100").text(&NUMBERS).into_owned()
    }

    #[test]
    fn placeholders_are_replaced_and_the_rest_is_kept() {
        assert_eq!(text("{{rule}}: {{retry_after}} {{limit}}/{{remaining}}/{{reset}}{{rule}}"), "api: 7 100/3/90api");
        for as_is in ["", "plain", "{", "}}", r#"{"a":{"b":1}}"#, "{ {rule} }", "\u{e9}{"] {
            assert_eq!(text(as_is), as_is);
        }
        assert_eq!(text(r#"{"wait":{{retry_after}},"of":{"a":{}}}"#), r#"{"wait":7,"of":{"a":{}}}"#);
    }

    #[test]
    fn an_error_repeats_little_of_an_unknown_placeholder() {
        let long = format!("{{{{{}}}}}", "\u{1}".repeat(8_000));
        assert!(Template::parse(&long).unwrap_err().len() < 500);
    }
}
