//! YAML 1.2 with limits, and with error messages for its author.

mod words;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::{Budget, Error, Options};

use crate::input::FILE_BYTES_MAX;
use crate::misread::{Misread, position};

/// Parses one document.
pub(crate) fn read(bytes: &[u8]) -> Result<Value, Misread> {
    let text = str::from_utf8(bytes).map_err(|error| Misread {
        at: Some(position(bytes.get(..error.valid_up_to()).unwrap_or_default())),
        problem: "expected UTF-8, found other bytes: save the file in this encoding".into(),
    })?;
    // As in YAML 1.2, `off` and `y` are strings.
    let wrong = |error: Misread| Misread { problem: format!("no YAML: {}", error.problem), ..error };
    from_str(text, serde_saphyr::options! { strict_booleans: true, budget: budget() }).map_err(wrong)
}

/// Parses a file of several documents. None if it is invalid.
pub(crate) fn documents(bytes: &[u8]) -> Option<Vec<Value>> {
    let options = serde_saphyr::options! { strict_booleans: true, budget: budget() };
    serde_saphyr::from_multiple_with_options(str::from_utf8(bytes).ok()?, options).ok()
}

/// Parses with the given options.
pub(crate) fn from_str<T: DeserializeOwned>(text: &str, options: Options) -> Result<T, Misread> {
    serde_saphyr::from_str_with_options(text, options).map_err(|error| misread(&error))
}

/// Limit of a document's size after its aliases are expanded, so that it fits into the JSON that is kept.
pub(crate) fn budget() -> Option<Budget> {
    serde_saphyr::budget! { max_total_scalar_bytes: FILE_BYTES_MAX }
}

fn misread(error: &Error) -> Misread {
    let error = error.without_snippet();
    let at = error.location().map(|at| (at.line(), at.column())).filter(|(line, _)| *line > 0);
    Misread { at, problem: words::of(error) }
}

#[cfg(test)]
mod tests;
