use super::*;
use crate::config::PluginConfig;
use crate::request::ATTRIBUTES_MAX;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::format;
use std::string::ToString;
use std::vec;

/// The errors of a rule that has this condition.
fn errors_of(condition: &Value) -> Vec<String> {
    let config =
        json!({"rules": [{"name": "r", "match": condition, "key": ["client_address"], "rate": "1/s"}]});
    errors(&config)
}

fn errors(config: &Value) -> Vec<String> {
    let parsed = PluginConfig::parse(config.to_string().as_bytes());
    parsed.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn every_list_and_text_has_its_limit() {
    let texts = |n: usize| (0..n).map(|i| format!("t{i}")).collect::<Vec<_>>();
    let headers = |n: usize| {
        texts(n).into_iter().map(|name| json!({"name": name, "present": true})).collect::<Vec<_>>()
    };
    let claims = |n: usize| vec![json!({"name": ["a"], "present": true}); n];
    let networks = |n: usize| (0..n).map(|i| format!("10.0.{}.{}", i / 256, i % 256)).collect::<Vec<_>>();
    let anys = |n: usize| vec![json!({"methods": ["GET"]}); n];
    let paths = |n: usize| vec![json!({"exact": "/"}); n];
    let long = |n: usize| "a".repeat(n);
    let named = |field: &str, name: Value| json!({field: [{"name": name, "present": true}]});
    let tested = |field: &str, test: &str, value: Value| json!({field: [{"name": "a", test: value}]});
    let path = |n: usize| format!("/{}", long(n - 1));
    let limits: [(usize, &dyn Fn(usize) -> Value); 21] = [
        (100, &|n| json!({"hosts": texts(n)})),
        (100, &|n| json!({"methods": texts(n)})),
        (100, &|n| json!({"routes": texts(n)})),
        (100, &|n| json!({"paths": paths(n)})),
        (100, &|n| json!({"headers": headers(n)})),
        (100, &|n| json!({"query": headers(n)})),
        (100, &|n| json!({"cookies": headers(n)})),
        (100, &|n| json!({"claims": claims(n)})),
        (100, &|n| json!({"any": anys(n)})),
        (10_000, &|n| json!({"addresses": networks(n)})),
        (10_000, &|n| tested("headers", "in", json!(texts(n)))),
        (256, &|n| tested("query", "regex", json!(long(n)))),
        (1_024, &|n| tested("query", "equals", json!(long(n)))),
        (256, &|n| named("headers", json!(long(n)))),
        (256, &|n| named("cookies", json!(long(n)))),
        (128, &|n| named("claims", json!([long(n)]))),
        (8, &|n| named("claims", json!(texts(n)))),
        (253, &|n| json!({"hosts": [long(n)]})),
        (32, &|n| json!({"methods": [long(n)]})),
        (255, &|n| json!({"path": {"glob": path(n)}})),
        (1_024, &|n| json!({"path": {"exact": path(n)}})),
    ];
    for (most, condition) in limits {
        assert_eq!(errors_of(&condition(most)), Vec::<String>::new(), "{}", condition(1));
        assert_eq!(errors_of(&condition(most + 1)).len(), 1, "{}", condition(1));
    }
}

#[test]
fn a_rule_set_has_only_so_many_expressions_and_headers() {
    let rules = |n: usize, condition: &dyn Fn(usize) -> Value| {
        let rule = |i: usize| json!({"name": i.to_string(), "match": condition(i), "key": ["client_address"], "rate": "1/s"});
        json!({"rules": (0..n).map(rule).collect::<Vec<_>>()})
    };
    let regexes = |i: usize| json!({"query": [{"name": "a", "regex": format!("{i}")}]});
    assert_eq!(errors(&rules(100, &regexes)), Vec::<String>::new());
    let found = errors(&rules(300, &regexes));
    let asked = "expected regular expressions that take at most 32768 bytes in all, compiled; this one takes";
    assert!(found[0].contains(asked), "{found:?}");
    let large = |i: usize| json!({"query": [{"name": "a", "regex": format!("{i}(?:a?){{100}}")}]});
    assert_eq!(errors(&rules(2, &large)), Vec::<String>::new());
    assert!(errors(&rules(4, &large))[0].contains(asked));
    let globs = |i: usize| json!({"path": {"glob": format!("/{i}{}", "/*".repeat(10))}});
    assert_eq!(errors(&rules(409, &globs)), Vec::<String>::new());
    assert_eq!(
        errors(&rules(410, &globs)),
        ["rules[409].match.path: expected at most 4096 wildcards of globs in all"]
    );
    // Each claim is an attribute of its own; all cookies are one, their header. Five attributes are always there.
    let claims = |i: usize| json!({"claims": [{"name": ["a", format!("{i}")], "present": true}]});
    assert_eq!(errors(&rules(ATTRIBUTES_MAX - 5, &claims)), Vec::<String>::new());
    assert!(errors(&rules(ATTRIBUTES_MAX - 4, &claims))[0].contains("expected at most 1000 headers"));
    let cookies = |i: usize| json!({"cookies": [{"name": format!("c{i}"), "present": true}]});
    assert_eq!(errors(&rules(1_000, &cookies)), Vec::<String>::new());
    let headers = |i: usize| json!({"headers": [{"name": format!("h{i}"), "present": true}]});
    assert_eq!(errors(&rules(ATTRIBUTES_MAX - 5, &headers)), Vec::<String>::new());
    assert!(errors(&rules(ATTRIBUTES_MAX - 4, &headers))[0].contains("expected at most 1000 headers"));
}

#[test]
fn the_lists_above_the_rules_are_read() {
    let rule = json!({"name": "r", "key": ["client_address"], "rate": "1/s"});
    let condition = json!({"methods": ["GET"]});
    let good =
        json!({"rules": [rule], "enforce": false, "allow": [condition], "deny": [condition, condition]});
    let set = PluginConfig::parse(good.to_string().as_bytes()).unwrap().rules;
    assert_eq!((set.is_enforced(), set.allow().len(), set.deny().len()), (false, 1, 2));
    let plain = PluginConfig::parse(json!({"rules": [rule]}).to_string().as_bytes()).unwrap().rules;
    assert_eq!((plain.is_enforced(), plain.allow().len(), plain.deny().len()), (true, 0, 0));
    let bad = json!({"rules": [rule], "enforce": "no", "allow": [{}], "deny": [{"path": {"exact": "x"}}]});
    assert_eq!(
        errors(&bad),
        [
            "enforce: expected true or false, found \"no\"",
            "allow[0]: empty: expected a condition, as in {path: {prefix: /api}}",
            "deny[0].path: expected a path that begins with /",
        ]
    );
    let long = json!({"rules": [rule], "deny": vec![condition; CONDITIONS_MAX + 1]});
    assert_eq!(errors(&long), ["deny: expected a list of 1 to 100 items, found 101"]);
}

/// JSON that uses the fields of conditions, correctly or not.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        "[*./:\\[\\]0-9a-f]{0,12}".prop_map(Value::from),
        "[(){}|+?^$\\\\a-c0-9-]{0,12}".prop_map(Value::from),
    ];
    let words = "hosts methods path paths headers cookies query claims addresses routes any not \
                 name equals in prefix regex present exact glob other";
    let words = prop::sample::select(words.split(' ').collect::<Vec<_>>());
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(words.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|object| object.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_gives_a_rule_set_or_errors(condition in any_json(), list in any_json(), enforce in any_json()) {
        let config = json!({
            "rules": [{"name": "r", "match": condition, "key": ["client_address"], "rate": "1/s"}],
            "allow": list, "deny": [condition], "enforce": enforce,
        });
        let _ = PluginConfig::parse(config.to_string().as_bytes());
    }
}
