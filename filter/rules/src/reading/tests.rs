//! Forms that people write: the short ones, and those of other limiters.

use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use serde_json::{Value, json};

use super::meant::nearest;
use super::number::whole_number;
use super::{ConfigError, ERRORS_MAX, ErrorCollector, Item, ShortForm};
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
    let told = |errors: Vec<_>| errors.iter().map(ToString::to_string).collect();
    (errors.into_result(rules).map_err(told), forms)
}

#[test]
fn a_short_form_means_the_same_as_the_full_one() {
    for (short, full, at, shown) in [
        (json!({"rate": "100/minute"}), json!({}), "rate", json!("100/m")),
        (json!({"rate": "100/min"}), json!({}), "rate", json!("100/m")),
        (json!({"rate": "10/second"}), json!({"rate": "10/s"}), "rate", json!("10/s")),
        (json!({"rate": "5/hour"}), json!({"rate": "5/h"}), "rate", json!("5/h")),
        (json!({"rate": "1000/day"}), json!({"rate": "1000/d", "burst": 1_000}), "rate", json!("1000/d")),
        (
            json!({"algorithm": "quota", "rate": "1000/d"}),
            json!({"algorithm": "quota", "rate": "1000/day"}),
            "rate",
            json!("1000/day"),
        ),
        (
            json!({"match": {"path": "/login"}}),
            json!({"match": {"path": {"exact": "/login"}}}),
            "match.path",
            json!({"exact": "/login"}),
        ),
        (
            json!({"match": {"path": "/api/*"}}),
            json!({"match": {"path": {"glob": "/api/*"}}}),
            "match.path",
            json!({"glob": "/api/*"}),
        ),
        (
            json!({"match": {"paths": ["/a", {"prefix": "/b"}]}}),
            json!({"match": {"paths": [{"exact": "/a"}, {"prefix": "/b"}]}}),
            "match.paths[0]",
            json!({"exact": "/a"}),
        ),
        (
            json!({"match": {"method": "POST"}}),
            json!({"match": {"methods": ["POST"]}}),
            "match.methods",
            json!(["POST"]),
        ),
        (
            json!({"match": {"method": ["GET", "HEAD"]}}),
            json!({"match": {"methods": ["GET", "HEAD"]}}),
            "match.methods",
            json!(["GET", "HEAD"]),
        ),
        (
            json!({"match": {"methods": "POST"}}),
            json!({"match": {"methods": ["POST"]}}),
            "match.methods",
            json!(["POST"]),
        ),
        (
            json!({"match": {"hosts": "x.example"}}),
            json!({"match": {"hosts": ["x.example"]}}),
            "match.hosts",
            json!(["x.example"]),
        ),
        (json!({"key": "client_address"}), json!({}), "key", json!(["client_address"])),
        (json!({"key": {"header": "x"}}), json!({"key": [{"header": "x"}]}), "key", json!([{"header": "x"}])),
        (json!({"burst": "10"}), json!({"burst": 10}), "burst", json!(10)),
        (
            json!({"response": {"headers": "retry_after"}}),
            json!({"response": {"headers": ["retry_after"]}}),
            "response.headers",
            json!(["retry_after"]),
        ),
    ] {
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
fn a_short_form_is_checked_as_the_full_one_is() {
    for (fields, error) in [
        (json!({"match": {"path": "login"}}), "match.path: expected a path that begins with /"),
        (json!({"match": {"path": ""}}), "match.path: expected text of 1 to 1024 bytes, found \"\""),
        (json!({"match": {"methods": 7}}), "match.methods: expected text of 1 to 32 bytes, found 7"),
        (
            json!({"match": {"method": "GET", "methods": ["GET"]}}),
            "match.methods: expected either method or methods",
        ),
        (
            json!({"match": {"hosts": "a:80"}}),
            "match.hosts: expected a host without its port, as in api.example.com or *.example.com, found \"a:80\"",
        ),
        (json!({"burst": "0"}), "burst: expected a whole number from 1 to 1000000, found \"0\""),
        (json!({"burst": "ten"}), "burst: expected a whole number from 1 to 1000000, found \"ten\""),
    ] {
        assert_eq!(read(&with(&fields)).0.unwrap_err(), [format!("rules[0].{error}")], "{fields}");
    }
}

#[test]
fn a_slip_and_another_limiters_field_get_the_form_that_was_meant() {
    for (fields, errors) in [
        (json!({"brust": 5}), vec!["brust: unknown field: did you mean burst?"]),
        (json!({"match": {"heders": []}}), vec!["match.heders: unknown field: did you mean headers?"]),
        (json!({"match": {"host": "x"}}), vec!["match.host: unknown field: did you mean hosts?"]),
        (
            json!({"limit": 100, "window": "60s", "rate": null}),
            vec![
                "limit: expected only with algorithm: concurrency",
                "rate: missing: expected a rate, as in 50/s",
                "rate: empty: expected a value, or no such field",
                "window: unknown field: did you mean rate: 100/m?",
            ],
        ),
        (
            json!({"requests_per_unit": 5, "unit": "HOUR"}),
            vec![
                "requests_per_unit: unknown field: did you mean rate: 5/h?",
                "unit: unknown field: did you mean rate: 5/h?",
            ],
        ),
        (
            json!({"requests": 90, "window": 90}),
            vec![
                "requests: unknown field: did you mean rate: 90/90s?",
                "window: unknown field: did you mean rate: 90/90s?",
            ],
        ),
        (json!({"window": "soon"}), vec!["window: unknown field: did you mean rate, as in 100/m?"]),
        (
            json!({"rate_limit": {"unit": "minute", "requests_per_unit": "7"}}),
            vec!["rate_limit: unknown field: did you mean rate: 7/m?"],
        ),
        (json!({"shadow": true}), vec!["shadow: unknown field: did you mean mode: shadow?"]),
        (json!({"path": "/login"}), vec!["path: unknown field: did you mean match: {path: /login}?"]),
        (json!({"methods": ["POST"]}), vec!["methods: unknown field: did you mean match: {methods: ...}?"]),
        (json!({"ip": "1.2.3.4"}), vec!["ip: unknown field: did you mean key: [client_address]?"]),
        (json!({"match": {"ip": "1.2.3.4"}}), vec!["match.ip: unknown field: did you mean addresses?"]),
        (json!({"key": "ip"}), vec!["key: unknown part: did you mean client_address?"]),
        (json!({"key": ["remote_address"]}), vec!["key[0]: unknown part: did you mean client_address?"]),
        (json!({"key": "x-api-key"}), vec!["key: unknown part: did you mean {header: x-api-key}?"]),
        (json!({"key": {"ip": "x"}}), vec!["key.ip: unknown field: did you mean client_address?"]),
    ] {
        let expected: Vec<_> = errors.iter().map(|error| format!("rules[0].{error}")).collect();
        let mut found = read(&with(&fields)).0.unwrap_err();
        found.sort();
        let mut expected = expected;
        expected.sort();
        assert_eq!(found, expected, "{fields}");
    }
}

#[test]
fn many_unknown_fields_are_not_all_compared() {
    let long = |i: usize| (format!("{}{i}", "when_unsynce".repeat(400)), json!(1));
    let document = json!({"rules": with(&(0..2_000).map(long).collect::<Value>())["rules"]});
    assert_eq!(read(&document).0.unwrap_err().len(), ERRORS_MAX);
}

#[test]
fn whole_numbers_may_be_doubles() {
    assert_eq!(whole_number(&json!(100.0)), Some(100));
    assert_eq!(whole_number(&json!(1e2)), Some(100));
    assert_eq!(whole_number(&json!(100.5)), None);
    assert_eq!(whole_number(&json!(-1.0)), None);
    assert_eq!(whole_number(&json!(1e300)), None);
    for (text, number) in
        [("100", Some(100)), ("", None), ("+1", None), (" 1", None), ("18446744073709551616", None)]
    {
        assert_eq!(whole_number(&json!(text)), number, "{text:?}");
    }
}

#[test]
fn an_unknown_field_is_taken_for_the_nearest_name() {
    let known = ["burst", "match", "key", "rate", "on_sync_loss"];
    for (name, near) in [
        ("brust", Some("burst")),
        ("keys", Some("key")),
        ("rte", Some("rate")),
        ("on_sync_los", Some("on_sync_loss")),
        ("extra", None),
        ("no_such_field", None),
        ("x", None),
    ] {
        assert_eq!(nearest(&known, name).as_deref(), near, "{name}");
    }
    assert_eq!(nearest(&[], "a"), None);
}

// I9
#[test]
fn an_unknown_field_names_the_known_ones() {
    let (value, errors) = (json!({"a": 1, "c": 2}), ErrorCollector::default());
    let item = Item::new(&value, "here", &errors);
    let mut fields = item.fields().unwrap();
    assert_eq!(fields.number("a", 0..=9), Some(1));
    assert_eq!(fields.boolean("b"), None);
    fields.finish();
    assert_eq!(
        errors.into_result(Some(())).unwrap_err(),
        vec![ConfigError { place: "here.c".into(), problem: "unknown field: expected a, b".into() }]
    );
}

// I2
#[test]
fn errors_are_bounded_in_number_and_length() {
    let (value, errors) = (json!("y".repeat(10_000)), ErrorCollector::default());
    for _ in 0..1_000 {
        Item::new(&value, "x", &errors).record_unexpected("less");
    }
    let noted = errors.into_result(Some(())).unwrap_err();
    assert_eq!(noted.len(), ERRORS_MAX);
    assert!(noted.iter().all(|e| e.problem.len() < 200));
    assert_eq!(noted.last().unwrap().problem, "and more errors follow");
}
