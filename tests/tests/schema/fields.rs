//! Every object of the schema has the fields that the parser knows, and no others.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::wrong::places_within;
use crate::{full, parser_errors, schema};

/// A field that no object has.
const UNKNOWN: &str = "no_such_field";
/// The place of each object in the schema, and its place in full.yaml.
const OBJECTS: [(&str, &str); 19] = [
    ("", ""),
    ("/$defs/rule", "/rules/0"),
    ("/$defs/condition", "/rules/0/match"),
    ("/$defs/clause", "/rules/0/match/not"),
    ("/$defs/path", "/rules/0/match/paths/0"),
    ("/$defs/header_test", "/rules/0/match/headers/0"),
    ("/$defs/cookie_test", "/rules/0/match/cookies/0"),
    ("/$defs/query_test", "/rules/0/match/query/0"),
    ("/$defs/claim_test", "/rules/0/match/claims/0"),
    ("/$defs/named_part", "/rules/0/key/1"),
    ("/$defs/prefixes", "/rules/0/key/0/client_address"),
    ("/$defs/also_by_prefix", "/rules/0/also_by_prefix/0"),
    ("/$defs/tier", "/rules/0/tiers/1"),
    ("/$defs/header_cost", "/rules/0/cost"),
    ("/$defs/later_cost", "/rules/3/cost"),
    ("/$defs/after", "/rules/3/cost/after"),
    ("/$defs/penalty", "/rules/0/penalty"),
    ("/$defs/response", "/rules/0/response"),
    // The same fields, read by another part of the parser.
    ("/$defs/clause", "/rules/0/match/any/1"),
];

/// The fields in the parser's error for an unknown one.
fn known_to_parser(object: &str) -> BTreeSet<String> {
    let mut document = full();
    let found = document.pointer_mut(object).and_then(Value::as_object_mut);
    found.unwrap_or_else(|| panic!("full.yaml has no object at {object}")).insert(UNKNOWN.into(), json!(1));
    let errors = parser_errors(&document);
    let asked = format!("{UNKNOWN}: unknown field: expected ");
    let list = errors.iter().find_map(|error| Some(error.split_once(&asked)?.1));
    let list = list.unwrap_or_else(|| panic!("{object}: the parser's errors are {errors:?}"));
    list.split(", ").map(str::to_owned).collect()
}

#[test]
fn every_object_has_the_parsers_fields_with_descriptions() {
    let (schema, places) = (schema(), places_within(&full()));
    let in_full: BTreeSet<_> = places.iter().filter_map(|place| place.rsplit('/').next()).collect();
    for (of_schema, of_document) in OBJECTS {
        let properties = &schema.pointer(of_schema).unwrap_or_else(|| panic!("no {of_schema}"))["properties"];
        let properties = properties.as_object().unwrap_or_else(|| panic!("{of_schema}: no properties"));
        let known: BTreeSet<_> = properties.keys().cloned().collect();
        assert_eq!(known, known_to_parser(of_document), "{of_schema}, at {of_document}");
        for (name, property) in properties {
            assert!(in_full.contains(name.as_str()), "full.yaml has no {name} of {of_schema}");
            let target = property["$ref"].as_str().and_then(|place| schema.pointer(place.trim_start_matches('#')));
            let is_described = [Some(property), target].into_iter().flatten().any(|p| p["description"].is_string());
            assert!(is_described, "{of_schema}: {name} has no description");
        }
    }
}

#[test]
fn every_object_is_covered() {
    let schema = schema();
    let is_closed = |place: &String| schema.pointer(place).is_some_and(|value| value["additionalProperties"] == false);
    let found: BTreeSet<_> = places_within(&schema).into_iter().filter(is_closed).collect();
    assert_eq!(found, OBJECTS.iter().map(|(of_schema, _)| (*of_schema).to_owned()).collect());
}
