//! Walks through configuration, and notes what is wrong with it.
//!
//! Configuration arrives as JSON. [`Fields`] walks it, notes in [`Errors`] what is wrong and where, and goes on,
//! returning `None` for a wrong value. A document is good when no error was noted.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use serde_json::{Map, Value};

use weir_wire::quota::Span;

/// The most errors one document reports; past that it says so and stops noting.
pub const ERRORS_MAX: usize = 50;
/// The most characters of a found value that an error repeats.
const FOUND_CHARS_MAX: usize = 60;

/// One thing wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where: `rules[0].rate`.
    pub place: String,
    /// What was expected, and what was found.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            f.write_str(&self.problem)
        } else {
            write!(f, "{}: {}", self.place, self.problem)
        }
    }
}

impl core::error::Error for ConfigError {}

/// Collects the errors of one document.
#[derive(Debug, Default)]
pub struct Errors {
    noted: Vec<ConfigError>,
}

impl Errors {
    /// Notes that `place` is wrong.
    pub fn note(&mut self, place: &str, problem: impl Into<String>) {
        match self.noted.len() {
            ERRORS_MAX.. => {}
            len => {
                let last = len == ERRORS_MAX - 1;
                let problem = if last { "and more errors follow".to_owned() } else { problem.into() };
                self.noted.push(ConfigError { place: place.to_owned(), problem });
            }
        }
    }

    /// Notes that `place` holds something other than `expected`.
    pub fn note_found(&mut self, place: &str, expected: impl fmt::Display, found: &Value) {
        self.note_other(place, &expected, found);
    }

    // Not generic, so it is compiled once for every kind of `expected`.
    #[inline(never)]
    fn note_other(&mut self, place: &str, expected: &dyn fmt::Display, found: &Value) {
        self.note(place, format!("expected {expected}, found {}", shown(found)));
    }

    /// `good` if nothing was noted.
    pub fn into_result<T>(self, good: Option<T>) -> Result<T, Vec<ConfigError>> {
        match good {
            Some(good) if self.noted.is_empty() => Ok(good),
            _ => Err(self.noted),
        }
    }
}

/// A value as an error repeats it: cut short, never a whole document.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => {
            let (cut, dots) = match text.char_indices().nth(FOUND_CHARS_MAX) {
                Some((at, _)) => (text.get(..at).unwrap_or_default(), "..."),
                None => (text.as_str(), ""),
            };
            format!("{cut:?}{dots}")
        }
    }
}

/// An object whose fields are taken one by one; whatever is left is unknown, and an error.
pub struct Fields<'a> {
    place: String,
    object: &'a Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// `value` as an object at `place`.
    pub fn of(value: &'a Value, place: &str, errors: &mut Errors) -> Option<Self> {
        let Some(object) = value.as_object() else {
            errors.note_found(place, "an object", value);
            return None;
        };
        Some(Self { place: place.to_owned(), object, known: Vec::new() })
    }

    /// The place of field `name`.
    pub fn place(&self, name: &str) -> String {
        if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) }
    }

    /// The field `name`, if it is there and not null; a null is noted when the fields are finished.
    pub fn take(&mut self, name: &'static str) -> Option<&'a Value> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// The field `name`; an error if it is missing.
    pub fn require(&mut self, name: &'static str, expected: &str, errors: &mut Errors) -> Option<&'a Value> {
        let value = self.take(name);
        if value.is_none() {
            errors.note(&self.place(name), format!("missing: expected {expected}"));
        }
        value
    }

    /// The field `name` as a whole number within `range`.
    pub fn number(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u32>,
        errors: &mut Errors,
    ) -> Option<u32> {
        let value = self.take(name)?;
        number(value, &self.place(name), range, errors)
    }

    /// The field `name` as true or false.
    pub fn boolean(&mut self, name: &'static str, errors: &mut Errors) -> Option<bool> {
        let value = self.take(name)?;
        if !value.is_boolean() {
            errors.note_found(&self.place(name), "true or false", value);
        }
        value.as_bool()
    }

    /// The field `name` as text of 1 to `bytes_max` bytes.
    pub fn text(&mut self, name: &'static str, bytes_max: usize, errors: &mut Errors) -> Option<&'a str> {
        let value = self.take(name)?;
        text(value, &self.place(name), bytes_max, errors)
    }

    /// The field `name` as one of `choices`.
    pub fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&str, T)],
        errors: &mut Errors,
    ) -> Option<T> {
        let value = self.take(name)?;
        choice(value, &self.place(name), choices, errors)
    }

    /// The field `name` as a list of 1 to `len_max` items, each with its place; none if absent.
    pub fn list(
        &mut self,
        name: &'static str,
        len_max: usize,
        errors: &mut Errors,
    ) -> impl Iterator<Item = (String, &'a Value)> + use<'a> {
        let place = self.place(name);
        let items = self.take(name).map_or(&[][..], |value| list(value, &place, len_max, errors));
        items.iter().enumerate().map(move |(i, item)| (format!("{place}[{i}]"), item))
    }

    /// Notes every field that was never taken, and every one that is empty.
    pub fn finish(self, errors: &mut Errors) {
        for (name, value) in self.object {
            if !self.known.contains(&name.as_str()) {
                errors.note(&self.place(name), format!("unknown field: expected {}", self.known.join(", ")));
            } else if value.is_null() {
                // What was meant to narrow a rule must not widen it.
                errors.note(&self.place(name), "empty: expected a value, or no such field");
            }
        }
    }
}

