//! Short forms, and the bounds of errors.

use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use serde_json::{Value, json};

use super::struct_value::whole_number;
use super::{ERRORS_MAX, ErrorCollector, Item, ShortForm};
use crate::{RuleSet, document};

/// A rule set with `fields` in its only rule.
fn with(fields: &Value) -> Value {
    let mut rule = json!({"name": "a", "key": ["client_address"], "rate": "100/m"});
    for (name, value) in fields.as_object().unwrap() {
        rule[name] = value.clone();
    }
    json!({"rules": [rule]})
}

fn read(document: &Value) -> (Result<RuleSet, Vec<String>>, Vec<ShortForm>) {
    let errors = ErrorCollector::default();
    let rules = document::read(document, &errors);
    let forms = errors.take_short_forms();
    let texts = |errors: Vec<_>| errors.iter().map(ToString::to_string).collect();
    (errors.into_result(rules).map_err(texts), forms)
}

/// Fields of a rule in a short form, the full form of all of them, and the place and the full form that are shown.
const SHORT_FORMS: &str = r#"
{"rate": "100/minute"} | {} | rate "100/m"
{"rate": "100/min"} | {} | rate "100/m"
{"rate": "10/second"} | {"rate": "10/s"} | rate "10/s"
{"rate": "5/hour"} | {"rate": "5/h"} | rate "5/h"
{"rate": "1000/day"} | {"rate": "1000/d", "burst": 1000} | rate "1000/d"
{"algorithm": "quota", "rate": "1000/d"} | {"algorithm": "quota", "rate": "1000/day"} | rate "1000/day"
{"match": {"path": "/login"}} | {"match": {"path": {"exact": "/login"}}} | match.path {"exact": "/login"}
{"match": {"path": "/api/*"}} | {"match": {"path": {"glob": "/api/*"}}} | match.path {"glob": "/api/*"}
{"match": {"paths": ["/a"]}} | {"match": {"paths": [{"exact": "/a"}]}} | match.paths[0] {"exact": "/a"}
{"match": {"method": "POST"}} | {"match": {"methods": ["POST"]}} | match.methods ["POST"]
{"match": {"method": ["GET", "HEAD"]}} | {"match": {"methods": ["GET", "HEAD"]}} | match.methods ["GET", "HEAD"]
{"match": {"methods": "POST"}} | {"match": {"methods": ["POST"]}} | match.methods ["POST"]
{"match": {"hosts": "x.example"}} | {"match": {"hosts": ["x.example"]}} | match.hosts ["x.example"]
{"key": "client_address"} | {} | key ["client_address"]
{"key": {"header": "x"}} | {"key": [{"header": "x"}]} | key [{"header": "x"}]
{"burst": "10"} | {"burst": 10} | burst 10
{"response": {"headers": "retry_after"}} | {"response": {"headers": ["retry_after"]}} | response.headers ["retry_after"]
"#;

#[test]
fn a_short_form_means_the_same_as_the_full_one() {
    for line in SHORT_FORMS.trim().lines() {
        let [short, full, shown] = line.split(" | ").collect::<Vec<_>>().try_into().unwrap();
        let (at, shown) = shown.split_once(' ').unwrap();
        let [short, full, shown] = [short, full, shown].map(|text| serde_json::from_str::<Value>(text).unwrap());
        let ((found, forms), (expected, of_full)) = (read(&with(&short)), read(&with(&full)));
        assert!(found.is_ok(), "{short}: {found:?}");
        assert_eq!(found, expected, "{short}");
        let forms: Vec<_> = forms.into_iter().map(|form| (form.place, form.full)).collect();
        assert_eq!((forms, of_full), (vec![(format!("rules[0].{at}"), shown)], vec![]), "{short}");
    }
    let lists = json!({"rules": with(&json!({}))["rules"], "deny": {"methods": "TRACE"}});
    let places: Vec<_> = read(&lists).1.into_iter().map(|form| form.place).collect();
    assert_eq!(places, ["deny", "deny.methods"]);
}

#[test]
fn whole_numbers_may_be_doubles() {
    assert_eq!(whole_number(&json!(100.0)), Some(100));
    assert_eq!(whole_number(&json!(1e2)), Some(100));
    assert_eq!(whole_number(&json!(100.5)), None);
    assert_eq!(whole_number(&json!(-1.0)), None);
    assert_eq!(whole_number(&json!(1e300)), None);
    for (text, number) in [("100", Some(100)), ("", None), ("+1", None), (" 1", None), ("18446744073709551616", None)] {
        assert_eq!(whole_number(&json!(text)), number, "{text:?}");
    }
}

// I2
#[test]
fn errors_are_bounded_in_number_and_length() {
    let (value, errors) = (json!("y".repeat(10_000)), ErrorCollector::default());
    for _ in 0..1_000 {
        Item::new(&value, &errors).record_unexpected("less");
    }
    let recorded = errors.into_result(Some(())).unwrap_err();
    assert_eq!(recorded.len(), ERRORS_MAX);
    assert!(recorded.iter().all(|e| e.problem.len() < 200));
    assert_eq!(recorded.last().unwrap().problem, "and more errors follow");
}
