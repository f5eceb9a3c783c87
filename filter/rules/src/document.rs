//! The rule set document that weir-sync pushes to POPs.
//!
//! It is the same object as plugin configuration, without `table`, `sync` and `filter_state`.

use alloc::format;
use alloc::vec::Vec;

use serde_json::Value;

use crate::RuleSet;
use crate::reading::{ConfigError, ErrorCollector, Item};

/// The largest rule set document, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Reads a JSON document. Returns all errors, each with its place.
pub fn parse(bytes: &[u8]) -> Result<RuleSet, Vec<ConfigError>> {
    let errors = ErrorCollector::default();
    if bytes.len() > DOCUMENT_BYTES_MAX {
        let found = bytes.len();
        errors
            .record("", format!("expected a rule set of at most {DOCUMENT_BYTES_MAX} bytes, found {found}"));
        return errors.into_result(None);
    }
    let rules = match serde_json::from_slice::<Value>(bytes) {
        Ok(value) => read(&value, &errors),
        Err(error) => {
            errors.record("", format!("expected a rule set as JSON: {error}"));
            None
        }
    };
    errors.into_result(rules)
}

/// Reads a document that is already a JSON value. All errors go to `errors`.
pub fn read(value: &Value, errors: &ErrorCollector) -> Option<RuleSet> {
    let document = Item::new(value, "", errors);
    let mut fields = document.fields()?;
    let rules = RuleSet::read(&mut fields);
    fields.finish();
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::{String, ToString};
    use std::vec;

    fn errors(bytes: &[u8]) -> Vec<String> {
        parse(bytes).err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn it_is_a_plugin_configuration_without_table_and_sync() {
        let rule = r#"{"name": "a", "key": ["client_address"], "rate": "5/s"}"#;
        assert_eq!(parse(format!(r#"{{"rules": [{rule}]}}"#).as_bytes()).unwrap().rules().len(), 1);
        let found = errors(format!(r#"{{"rules": [{rule}], "table": {{}}}}"#).as_bytes());
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("table: unknown field: expected rules"), "{found:?}");
    }

    #[test]
    fn every_error_has_its_place() {
        let found = errors(br#"{"rules": [{"name": "a", "key": ["client_address"], "rate": "5"}, 7]}"#);
        assert!(found[0].starts_with("rules[0].rate: expected"), "{found:?}");
        assert!(found[1].starts_with("rules[1]: expected an object"), "{found:?}");
        assert!(errors(b"\xff")[0].starts_with("expected a rule set as JSON"));
        assert!(errors(&vec![b' '; DOCUMENT_BYTES_MAX + 1])[0].starts_with("expected a rule set of at most"));
        assert!(errors(&vec![b'['; DOCUMENT_BYTES_MAX])[0].starts_with("expected a rule set as JSON"));
    }
}
