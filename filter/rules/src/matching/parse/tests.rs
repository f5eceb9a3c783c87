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
fn every_error_has_its_place_and_says_what_was_expected() {
    for (condition, expected) in [
        (
            json!({"headers": [{"name": "a", "regex": "("}]}),
            "headers[0].regex: expected a regular expression within bounds: found open group without closing ')', found \"(\"",
        ),
        (
            json!({"headers": [{"name": "a"}, ]}),
            "headers[0]: expected one of equals, in, prefix, regex and present",
        ),
        (
            json!({"headers": [{"name": "a", "equals": "b", "in": ["c"]}]}),
            "headers[0]: expected one of equals, in, prefix, regex and present",
        ),
        (json!({"headers": [{"equals": "b"}]}), "headers[0].name: missing: expected the header's name"),
        (
            json!({"headers": [{"name": "A b", "equals": "b"}]}),
            "headers[0].name: expected a header's name, as in x-api-key, found \"A b\"",
        ),
        (
            json!({"headers": [{"name": "a", "present": "b"}]}),
            "headers[0].present: expected true or false, found \"b\"",
        ),
        (
            json!({"cookies": [{"name": "a;b", "equals": "b"}]}),
            "cookies[0].name: expected a cookie's name, as in sid, found \"a;b\"",
        ),
        (json!({"cookies": [{"present": true}]}), "cookies[0].name: missing: expected the cookie's name"),
        (
            json!({"cookies": [{"name": "a"}]}),
            "cookies[0]: expected one of equals, in, prefix, regex and present",
        ),
        (
            json!({"claims": [{"present": true}]}),
            "claims[0].name: missing: expected the names that lead to the claim, as in [payload, plan]",
        ),
        (
            json!({"claims": [{"name": 7, "present": true}]}),
            "claims[0].name: expected text of 1 to 128 bytes, found 7",
        ),
        (
            json!({"claims": [{"name": ["a", "b\0"], "present": true}]}),
            "claims[0].name[1]: expected a name without NUL",
        ),
        (
            json!({"claims": [{"name": ["a"], "equals": 1}]}),
            "claims[0].equals: expected text of 1 to 1024 bytes, found 1",
        ),
        (
            json!({"claims": [{"name": ["a"], "regex": "("}]}),
            "claims[0].regex: expected a regular expression within bounds: found open group without closing ')', found \"(\"",
        ),
        (
            json!({"query": [{"name": "a", "in": ["b", 1]}]}),
            "query[0].in[1]: expected text of 1 to 1024 bytes, found 1",
        ),
        (
            json!({"query": [{"name": "a", "contains": "b", "prefix": "c"}]}),
            "query[0].contains: unknown field: expected name, equals, in, prefix, regex, present, duplicates",
        ),
        (
            json!({"addresses": ["10.0.0.0/8", "10.0.0.0/33"]}),
            "addresses[1]: expected an address or a network, as in 10.0.0.0/8 or 2001:db8::1, found \"10.0.0.0/33\"",
        ),
        (
            json!({"addresses": ["10.0.0.1/8"]}),
            "addresses[0]: expected a network whose address is zero behind its prefix, found \"10.0.0.1/8\"",
        ),
        (
            json!({"hosts": ["a.*"]}),
            "hosts[0]: expected a host without its port, as in api.example.com or *.example.com, found \"a.*\"",
        ),
        (json!({"hosts": []}), "hosts: expected a list of 1 to 100 items, found 0"),
        (json!({"paths": [{"glob": "*"}]}), "paths[0]: expected a path that begins with /"),
        (json!({"path": {}}), "path: expected exact, prefix or glob, as in {prefix: /api}"),
        (
            json!({"path": {"exact": "/a"}, "paths": [{"exact": "/b"}]}),
            "paths: expected either path or paths",
        ),
        (json!({"methods": [""]}), "methods[0]: expected text of 1 to 32 bytes, found \"\""),
        (json!({"routes": [7]}), "routes[0]: expected text of 1 to 256 bytes, found 7"),
        (json!({"any": [{}]}), "any[0]: empty: expected a condition, as in {path: {prefix: /api}}"),
        (json!({"not": {}}), "not: empty: expected a condition, as in {path: {prefix: /api}}"),
        (json!({"addresses": null}), "addresses: empty: expected a value, or no such field"),
        (
            json!({"any": [{"not": {"methods": ["GET"]}}]}),
            "any[0].not: unknown field: expected method, methods, method_override, path, paths, hosts, routes, addresses, headers, \
             cookies, query, claims",
        ),
        (
            json!({"not": {"any": [{"methods": ["GET"]}]}}),
            "not.any: unknown field: expected method, methods, method_override, path, paths, hosts, routes, addresses, headers, \
             cookies, query, claims",
        ),
    ] {
        let found = errors_of(&condition);
        assert_eq!(found, [format!("rules[0].match.{expected}")], "{condition}");
    }
    let expected = "rules[0].match.site: unknown field: expected method, methods, method_override, path, paths, hosts, routes, \
                    addresses, headers, cookies, query, claims, any, not, until_ms";
    assert_eq!(errors_of(&json!({"site": ["a"]})), [expected]);
}

