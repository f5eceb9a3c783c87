//! Documents that are wrong: the parser gives each error its place, and the schema refuses what a schema can.

use serde_json::{Value, json};

use crate::{full, parser_errors, schema_errors, validator};

/// Wrong documents with their errors; it explains its form.
const WRONG: &str = include_str!("wrong.txt");

/// A whole document stays as it is; other fields are those of a good rule, or replace them.
fn document(written: &Value) -> Value {
    if written.get("rules").is_some() {
        return written.clone();
    }
    let mut rule = json!({"name": "a", "key": ["client_address"], "rate": "100/m"});
    for (name, value) in written.as_object().into_iter().flatten() {
        rule[name] = value.clone();
    }
    rule.as_object_mut().into_iter().for_each(|rule| rule.retain(|_, value| value != "absent"));
    json!({"rules": [rule]})
}

// I9
#[test]
fn every_error_has_a_place_and_matches_the_schema() {
    let validator = validator();
    let mut lines = WRONG.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    while let Some(line) = lines.next() {
        let parser_alone = line.strip_prefix("~ ");
        let written = serde_json::from_str(parser_alone.unwrap_or(line));
        let document = document(&written.unwrap_or_else(|e| panic!("{line}: {e}")));
        let errors = std::iter::from_fn(|| lines.next_if(|line| line.starts_with(' ')));
        let mut expected: Vec<_> = errors.map(|error| error.trim_start().to_owned()).collect();
        let found = parser_errors(&document).into_iter();
        let mut found: Vec<_> = found.map(|error| error.trim_start_matches("rules[0].").to_owned()).collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{line}");
        let is_accepted = schema_errors(&validator, &document).is_empty();
        assert_eq!(is_accepted, parser_alone.is_some(), "accepted by the schema: {line}");
    }
}

#[test]
fn the_number_of_rules_is_limited() {
    let rules = |n: usize, wider: Option<Value>| {
        let mut rule = json!({"key": ["client_address"], "rate": "1/s"});
        if let Some(wider) = wider {
            rule["also_by_prefix"] = wider;
        }
        let named = |i| {
            rule["name"] = format!("r{i}").into();
            rule.clone()
        };
        json!({"rules": (0..n).map(named).collect::<Vec<_>>()})
    };
    let (validator, wider) = (validator(), json!([{"ipv4": 24, "times": 2}]));
    for (document, is_accepted) in [(rules(1_001, None), false), (rules(501, Some(wider)), true), (json!([]), false)] {
        assert_eq!(parser_errors(&document).len(), 1);
        assert_eq!(schema_errors(&validator, &document).is_empty(), is_accepted);
    }
}

/// Every value of the full document, replaced by one of another type.
#[test]
fn both_refuse_a_wrong_type() {
    let (validator, full) = (validator(), full());
    for place in places_within(&full) {
        let mut document = full.clone();
        let Some(value) = document.pointer_mut(&place) else { continue };
        *value = if value.is_number() { json!("1x") } else { json!(1.5) };
        assert!(!parser_errors(&document).is_empty(), "the parser accepts a number or text at {place}");
        let errors = schema_errors(&validator, &document);
        assert!(!errors.is_empty(), "the schema accepts a number or text at {place}");
    }
}

/// The place of each value within `value`, its own last.
pub(crate) fn places_within(value: &Value) -> Vec<String> {
    let of_item = |(name, value): (String, &Value)| {
        places_within(value).into_iter().map(move |place| format!("/{name}{place}")).collect::<Vec<_>>()
    };
    let mut places: Vec<_> = match value {
        Value::Object(object) => object.iter().map(|(name, value)| (name.clone(), value)).flat_map(of_item).collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(i, value)| (i.to_string(), value)).flat_map(of_item).collect()
        }
        _ => Vec::new(),
    };
    places.push(String::new());
    places
}