/// `value` as a whole number within `range`.
pub(crate) fn number(
    value: &Value,
    place: &str,
    range: RangeInclusive<u32>,
    errors: &mut Errors,
) -> Option<u32> {
    let number = whole_number(value).filter(|n| range.contains(n));
    if number.is_none() {
        errors.note_found(place, format!("a whole number from {} to {}", range.start(), range.end()), value);
    }
    number
}

/// `value` as text of 1 to `bytes_max` bytes.
pub(crate) fn text<'a>(
    value: &'a Value,
    place: &str,
    bytes_max: usize,
    errors: &mut Errors,
) -> Option<&'a str> {
    let text = value.as_str().filter(|text| (1..=bytes_max).contains(&text.len()));
    if text.is_none() {
        errors.note_found(place, format!("text of 1 to {bytes_max} bytes"), value);
    }
    text
}

/// `value` as a length of time.
pub(crate) fn span(value: &Value, place: &str, errors: &mut Errors) -> Option<Span> {
    let read = value.as_str().unwrap_or_default().parse::<Span>();
    if let Err(error) = read {
        errors.note(place, format!("{error}, found {}", shown(value)));
    }
    read.ok()
}

/// `value` as one of `choices`.
pub(crate) fn choice<T: Copy>(
    value: &Value,
    place: &str,
    choices: &[(&str, T)],
    errors: &mut Errors,
) -> Option<T> {
    let chosen = value.as_str().and_then(|text| choices.iter().find(|(name, _)| *name == text));
    if chosen.is_none() {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        errors.note_found(place, names.join(" or "), value);
    }
    chosen.map(|(_, meaning)| *meaning)
}

/// Whether the text is a token (RFC 9110, 5.6.2), as the names of headers and cookies are.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn list<'a>(value: &'a Value, place: &str, len_max: usize, errors: &mut Errors) -> &'a [Value] {
    match value.as_array() {
        Some(items) if (1..=len_max).contains(&items.len()) => items,
        Some(items) => {
            errors.note(place, format!("expected a list of 1 to {len_max} items, found {}", items.len()));
            &[]
        }
        None => {
            errors.note_found(place, format!("a list of 1 to {len_max} items"), value);
            &[]
        }
    }
}

/// A JSON number that is whole, however it is written: a Struct's numbers are doubles, and a host
/// may write 100 as `100.0` or `1e2`.
fn whole_number(value: &Value) -> Option<u32> {
    if let Some(n) = value.as_u64() {
        return u32::try_from(n).ok();
    }
    let n = value.as_f64()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "compared right after")]
    let whole = n as u32;
    #[allow(clippy::float_cmp, reason = "whole exactly when the cast changed nothing")]
    (f64::from(whole) == n).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::vec;

    #[test]
    fn whole_numbers_may_be_doubles() {
        assert_eq!(whole_number(&json!(100.0)), Some(100));
        assert_eq!(whole_number(&json!(1e2)), Some(100));
        assert_eq!(whole_number(&json!(100.5)), None);
        assert_eq!(whole_number(&json!(-1.0)), None);
        assert_eq!(whole_number(&json!(1e300)), None);
        assert_eq!(whole_number(&json!("100")), None);
    }

    #[test]
    fn an_unknown_field_names_the_known_ones() {
        let (value, mut errors) = (json!({"a": 1, "c": 2}), Errors::default());
        let mut fields = Fields::of(&value, "here", &mut errors).unwrap();
        assert_eq!(fields.number("a", 0..=9, &mut errors), Some(1));
        assert_eq!(fields.boolean("b", &mut errors), None);
        fields.finish(&mut errors);
        assert_eq!(
            errors.into_result(Some(())).unwrap_err(),
            vec![ConfigError { place: "here.c".into(), problem: "unknown field: expected a, b".into() }]
        );
    }

    #[test]
    fn errors_are_bounded_in_number_and_length() {
        let mut errors = Errors::default();
        for _ in 0..1_000 {
            errors.note_found("x", "less", &json!("y".repeat(10_000)));
        }
        let noted = errors.into_result(Some(())).unwrap_err();
        assert_eq!(noted.len(), ERRORS_MAX);
        assert!(noted.iter().all(|e| e.problem.len() < 200));
        assert_eq!(noted.last().unwrap().problem, "and more errors follow");
    }
}
