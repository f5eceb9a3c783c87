//! Text of documents and settings: JSON and YAML, with the position of each error.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::{Budget, Error, Options};
use weir_rules::document::DOCUMENT_BYTES_MAX;

/// Parses JSON, and refuses duplicate fields. Errors state the position.
pub fn json(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = Once.deserialize(&mut json)?;
    json.end()?;
    Ok(value)
}

struct Once;

impl<'de> DeserializeSeed<'de> for Once {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(Once)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if values.contains_key(&name) {
                return Err(A::Error::custom(format!("the field `{name}` is given twice")));
            }
            let value = fields.next_value_seed(Once)?;
            values.insert(name, value);
        }
        Ok(Value::Object(values))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misread {
    /// Line and column, in characters, both from 1.
    pub at: Option<(u64, u64)>,
    pub problem: String,
}

impl fmt::Display for Misread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, problem } = self;
        f.write_str(problem)?;
        at.map_or(Ok(()), |(line, column)| write!(f, " (line {line}, column {column})"))
    }
}

/// Line and column of the end of `before`, both from 1.
pub(crate) fn position(before: &[u8]) -> (u64, u64) {
    let mut lines = before.split(|byte| *byte == b'\n');
    let last = lines.next_back().unwrap_or_default();
    (lines.count() as u64 + 1, String::from_utf8_lossy(last).chars().count() as u64 + 1)
}

pub(crate) fn yaml(bytes: &[u8]) -> Result<Value, Misread> {
    let text = str::from_utf8(bytes).map_err(|error| Misread {
        at: Some(position(bytes.get(..error.valid_up_to()).unwrap_or_default())),
        problem: "expected UTF-8, found other bytes: save the file in this encoding".into(),
    })?;
    // As in YAML 1.2, `off` and `y` are strings.
    let wrong = |error: Misread| Misread { problem: format!("no YAML: {}", error.problem), ..error };
    from_str(text, serde_saphyr::options! { strict_booleans: true, budget: budget() }).map_err(wrong)
}

/// Parses a file of several YAML documents; `None` if it is invalid.
pub(crate) fn documents(bytes: &[u8]) -> Option<Vec<Value>> {
    let options = serde_saphyr::options! { strict_booleans: true, budget: budget() };
    serde_saphyr::from_multiple_with_options(str::from_utf8(bytes).ok()?, options).ok()
}

pub fn from_str<T: DeserializeOwned>(text: &str, options: Options) -> Result<T, Misread> {
    serde_saphyr::from_str_with_options(text, options).map_err(|error| misread(&error))
}

/// Size limit of a document with its aliases expanded, so that it fits into the JSON that is stored.
pub(crate) fn budget() -> Option<Budget> {
    serde_saphyr::budget! { max_total_scalar_bytes: FILE_BYTES_MAX }
}

fn misread(error: &Error) -> Misread {
    let error = error.without_snippet();
    let at = error.location().map(|at| (at.line(), at.column())).filter(|(line, _)| *line > 0);
    Misread { at, problem: super::yaml_errors::of(error) }
}

#[cfg(test)]
mod yaml_tests;

/// Maximum size of a file, in bytes. A plugin configuration is a rule set with a few more fields.
pub(crate) const FILE_BYTES_MAX: usize = 2 * DOCUMENT_BYTES_MAX;
/// File name that stands for the standard input.
pub(crate) const STDIN: &str = "-";

/// Reads the file at `path`, or the standard input. Returns the first `bytes_max + 1` bytes of a larger file.
pub fn read_file(path: &str, bytes_max: usize) -> io::Result<Vec<u8>> {
    let most = bytes_max as u64 + 1;
    let mut bytes = Vec::new();
    if path == STDIN {
        io::stdin().take(most).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Reads a text of at most `bytes_max` bytes. Errors do not name the file.
pub(crate) fn read_text(path: &str, bytes_max: usize) -> Result<String, String> {
    let bytes = read_file(path, bytes_max).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() > bytes_max {
        return Err(format!("expected at most {bytes_max} bytes"));
    }
    String::from_utf8(bytes).map_err(|error| format!("expected UTF-8: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_what_is_given_twice_and_where() {
        let error = |text: &str| json(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error("{\"a\": 1,\n \"a\": 1}"), "the field `a` is given twice at line 2 column 4");
        assert!(error(r#"{"b": [{"\u0061": 1, "a": null}]}"#).contains("`a` is given twice"));
        assert!(error("{} {}").contains("trailing"));
        assert!(error(&"[".repeat(10_000)).contains("recursion"));
    }

    proptest! {
        #[test]
        fn reads_all_else_as_it_is(text in r#"[\[\]{},:"a-c0-9.eu\\ -]{0,24}|true|null|-?[0-9]{1,20}(\.[0-9]{1,9})?"#) {
            let (strict, lax) = (json(text.as_bytes()), serde_json::from_slice::<Value>(text.as_bytes()));
            if strict.as_ref().is_err_and(|error| error.to_string().contains("twice")) {
                return Ok(());
            }
            prop_assert_eq!(strict.ok(), lax.ok());
        }
    }
}
