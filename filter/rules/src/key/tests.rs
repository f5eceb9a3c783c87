use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::key::KeyValue;
use crate::key::fleet_secret::FleetSecret;
use crate::matching::Holds;
use crate::reading::ErrorCollector;
use crate::request::{Attribute, Fetched, Request, Values};
use crate::{RuleSet, document};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::string::ToString;
use std::vec;

const SECRET: FleetSecret = FleetSecret::new([5; 16]);

/// A request with these attributes, and a list of those that were fetched.
#[derive(Default)]
struct Has {
    values: Vec<(Attribute, Vec<u8>)>,
    asked: Vec<Attribute>,
}

impl Has {
    fn with(mut self, attribute: Attribute, value: &str) -> Self {
        self.values.push((attribute, value.into()));
        self
    }
}

impl Request for Has {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        self.asked.push(attribute.clone());
        let found = self.values.iter().find(|(known, _)| known == attribute);
        found.map(|(_, value)| value.clone())
    }
}

fn header(name: &str) -> Attribute {
    Attribute::Header(name.into())
}

fn parsed(key: &Value) -> Result<RuleSet, Vec<String>> {
    let errors = ErrorCollector::default();
    let rules = document::read(&json!({"rules": [{"name": "r", "key": key, "rate": "1/s"}]}), &errors);
    errors.into_result(rules).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn value(key: &Value, request: &mut Has) -> Result<KeyValue, MissingPart> {
    let (rules, mut values) = (parsed(key).unwrap(), Values::default());
    let mut fetched = Fetched::new(request, rules.attributes(), &mut values);
    rules.rules()[0].key.value(&mut fetched, &SECRET)
}

/// True if two values of an attribute make the same key; `None` if both requests lack the part.
fn same(part: &Value, attribute: &Attribute, values: [&str; 2]) -> Option<bool> {
    let [a, b] = values.map(|text| value(&json!([part]), &mut Has::default().with(attribute.clone(), text)));
    if a.is_err() && b.is_err() { None } else { Some(a == b) }
}

#[test]
fn each_part_distinguishes_its_values_and_nothing_else() {
    use Attribute::{Authority, Claim, Method, Path, Route, SourceAddress};
    let claim = Claim(vec!["payload".into(), "sub".into()]);
    let cases = [
        (json!("client_address"), SourceAddress, "192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1"),
        (json!({"client_address": {"ipv4": 24}}), SourceAddress, "192.0.2.1", "192.0.2.9", "192.0.3.1"),
        (json!({"header": "X-Api-Key"}), header("x-api-key"), "a", "a", "A"),
        (json!({"cookie": "sid"}), header("cookie"), "sid=1; b=2", "b=3;sid=1", "sid=2; b=2"),
        (json!({"query": "q"}), Path, "/a?q=%61b", "/b?x&q=ab", "/a?q=Ab"),
        (json!("host"), Authority, "example.com", "EXAMPLE.com:8080", "www.example.com"),
        (json!("method"), Method, "GET", "GET", "get"),
        (json!("path"), Path, "/a/b?x=1", "/a/b?x=2", "/a/c?x=1"),
        (json!({"path_segments": 2}), Path, "/a/b/c?x", "//a/b/d", "/a/c/c?x"),
        (json!({"path_segments": 2}), Path, "/a", "/a/", "/a/b"),
        (json!("route"), Route, "r", "r", "r2"),
        // One path, one host and one credential, however they are written.
        (json!("path"), Path, "/login", "/;a/LOGIN%20/?b", "/logins"),
        (json!("path"), Path, "/login", "/x/%2e%2e;/login", "/.../login"),
        (json!("path"), Path, "/login", "/y/..%3b/login/", "/login/a"),
        (json!("path"), Path, "/login", "/login/a/..", "/"),
        (json!({"path_segments": 1}), Path, "/a/b", "/A;x/c", "/ab/c"),
        (json!("host"), Authority, "example.com", "example.com.", "b@example.com"),
        (json!("host"), Authority, "a@example.com", "example.com..", "example.com"),
        (json!("host"), Authority, "a@example.com", "example.com,b", "example.com"),
        (json!({"header": "Authorization"}), header("authorization"), "Bearer aB", " BEARER\t  aB ", "Bearer ab"),
        (json!({"header": "x-key"}), header("x-key"), "Bearer a", "Bearer a", "bearer a"),
        (json!({"jwt_claim": ["payload", "sub"]}), claim, "me", "me", "you"),
    ];
    for (part, attribute, one, alike, other) in cases {
        assert_eq!(same(&part, &attribute, [one, alike]), Some(true), "{part} {one} {alike}");
        assert_eq!(same(&part, &attribute, [one, other]), Some(false), "{part} {one} {other}");
        let lacks = value(&json!([part]), &mut Has::default());
        let missing = if attribute == SourceAddress { MissingPart::ClientAddress } else { MissingPart::Other };
        assert_eq!(lacks, Err(missing), "{part}");
    }
}

#[test]
fn an_empty_part_is_not_a_missing_part() {
    let empty = value(&json!([{"header": "a"}]), &mut Has::default().with(header("a"), ""));
    assert!(empty.is_ok_and(|value| ![KeyValue::LACKING, KeyValue::ALL].contains(&value)));
    let no_cookie = value(&json!([{"cookie": "a"}]), &mut Has::default().with(header("cookie"), "b=1"));
    assert_eq!(no_cookie, Err(MissingPart::Other));
    let unreadable = Has::default().with(Attribute::SourceAddress, "/run/envoy.sock");
    assert_eq!(value(&json!(["client_address"]), &mut { unreadable }), Err(MissingPart::ClientAddress));
}

#[test]
fn only_parts_are_fetched_and_all_has_none() {
    let mut request = Has::default();
    assert_eq!(value(&json!(["all"]), &mut request), Ok(KeyValue::ALL));
    assert_eq!(request.asked, []);
    let mut request = Has::default().with(header("a"), "1").with(Attribute::SourceAddress, "192.0.2.1");
    value(&json!([{"header": "a"}]), &mut request).unwrap();
    assert_eq!(request.asked, [header("a")]);
}

#[test]
fn an_address_stays_readable_and_the_rest_is_hidden() {
    let request = || Has::default().with(Attribute::SourceAddress, "192.0.2.7").with(header("token"), "very-secret");
    let address = value(&json!(["client_address"]), &mut request()).unwrap();
    let both = value(&json!([{"header": "token"}, {"client_address": {"ipv4": 24}}]), &mut request()).unwrap();
    assert_eq!(address.as_bytes(), [4, 32, 192, 0, 2, 7]);
    let of = |address: &str, prefixes| KeyValue::of_address(address.parse().unwrap(), prefixes);
    assert_eq!(of("192.0.2.7", Prefixes { ipv4: 20, ipv6: 64 }).as_bytes(), [4, 20, 192, 0, 0]);
    let ipv6 = of("2001:db8:1:2::9", Prefixes::default());
    assert_eq!(ipv6.as_bytes(), [6, 64, 0x20, 1, 0x0d, 0xb8, 0, 1, 0, 2]);
    assert_eq!((&both.as_bytes()[..6], both.as_bytes().len()), (&[4, 24, 192, 0, 2, 1][..], 22));
    assert_eq!(KeyValue::from_bytes(both.as_bytes()), Some(both));
}

#[test]
fn a_short_value_leaves_in_clear_if_configured() {
    let of = |rule: Value, text: &str| {
        let errors = ErrorCollector::default();
        let rules = document::read(&json!({"rules": [rule]}), &errors);
        let rules = errors.into_result(rules).map_err(|errors| errors[0].to_string())?;
        let mut request = Has::default().with(Attribute::SourceAddress, "2001:db8::7").with(header("user"), text);
        let mut values = Values::default();
        let mut fetched = Fetched::new(&mut request, rules.attributes(), &mut values);
        Ok(rules.rules()[0].key.value(&mut fetched, &SECRET).unwrap().as_bytes().to_vec())
    };
    let rule = |key: Value, log_key: bool| json!({"name": "r", "key": key, "rate": "1/s", "log_key": log_key});
    let (user, both) = (json!([{"header": "user"}]), json!([{"header": "user"}, {"client_address": {"ipv6": 128}}]));
    assert_eq!(of(rule(user.clone(), true), "anna"), Ok::<_, String>(b"\x07anna".to_vec()));
    assert_eq!(of(rule(user.clone(), true), ""), Ok(b"\x07".to_vec()));
    let with_address = of(rule(both.clone(), true), "anna").unwrap();
    assert_eq!(KeyValue::clear_part(&with_address), Some((&with_address[..18], &b"anna"[..])));
    for (key, fits) in [(user.clone(), 63), (both, 45)] {
        let [whole, hashed] = [fits, fits + 1].map(|len| of(rule(key.clone(), true), &"a".repeat(len)).unwrap());
        assert_eq!((whole.len(), KeyValue::clear_part(&hashed)), (64, None), "{key}");
        assert_eq!(hashed[hashed.len() - 17], 1, "a hash");
    }
    assert_eq!(of(rule(user, false), "anna").unwrap()[0], 1);
}

/// A part of this kind and name as it is written, and the attribute that has its value.
fn written(kind: u8, name: &str) -> (Value, Attribute) {
    match kind {
        0 => (json!("client_address"), Attribute::SourceAddress),
        1 => (json!("method"), Attribute::Method),
        2 => (json!("route"), Attribute::Route),
        3 => (json!({"jwt_claim": [name]}), Attribute::Claim(vec![name.into()])),
        4 => (json!({"jwt_claim": [name, "a"]}), Attribute::Claim(vec![name.into(), "a".into()])),
        _ => (json!({"header": name}), header(name)),
    }
}

proptest! {
    /// Two lists of parts with values make the same key only if the parts and the values are the same, wherever the
    /// address stands.
    #[test]
    fn no_two_combinations_collide(
        lists in prop::collection::vec(
            prop::collection::btree_map((0u8..6, "[ab]{1,2}"), "[ab.1]{0,3}", 1..4), 2..12,
        ),
    ) {
        let mut known: BTreeMap<Vec<u8>, Vec<(String, String)>> = BTreeMap::new();
        for list in lists {
            let mut request = Has::default();
            let mut parts: BTreeMap<String, (Value, String)> = BTreeMap::new();
            for ((kind, name), text) in list {
                let (part, attribute) = written(kind, &name);
                // Few addresses, so that some are equal.
                let text = if kind == 0 { std::format!("192.0.2.{}", text.len()) } else { text };
                if let Entry::Vacant(place) = parts.entry(part.to_string()) {
                    request = request.with(attribute, &text);
                    place.insert((part, text));
                }
            }
            let key: Vec<_> = parts.values().map(|(part, _)| part.clone()).collect();
            let value = value(&Value::Array(key), &mut request).unwrap();
            let plain: Vec<_> = parts.into_iter().map(|(part, (_, text))| (part, text)).collect();
            prop_assert!(![KeyValue::LACKING, KeyValue::ALL].contains(&value));
            let other = known.insert(value.as_bytes().to_vec(), plain.clone());
            prop_assert!(other.as_ref().is_none_or(|other| *other == plain), "{:?} and {:?}", other, plain);
        }
    }
}

/// True if the list has the request's value of the key's only part.
fn is_among(key: &Value, list: &[&str], request: &mut Has) -> bool {
    let (rules, mut values) = (parsed(key).unwrap(), Values::default());
    let key = &rules.rules()[0].key;
    let list = list.iter().map(|text| key.as_requests_have(text, rules.attributes())).collect();
    key.is_among(&list, &mut Fetched::new(request, rules.attributes(), &mut values)) == Holds::Yes
}

#[test]
fn a_list_is_searched_for_canonical_values() {
    let claim = Attribute::Claim(vec!["sub".into()]);
    for (part, attribute, found, other) in [
        (json!({"header": "x"}), header("x"), "acme", "Acme"),
        (json!({"header": "authorization"}), header("authorization"), "BEARER aB", "bearer ab"),
        (json!({"cookie": "sid"}), header("cookie"), "a=b; sid=acme", "a=acme"),
        (json!({"query": "q"}), Attribute::Path, "/?q=%61cme", "/acme"),
        (json!("host"), Attribute::Authority, "ACME:80", "acme.example"),
        (json!("method"), Attribute::Method, "acme", "ACME"),
        (json!("path"), Attribute::Path, "acme?x", "/acme"),
        (json!({"path_segments": 1}), Attribute::Path, "//acme/b", "/b/acme"),
        (json!("route"), Attribute::Route, "acme", "acm"),
        (json!({"jwt_claim": ["sub"]}), claim, "acme", ""),
    ] {
        let list = ["big-co", if part == "host" { "Acme" } else { "acme" }, "Bearer  aB"];
        for key in [json!([part]), json!(["client_address", part])] {
            let has = |value| Has::default().with(attribute.clone(), value);
            assert!(is_among(&key, &list, &mut has(found)), "{key} {found}");
            assert!(!is_among(&key, &list, &mut has(other)), "{key} {other}");
            assert!(!is_among(&key, &list, &mut Has::default()), "{key} without it");
        }
    }
    let segments = |path| Has::default().with(Attribute::Path, path);
    let two = json!([{"path_segments": 2}]);
    for (path, expected) in [("/api/v1/x", true), ("/api//v1", true), ("/api", false), ("/api/v2", false)] {
        assert_eq!(is_among(&two, &["api/v1"], &mut segments(path)), expected, "{path}");
    }
    let several = json!([{"header": "x"}, "host"]);
    assert!(!is_among(&several, &["acme"], &mut Has::default().with(header("x"), "acme")));
}

#[test]
fn a_rule_picks_one_of_several_values() {
    for (kind, attribute, values) in [
        ("header", header("k"), ["a, b", "a", "b", ""]),
        ("header", header("k"), ["a\nb", "a", "b", ""]),
        ("cookie", header("cookie"), ["k=a; k=b", "k=a", "k=b", "x=a"]),
        ("cookie", header("cookie"), ["x=a\nk=a\nk=b", "k=a", "k=b", "x=a"]),
        ("query", Attribute::Path, ["/?k=a&k=b", "/?k=a", "/?k=b", "/?x=a"]),
    ] {
        let of = |duplicates: Option<&str>, value_of: &str| {
            let mut part = json!({kind: "k"});
            part.as_object_mut().unwrap().extend(duplicates.map(|which| ("duplicates".into(), json!(which))));
            value(&json!([part]), &mut Has::default().with(attribute.clone(), value_of))
        };
        let [both, a, b, none] = values;
        assert_eq!(of(Some("first"), both), of(None, a), "{kind}");
        assert_eq!(of(Some("last"), both), of(None, b), "{kind}");
        assert_eq!(of(Some("limit"), both), Err(MissingPart::Repeated), "{kind}");
        assert_eq!(of(Some("limit"), a), of(None, a), "{kind}");
        if kind != "header" {
            assert_eq!(of(None, both), of(None, a), "{kind}");
            assert_eq!(of(Some("limit"), none), Err(MissingPart::Other), "{kind}");
        }
    }
}

#[test]
fn a_key_joins_the_lines_of_a_header() {
    let of = |part: &Value, value_of: &str| {
        value(&json!([part]), &mut Has::default().with(header("authorization"), value_of)).unwrap()
    };
    let plain = json!({"header": "authorization"});
    assert_eq!(of(&plain, "BEARER  a\nBasic  b"), of(&plain, "bearer a,basic b"));
    let last = json!({"header": "authorization", "duplicates": "last"});
    assert_eq!(of(&last, "x, BEARER   a"), of(&plain, "bearer a"), "each value is normalised");
    let is_among = |lines: &str| {
        let (rules, mut values) = (parsed(&json!([{"header": "x"}])).unwrap(), Values::default());
        let (gold, mut has) = (["gold".to_string()].into_iter().collect(), Has::default().with(header("x"), lines));
        rules.rules()[0].key.is_among(&gold, &mut Fetched::new(&mut has, rules.attributes(), &mut values))
    };
    assert_eq!(["gold", "a\ngold", "a\nb"].map(is_among), [Holds::Yes, Holds::Unsure, Holds::No]);
}