#[test]
fn everything_the_language_has_is_accepted() {
    let condition = json!({
        "hosts": ["api.example.com", "*.example.org", "[::1]"],
        "methods": ["GET", "POST"],
        "paths": [{"exact": "/login"}, {"prefix": "/api/"}, {"glob": "/users/*/posts/**"}],
        "headers": [{"name": "X-Tier", "equals": "gold"}, {"name": "x-a", "in": ["a", "b"]}, {"name": "x-b", "prefix": "y"},
            {"name": "x-c", "regex": "^[a-z]+$"}, {"name": "x-d", "present": false}],
        "cookies": [{"name": "sid", "present": true}, {"name": "plan", "in": ["gold", "silver"]}],
        "query": [{"name": "page", "equals": "1"}],
        "claims": [{"name": ["payload", "plan"], "equals": "gold"}, {"name": ["payload", "roles", "0"], "regex": "^a"}],
        "addresses": ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"],
        "routes": ["route-name"],
        "any": [{"methods": ["GET"]}, {"path": {"exact": "/login"}}],
        "not": {"hosts": ["a"]},
    });
    assert_eq!(errors_of(&condition), Vec::<String>::new());
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
    for (at_most, beyond) in [
        (json!({"hosts": texts(100)}), json!({"hosts": texts(101)})),
        (json!({"methods": texts(100)}), json!({"methods": texts(101)})),
        (json!({"routes": texts(100)}), json!({"routes": texts(101)})),
        (json!({"paths": paths(100)}), json!({"paths": paths(101)})),
        (json!({"headers": headers(100)}), json!({"headers": headers(101)})),
        (json!({"query": headers(100)}), json!({"query": headers(101)})),
        (json!({"cookies": headers(100)}), json!({"cookies": headers(101)})),
        (json!({"claims": claims(100)}), json!({"claims": claims(101)})),
        (json!({"any": anys(100)}), json!({"any": anys(101)})),
        (json!({"addresses": networks(10_000)}), json!({"addresses": networks(10_001)})),
        (
            json!({"headers": [{"name": "a", "in": texts(10_000)}]}),
            json!({"headers": [{"name": "a", "in": texts(10_001)}]}),
        ),
        (
            json!({"query": [{"name": "a", "regex": long(256)}]}),
            json!({"query": [{"name": "a", "regex": long(257)}]}),
        ),
        (
            json!({"query": [{"name": "a", "equals": long(1_024)}]}),
            json!({"query": [{"name": "a", "equals": long(1_025)}]}),
        ),
        (
            json!({"headers": [{"name": long(256), "present": true}]}),
            json!({"headers": [{"name": long(257), "present": true}]}),
        ),
        (
            json!({"cookies": [{"name": long(256), "present": true}]}),
            json!({"cookies": [{"name": long(257), "present": true}]}),
        ),
        (
            json!({"claims": [{"name": [long(128)], "in": texts(10_000)}]}),
            json!({"claims": [{"name": [long(129)], "in": texts(10_000)}]}),
        ),
        (
            json!({"claims": [{"name": texts(8), "present": true}]}),
            json!({"claims": [{"name": texts(9), "present": true}]}),
        ),
        (json!({"hosts": [long(253)]}), json!({"hosts": [long(254)]})),
        (json!({"methods": [long(32)]}), json!({"methods": [long(33)]})),
        (
            json!({"path": {"glob": format!("/{}", long(254))}}),
            json!({"path": {"glob": format!("/{}", long(255))}}),
        ),
        (
            json!({"path": {"exact": format!("/{}", long(1_023))}}),
            json!({"path": {"exact": format!("/{}", long(1_024))}}),
        ),
    ] {
        assert_eq!(errors_of(&at_most), Vec::<String>::new());
        assert_eq!(errors_of(&beyond).len(), 1, "{:?}", errors_of(&beyond));
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
    let words = prop::sample::select(vec![
        "hosts",
        "methods",
        "path",
        "paths",
        "headers",
        "cookies",
        "query",
        "claims",
        "addresses",
        "routes",
        "any",
        "not",
        "name",
        "equals",
        "in",
        "prefix",
        "regex",
        "present",
        "exact",
        "glob",
        "other",
    ]);
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
