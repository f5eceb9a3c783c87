//! Documents that are wrong in one place.

mod parser;
mod rule;
mod within;

use serde_json::{Value, json};

use parser::refused_by_the_parser_alone;
use rule::fields_of_a_rule;
use within::{claims, conditions, responses, tests, tiers};

use crate::{full, told_by_parser, told_by_schema, validator};

/// A good rule, into which a wrong value is put.
fn rule_with(fields: &Value) -> Value {
    let mut rule = json!({"name": "r", "key": ["client_address"], "rate": "10/s"});
    for (name, value) in fields.as_object().cloned().unwrap_or_default() {
        // What is to be left out is said by the text "absent".
        rule[&name] = value;
        if rule[&name] == "absent" {
            rule.as_object_mut().and_then(|rule| rule.remove(&name));
        }
    }
    json!({"rules": [rule]})
}

fn matching(condition: &Value) -> Value {
    rule_with(&json!({"match": condition}))
}

fn headers(test: &Value) -> Value {
    matching(&json!({"headers": [test]}))
}

fn answering(response: &Value) -> Value {
    rule_with(&json!({"response": response}))
}

fn tier(tier: &Value, of: &Value) -> Value {
    let mut fields = json!({"name": "t", "when": {"methods": ["GET"]}});
    for (name, value) in tier.as_object().cloned().unwrap_or_default() {
        fields[name] = value;
    }
    let mut rule = of.clone();
    rule["tiers"] = json!([fields]);
    rule_with(&rule)
}

fn many<T: Into<Value>>(n: usize, one: impl Fn(usize) -> T) -> Value {
    (0..n).map(|i| one(i).into()).collect::<Vec<Value>>().into()
}

fn x(n: usize) -> String {
    "x".repeat(n)
}

/// What both refuse.
fn refused_by_both() -> Vec<Value> {
    let mut bad = vec![json!([]), json!({}), json!({"rules": []}), json!({"rules": null})];
    bad.push(
        json!({"rules": many(1_001, |i| json!({"name": format!("r{i}"), "key": ["all"], "rate": "1/s"}))}),
    );
    let with = |field: &str, value: Value| {
        let mut document = rule_with(&json!({}));
        document.as_object_mut().into_iter().for_each(|d| {
            d.insert(field.into(), value.clone());
        });
        document
    };
    bad.extend(
        [
            ("enforce", json!("no")),
            ("allow", json!([])),
            ("allow", json!([{}])),
            ("deny", json!([{}])),
            ("deny", json!([{"until_ms": 0, "methods": ["GET"]}])),
            ("deny", json!([{"not": {"until_ms": 1, "methods": ["GET"]}}])),
            ("deny", json!("GET")),
            ("table", json!({"addresses": 1})),
            ("allow", many(101, |_| json!({"methods": ["GET"]}))),
        ]
        .map(|(field, value)| with(field, value)),
    );
    bad.extend(fields_of_a_rule().iter().map(rule_with));
    bad.extend(conditions().iter().map(matching));
    bad.extend(tests().iter().map(headers));
    bad.extend(tests().iter().map(|test| matching(&json!({"cookies": [test]}))));
    bad.extend(claims().iter().map(|test| matching(&json!({"claims": [test]}))));
    bad.extend(responses().iter().map(answering));
    bad.extend(tiers().iter().map(|(one, of)| tier(one, of)));
    bad
}

#[test]
fn what_is_wrong_in_one_place_is_refused_by_both() {
    let validator = validator();
    for document in refused_by_both() {
        let shown: String = document.to_string().chars().take(300).collect();
        assert!(!told_by_parser(&document).is_empty(), "the parser accepts {shown}");
        assert!(!told_by_schema(&validator, &document).is_empty(), "the schema accepts {shown}");
    }
}

#[test]
fn what_only_the_parser_sees_is_known() {
    let validator = validator();
    for document in refused_by_the_parser_alone() {
        let shown: String = document.to_string().chars().take(300).collect();
        assert!(!told_by_parser(&document).is_empty(), "the parser accepts {shown}");
        assert_eq!(
            told_by_schema(&validator, &document),
            [""; 0],
            "the schema sees more than is said: {shown}"
        );
    }
}

/// Every value of the full document, replaced by one of another type.
#[test]
fn another_type_is_refused_by_both() {
    let (validator, full) = (validator(), full());
    let mut places = Vec::new();
    places_within(&full, "", &mut places);
    for place in places {
        let mut document = full.clone();
        let Some(value) = document.pointer_mut(&place) else { continue };
        let wrong = if value.is_number() { json!("1x") } else { json!(1.5) };
        *value = wrong;
        assert!(!told_by_parser(&document).is_empty(), "the parser accepts a number or text at {place}");
        assert!(
            !told_by_schema(&validator, &document).is_empty(),
            "the schema accepts a number or text at {place}"
        );
    }
}

pub(crate) fn places_within(value: &Value, place: &str, places: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                places_within(value, &format!("{place}/{name}"), places);
            }
        }
        Value::Array(items) => {
            for (i, value) in items.iter().enumerate() {
                places_within(value, &format!("{place}/{i}"), places);
            }
        }
        _ => {}
    }
    places.push(place.to_owned());
}
