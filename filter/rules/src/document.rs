//! The rule set document pushed to POPs: plugin configuration without `table`, `sync` and `filter_state`.

use alloc::vec::Vec;

use serde_json::Value;

use crate::RuleSet;
use crate::reading::{ConfigError, ErrorCollector, Item};

pub const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Reads a JSON document. Returns all errors, each with its place.
pub fn parse(bytes: &[u8]) -> Result<RuleSet, Vec<ConfigError>> {
    let found = bytes.len();
    if found > DOCUMENT_BYTES_MAX {
        let expected = format_args!("expected a rule set of at most {DOCUMENT_BYTES_MAX} bytes, found {found}");
        return Err(ConfigError::of_document(expected));
    }
    let value = serde_json::from_slice(bytes)
        .map_err(|error| ConfigError::of_document(format_args!("expected a rule set as JSON: {error}")))?;
    let errors = ErrorCollector::default();
    let rules = read(&value, &errors);
    errors.into_result(rules)
}

/// Reads a document that is already a JSON value. All errors are added to `errors`.
pub fn read(value: &Value, errors: &ErrorCollector) -> Option<RuleSet> {
    let item = Item::new(value, errors);
    let mut fields = item.fields()?;
    let rules = RuleSet::read(&mut fields);
    fields.finish();
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec;

    #[test]
    fn a_malformed_document_is_refused_at_any_size() {
        for (bytes, expected) in [
            (b"\xff".to_vec(), "expected a rule set as JSON: "),
            (vec![b'['; DOCUMENT_BYTES_MAX], "expected a rule set as JSON: "),
            (vec![b' '; DOCUMENT_BYTES_MAX + 1], "expected a rule set of at most 1048576 bytes, found 1048577"),
        ] {
            let errors = parse(&bytes).unwrap_err();
            assert!(errors.len() == 1 && errors[0].to_string().starts_with(expected), "{errors:?}");
        }
    }
}
