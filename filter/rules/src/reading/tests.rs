//! Forms that people write: the short ones, and those of other limiters.

use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use serde_json::{Value, json};

use super::meant::nearest;
use super::struct_value::whole_number;
use super::{ConfigError, ERRORS_MAX, ErrorCollector, Item, ShortForm};
use crate::tests::table;
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

/// Short forms, each with its full form, and what is shown of that at which place.
const SHORT_FORMS: &str = r#"
{"rate": "100/minute"}
    {}
    rate "100/m"
{"rate": "100/min"}
    {}
    rate "100/m"
{"rate": "10/second"}
    {"rate": "10/s"}
    rate "10/s"
{"rate": "5/hour"}
    {"rate": "5/h"}
    rate "5/h"
{"rate": "1000/day"}
    {"rate": "1000/d", "burst": 1000}
    rate "1000/d"
{"algorithm": "quota", "rate": "1000/d"}
    {"algorithm": "quota", "rate": "1000/day"}
    rate "1000/day"
{"match": {"path": "/login"}}
    {"match": {"path": {"exact": "/login"}}}
    match.path {"exact": "/login"}
{"match": {"path": "/api/*"}}
    {"match": {"path": {"glob": "/api/*"}}}
    match.path {"glob": "/api/*"}
{"match": {"paths": ["/a", {"prefix": "/b"}]}}
    {"match": {"paths": [{"exact": "/a"}, {"prefix": "/b"}]}}
    match.paths[0] {"exact": "/a"}
{"match": {"method": "POST"}}
    {"match": {"methods": ["POST"]}}
    match.methods ["POST"]
{"match": {"method": ["GET", "HEAD"]}}
    {"match": {"methods": ["GET", "HEAD"]}}
    match.methods ["GET", "HEAD"]
{"match": {"methods": "POST"}}
    {"match": {"methods": ["POST"]}}
    match.methods ["POST"]
{"match": {"hosts": "x.example"}}
    {"match": {"hosts": ["x.example"]}}
    match.hosts ["x.example"]
{"key": "client_address"}
    {}
    key ["client_address"]
{"key": {"header": "x"}}
    {"key": [{"header": "x"}]}
    key [{"header": "x"}]
{"burst": "10"}
    {"burst": 10}
    burst 10
{"response": {"headers": "retry_after"}}
    {"response": {"headers": ["retry_after"]}}
    response.headers ["retry_after"]
"#;

