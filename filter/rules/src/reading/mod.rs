//! Reading configuration, with a place for every error, not only for the first.

mod fields;
pub(crate) mod meant;
mod struct_value;
#[cfg(test)]
mod tests;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;

use serde_json::Value;

use crate::request::Attributes;

pub use fields::{Fields, Item, Items};
pub(crate) use fields::{is_token, quoted};
pub(crate) use struct_value::decode as decode_struct;

/// Maximum number of errors of one document. The last one states that more errors follow.
pub const ERRORS_MAX: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub place: String,
    pub problem: String,
}

impl ConfigError {
    /// The error of a document that cannot be read at all.
    pub(crate) fn of_document(problem: fmt::Arguments<'_>) -> Vec<Self> {
        alloc::vec![Self { place: String::new(), problem: problem.to_string() }]
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() { f.write_str(&self.problem) } else { write!(f, "{}: {}", self.place, self.problem) }
    }
}

impl core::error::Error for ConfigError {}

#[derive(Clone, Debug, PartialEq)]
pub struct ShortForm {
    /// The place of the short form: `rules[0].match.method`.
    pub written: String,
    /// The place of the full form: `rules[0].match.methods`.
    pub place: String,
    pub full: Value,
}

#[derive(Debug, Default)]
pub struct ErrorCollector {
    recorded: RefCell<Vec<ConfigError>>,
    short_forms: RefCell<Vec<ShortForm>>,
}

impl ErrorCollector {
    #[inline(never)]
    fn record(&self, place: &dyn fmt::Display, problem: &dyn fmt::Display) {
        // No other borrow of the list exists.
        let Ok(mut recorded) = self.recorded.try_borrow_mut() else { return };
        if recorded.len() < ERRORS_MAX {
            let is_last = recorded.len() == ERRORS_MAX - 1;
            let problem: &dyn fmt::Display = if is_last { &"and more errors follow" } else { problem };
            recorded.push(ConfigError { place: place.to_string(), problem: problem.to_string() });
        }
    }

    fn is_full(&self) -> bool {
        self.recorded.try_borrow().is_ok_and(|recorded| recorded.len() >= ERRORS_MAX)
    }

    /// Records that the value at `written` is a short form of `full` at `place`.
    fn record_short_form(&self, written: &dyn fmt::Display, place: &dyn fmt::Display, full: Value) {
        if let Ok(mut forms) = self.short_forms.try_borrow_mut() {
            forms.push(ShortForm { written: written.to_string(), place: place.to_string(), full });
        }
    }

    pub fn take_short_forms(&self) -> Vec<ShortForm> {
        self.short_forms.take()
    }

    /// Returns `good` if no error was recorded, else all errors.
    pub fn into_result<T>(self, good: Option<T>) -> Result<T, Vec<ConfigError>> {
        let recorded = self.recorded.into_inner();
        match good {
            Some(good) if recorded.is_empty() => Ok(good),
            _ => Err(recorded),
        }
    }
}

/// Joins texts that are not empty. Core's own takes a kilobyte for each type that it joins.
pub fn joined(texts: impl IntoIterator<Item = impl AsRef<str>>, separator: &str) -> String {
    let mut all = String::new();
    for text in texts {
        if !all.is_empty() {
            all.push_str(separator);
        }
        all.push_str(text.as_ref());
    }
    all
}

/// State common to all parts of a rule set: its attributes, and the limits on their sums.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) attributes: Attributes,
    /// Size of all compiled regular expressions so far, in bytes.
    pub(crate) programs_bytes: usize,
    pub(crate) wildcards: usize,
}