#[test]
fn a_short_form_means_the_same_as_the_full_one() {
    for (short, told) in table(SHORT_FORMS) {
        let [full, shown] = told.as_slice() else { panic!("{short}") };
        let (at, shown) = shown.split_once(' ').unwrap();
        let full = serde_json::from_str(full).unwrap();
        let shown: Value = serde_json::from_str(shown).unwrap();
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

/// Fields of a rule, each with its errors. Short forms are checked as full ones are; slips, and fields of other
/// limiters, get the form that was meant.
const ERRORS: &str = r#"
{"match": {"path": "login"}}
    match.path: expected a path that begins with /
{"match": {"path": ""}}
    match.path: expected text of 1 to 1024 bytes, found ""
{"match": {"methods": 7}}
    match.methods: expected text of 1 to 32 bytes, found 7
{"match": {"method": "GET", "methods": ["GET"]}}
    match.methods: expected either method or methods
{"match": {"hosts": "a:80"}}
    match.hosts: expected a host without its port, as in api.example.com or *.example.com, found "a:80"
{"burst": "0"}
    burst: expected a whole number from 1 to 1000000, found "0"
{"burst": "ten"}
    burst: expected a whole number from 1 to 1000000, found "ten"
{"brust": 5}
    brust: unknown field: did you mean burst?
{"match": {"heders": []}}
    match.heders: unknown field: did you mean headers?
{"match": {"host": "x"}}
    match.host: unknown field: did you mean hosts?
{"limit": 100, "window": "60s", "rate": null}
    limit: expected only with algorithm: concurrency
    rate: missing: expected a rate, as in 50/s
    rate: empty: expected a value, or no such field
    window: unknown field: did you mean rate: 100/m?
{"requests_per_unit": 5, "unit": "HOUR"}
    requests_per_unit: unknown field: did you mean rate: 5/h?
    unit: unknown field: did you mean rate: 5/h?
{"requests": 90, "window": 90}
    requests: unknown field: did you mean rate: 90/90s?
    window: unknown field: did you mean rate: 90/90s?
{"window": "soon"}
    window: unknown field: did you mean rate, as in 100/m?
{"rate_limit": {"unit": "minute", "requests_per_unit": "7"}}
    rate_limit: unknown field: did you mean rate: 7/m?
{"shadow": true}
    shadow: unknown field: did you mean mode: shadow?
{"path": "/login"}
    path: unknown field: did you mean match: {path: /login}?
{"methods": ["POST"]}
    methods: unknown field: did you mean match: {methods: ...}?
{"ip": "1.2.3.4"}
    ip: unknown field: did you mean key: [client_address]?
{"match": {"ip": "1.2.3.4"}}
    match.ip: unknown field: did you mean addresses?
{"key": "ip"}
    key: unknown part: did you mean client_address?
{"key": ["remote_address"]}
    key[0]: unknown part: did you mean client_address?
{"key": "x-api-key"}
    key: unknown part: did you mean {header: x-api-key}?
{"key": {"ip": "x"}}
    key.ip: unknown field: did you mean client_address?
{"key": [{"client_address": {"ipv6": 129}}]}
    key[0].client_address.ipv6: expected a whole number from 1 to 128, found 129
{"key": ["client_addres"]}
    key[0]: expected client_address or host or method or path or route or all, found "client_addres"
{"rate": "1/d", "burst": 500}
    burst: an empty bucket must fill within 400 days: lower the burst or raise the rate
{"response": {"status": 200, "headers": ["x"]}}
    response.status: expected a whole number from 400 to 599, found 200
    response.headers[0]: expected retry_after or ratelimit or x_ratelimit, found "x"
{"match": {"methods": [], "path": {"exact": "x"}}}
    match.methods: expected a list of 1 to 100 items, found 0
    match.path: expected a path that begins with /
{"match": {"path": {"exact": "x", "prefix": "/y"}}}
    match.path: expected exact, prefix or glob, as in {prefix: /api}
{"min_share": {}, "strict": "yes"}
    min_share: expected 1 to 32 regions and their parts, as in {eu: 30}, found an object
    strict: expected true or false, found "yes"
{"key": []}
    key: expected a list of 1 to 8 items, found 0
{"key": 7}
    key: expected an object, found 7
{"key": ["host", "all"]}
    key: expected all to be the only part: it is one bucket for every request
{"key": ["all", "all"]}
    key: expected all to be the only part: it is one bucket for every request
{"key": ["host", "host"]}
    key[1]: expected each part once
{"key": [{"header": "A"}, {"header": "a"}]}
    key[1]: expected each part once
{"key": ["client_address", {"client_address": {"ipv4": 24}}]}
    key[1]: expected client_address once: also_by_prefix counts by more prefixes of it
{"key": [{"header": ":path"}]}
    key[0].header: expected a header's name, as in x-api-key, found ":path"
{"key": [{"cookie": "a b"}]}
    key[0].cookie: expected a cookie's name, as in sid, found "a b"
{"key": [{"query": ""}]}
    key[0].query: expected text of 1 to 128 bytes, found ""
{"key": [{"path_segments": 17}]}
    key[0].path_segments: expected a whole number from 1 to 16, found 17
{"key": [{"jwt_claim": ["a\u0000b"]}]}
    key[0].jwt_claim[0]: expected a name without NUL
{"key": [{"jwt_claim": []}]}
    key[0].jwt_claim: expected a list of 1 to 8 items, found 0
{"key": [{"header": "a", "cookie": "b"}]}
    key[0]: expected one part, as in {header: x-api-key}
{"key": [{}]}
    key[0]: expected one part, as in {header: x-api-key}
{"key": [7]}
    key[0]: expected an object, found 7
{"key": [{"client_address": {"ipv4": 33}}]}
    key[0].client_address.ipv4: expected a whole number from 1 to 32, found 33
{"key": [{"head": "a"}]}
    key[0].head: unknown field: expected client_address, header, cookie, query, path_segments, jwt_claim
{"match": {"headers": [{"name": "a", "regex": "("}]}}
    match.headers[0].regex: expected a regular expression within bounds: found open group without closing ')', found
        "("
{"match": {"headers": [{"name": "a"}]}}
    match.headers[0]: expected one of equals, in, prefix, regex and present
{"match": {"headers": [{"name": "a", "equals": "b", "in": ["c"]}]}}
    match.headers[0]: expected one of equals, in, prefix, regex and present
{"match": {"headers": [{"equals": "b"}]}}
    match.headers[0].name: missing: expected the header's name
{"match": {"headers": [{"name": "A b", "equals": "b"}]}}
    match.headers[0].name: expected a header's name, as in x-api-key, found "A b"
{"match": {"headers": [{"name": "a", "present": "b"}]}}
    match.headers[0].present: expected true or false, found "b"
{"match": {"cookies": [{"name": "a;b", "equals": "b"}]}}
    match.cookies[0].name: expected a cookie's name, as in sid, found "a;b"
{"match": {"cookies": [{"present": true}]}}
    match.cookies[0].name: missing: expected the cookie's name
{"match": {"cookies": [{"name": "a"}]}}
    match.cookies[0]: expected one of equals, in, prefix, regex and present
{"match": {"claims": [{"present": true}]}}
    match.claims[0].name: missing: expected the names that lead to the claim, as in [payload, plan]
{"match": {"claims": [{"name": 7, "present": true}]}}
    match.claims[0].name: expected text of 1 to 128 bytes, found 7
{"match": {"claims": [{"name": ["a", "b\u0000"], "present": true}]}}
    match.claims[0].name[1]: expected a name without NUL
{"match": {"claims": [{"name": ["a"], "equals": 1}]}}
    match.claims[0].equals: expected text of 1 to 1024 bytes, found 1
{"match": {"claims": [{"name": ["a"], "regex": "("}]}}
    match.claims[0].regex: expected a regular expression within bounds: found open group without closing ')', found
        "("
{"match": {"query": [{"name": "a", "in": ["b", 1]}]}}
    match.query[0].in[1]: expected text of 1 to 1024 bytes, found 1
{"match": {"query": [{"name": "a", "contains": "b", "prefix": "c"}]}}
    match.query[0].contains: unknown field: expected name, equals, in, prefix, regex, present, duplicates
{"match": {"addresses": ["10.0.0.0/8", "10.0.0.0/33"]}}
    match.addresses[1]: expected an address or a network, as in 10.0.0.0/8 or 2001:db8::1, found "10.0.0.0/33"
{"match": {"addresses": ["10.0.0.1/8"]}}
    match.addresses[0]: expected a network whose address is zero behind its prefix, found "10.0.0.1/8"
{"match": {"hosts": ["a.*"]}}
    match.hosts[0]: expected a host without its port, as in api.example.com or *.example.com, found "a.*"
{"match": {"hosts": []}}
    match.hosts: expected a list of 1 to 100 items, found 0
{"match": {"paths": [{"glob": "*"}]}}
    match.paths[0]: expected a path that begins with /
{"match": {"path": {}}}
    match.path: expected exact, prefix or glob, as in {prefix: /api}
{"match": {"path": {"exact": "/a"}, "paths": [{"exact": "/b"}]}}
    match.paths: expected either path or paths
{"match": {"methods": [""]}}
    match.methods[0]: expected text of 1 to 32 bytes, found ""
{"match": {"routes": [7]}}
    match.routes[0]: expected text of 1 to 256 bytes, found 7
{"match": {"any": [{}]}}
    match.any[0]: empty: expected a condition, as in {path: {prefix: /api}}
{"match": {"not": {}}}
    match.not: empty: expected a condition, as in {path: {prefix: /api}}
{"match": {"addresses": null}}
    match.addresses: empty: expected a value, or no such field
{"match": {"any": [{"not": {"methods": ["GET"]}}]}}
    match.any[0].not: unknown field: expected method, methods, method_override, path, paths, hosts, routes, addresses,
        headers, cookies, query, claims
{"match": {"not": {"any": [{"methods": ["GET"]}]}}}
    match.not.any: unknown field: expected method, methods, method_override, path, paths, hosts, routes, addresses,
        headers, cookies, query, claims
{"match": {"site": ["a"]}}
    match.site: unknown field: expected method, methods, method_override, path, paths, hosts, routes, addresses,
        headers, cookies, query, claims, any, not, until_ms
{"rate": "10/s", "burst": 50, "cost": 51}
    cost: expected at most 50, the rule's burst: 51 is never admitted
{"rate": "10/s", "burst": 50, "local_burst": 20, "cost": 21}
    cost: expected at most 20, the rule's local_burst: 21 is never admitted
{"cost": 0}
    cost: expected a whole number from 1 to 1000000, found 0
{"rate": "10/s", "burst": 50, "cost": {"header": "a", "max": 51}}
    cost.max: expected at most 50, the rule's burst: 51 is never admitted
{"cost": {"header": "a", "max": 5, "default": 6}}
    cost.default: expected at most 5, as max is, found 6
{"cost": {"header": "a:"}}
    cost.header: expected a header's name, as in x-api-key, found "a:"
{"cost": {"max": 5}}
    cost.header: missing: expected a header's name
{"cost": {"header": "a", "most": 5}}
    cost.most: unknown field: expected header, default, max
{"rate": "10/s", "burst": 50, "local_burst": 40, "cost": {"after": {"status": [401]}, "reserve": 41}}
    cost.reserve: expected at most 40, the rule's local_burst: 41 is never admitted
{"cost": {"after": {"status": [401]}, "reserve": 0}}
    cost.reserve: expected a whole number from 1 to 1000000, found 0
{"cost": {"after": {"status": [401]}, "reserve": null}}
    cost.reserve: empty: expected a value, or no such field
{"burst": 50, "local_burst": 40, "cost": {"after": {"status": [401]}, "reserve": {"header": "a", "max": 41}}}
    cost.reserve.max: expected at most 40, the rule's local_burst: 41 is never admitted
{"cost": {"after": {"status": [401]}, "max": 5}}
    cost.max: unknown field: expected after, reserve
{"cost": {"after": null}}
    cost.after: empty: expected a value, or no such field
{"cost": {"after": {}}}
    cost.after: expected one of status, header, metadata and response_bytes_per, as in {status: [401]}
{"cost": {"after": {"status": [401], "header": "x"}}}
    cost.after: expected one of status, header, metadata and response_bytes_per, as in {status: [401]}
{"cost": {"after": {"status": [401, 99], "max": 4}}}
    cost.after.status[1]: expected a whole number from 100 to 599, found 99
    cost.after.max: expected only with header or metadata
{"cost": {"after": {"metadata": ["llm"]}}}
    cost.after.metadata: expected a namespace and a key, as in [llm, total_tokens]
{"cost": {"after": {"metadata": ["llm", "a\u0000b", ""]}}}
    cost.after.metadata[1]: expected a name without NUL
    cost.after.metadata[2]: expected text of 1 to 128 bytes, found ""
"#;

#[test]
fn every_error_has_its_place_and_says_what_was_expected() {
    for (fields, expected) in table(ERRORS) {
        let mut expected: Vec<_> = expected.iter().map(|error| format!("rules[0].{error}")).collect();
        let mut found = read(&with(&fields)).0.unwrap_err();
        found.sort();
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
