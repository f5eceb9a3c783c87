//! The limits of a rule set: the largest works, and a larger one is refused with the place and the expectation.
#![cfg(not(target_arch = "wasm32"))]

use serde_json::{Value, json};
use weir_limiter::check::DecisionKind;
use weir_limiter::limiter::Limiter;
use weir_limiter::table::{HashSecret, LocalSlots, TableIdentity};
use weir_protocol::messages::RULE_NAME_MAX;
use weir_protocol::time::Time;
use weir_rules::RuleSet;
use weir_rules::config::PluginConfig;
use weir_rules::document::{self, DOCUMENT_BYTES_MAX};
use weir_rules::reading::ConfigError;
use weir_rules::request::{Attribute, Request};

const RULES_MAX: usize = 1_000;
const ENTRIES_MAX: usize = 10_000;

/// A request for this path, with one header, from this address.
struct Asks(String, String, &'static str);

impl Request for Asks {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::SourceAddress => Some(self.2.into()),
            Attribute::Method => Some(b"GET".to_vec()),
            Attribute::Path => Some(self.0.clone().into_bytes()),
            Attribute::Header(_) => Some(self.1.clone().into_bytes()),
            _ => None,
        }
    }
}

fn asks(path: &str) -> Asks {
    Asks(path.into(), String::new(), "192.0.2.1")
}

/// True if a rule of one request counts these requests: the first is let through, and the second is limited.
fn counts(rules: &RuleSet, ask: impl Fn() -> Asks) -> bool {
    let identity = TableIdentity { secret: HashSecret::new([7; 16]), table_id: 1 };
    let (mut limiter, mut slots) = (Limiter::new(rules.clone(), identity, None), LocalSlots::new(64));
    let mut outcome = || limiter.decide(&mut ask(), &mut slots, Time::from_nanos(1 << 50)).outcome();
    [outcome(), outcome()] == [DecisionKind::Allow, DecisionKind::Limit]
}

/// A rule of one request a day, with these fields changed.
fn rule(name: usize, fields: &Value) -> Value {
    let mut rule = json!({"name": format!("r{name}"), "key": ["client_address"], "rate": "1/d"});
    rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    rule
}

fn parse(document: &Value) -> Result<RuleSet, Vec<String>> {
    document::parse(document.to_string().as_bytes()).map_err(|errors| texts(&errors))
}

fn texts(errors: &[ConfigError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// A rule set with one rule, which has this `match`.
fn matching(condition: &Value) -> Result<RuleSet, Vec<String>> {
    parse(&json!({"rules": [rule(0, &json!({"match": condition}))]}))
}

fn at_path(n: usize) -> Value {
    json!({"match": {"path": {"exact": format!("/{n}")}}})
}

fn rules_at_paths(count: usize) -> Value {
    json!({"rules": (0..count).map(|n| rule(n, &at_path(n))).collect::<Vec<_>>()})
}

// I2
#[test]
fn a_thousand_rules_work_and_one_more_is_refused() {
    let text = rules_at_paths(RULES_MAX).to_string();
    let rules = document::parse(text.as_bytes()).unwrap();
    assert_eq!(rules.rules().len(), RULES_MAX);
    assert!(counts(&rules, || asks("/999")));
    assert!(!counts(&rules, || asks("/1000")));
    let expected = ["rules: expected a list of 1 to 1000 rules, found a list"];
    assert_eq!(parse(&rules_at_paths(RULES_MAX + 1)).unwrap_err(), expected);
    let config = PluginConfig::parse(rules_at_paths(RULES_MAX + 1).to_string().as_bytes());
    assert_eq!(config.map_err(|errors| texts(&errors)).err().unwrap(), expected);
    assert_eq!(parse(&rules_at_paths(0)).unwrap_err(), expected);
}

// I2
#[test]
fn rules_beyond_the_maximum_are_not_made() {
    let tiers: Vec<_> =
        (0..20).map(|n| json!({"name": format!("t{n}"), "when": {"methods": ["PUT"]}, "times": 2})).collect();
    let wider: Vec<_> = (1..5).map(|n| json!({"ipv4": 8 * n - 7, "times": 2})).collect();
    let of = |n: usize| {
        let mut rule = rule(n, &json!({"tiers": tiers, "also_by_prefix": wider}));
        // From the tenth on there is no room for the names of the rules that tiers make, an error once they are made.
        let name = if n < 9 { format!("r{n}") } else { format!("r{n}{:x<60}", "") };
        rule["name"] = name[..name.len().min(RULE_NAME_MAX)].into();
        rule
    };
    let found = parse(&json!({"rules": (0..500).map(of).collect::<Vec<_>>()})).unwrap_err();
    let expected = "rules: expected at most 1000 rules with those that tiers and also_by_prefix make, found 52500";
    assert_eq!(found, [expected]);
}

// I2
#[test]
fn a_list_has_at_most_ten_thousand_entries() {
    let addresses = |count: usize| {
        let list = (0..count).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256));
        matching(&json!({"addresses": list.collect::<Vec<_>>()}))
    };
    let rules = addresses(ENTRIES_MAX).unwrap();
    assert!(counts(&rules, || Asks("/".into(), String::new(), "10.39.15.9")));
    assert!(!counts(&rules, || Asks("/".into(), String::new(), "10.39.16.9")));
    let expected = "rules[0].match.addresses: expected a list of 1 to 10000 items, found 10001";
    assert_eq!(addresses(ENTRIES_MAX + 1).unwrap_err(), [expected]);

    let values = |count: usize| {
        let list: Vec<_> = (0..count).map(|n| format!("v{n}")).collect();
        matching(&json!({"headers": [{"name": "x", "in": list}]}))
    };
    let rules = values(ENTRIES_MAX).unwrap();
    assert!(counts(&rules, || Asks("/".into(), "v9999".into(), "192.0.2.1")));
    assert!(!counts(&rules, || Asks("/".into(), "v10000".into(), "192.0.2.1")));
    let expected = "rules[0].match.headers[0].in: expected a list of 1 to 10000 items, found 10001";
    assert_eq!(values(ENTRIES_MAX + 1).unwrap_err(), [expected]);
}

/// A document of exactly `bytes` bytes, filled up by a list of values.
fn of_bytes(bytes: usize) -> Vec<u8> {
    let list: Vec<_> = (0..2_000).map(|n| format!("{n:0>512}")).collect();
    let document = json!({"rules": [rule(0, &json!({"match": {"headers": [{"name": "x", "in": list}]}}))]});
    let mut text = document.to_string().into_bytes();
    assert!(text.len() > bytes * 9 / 10, "{} bytes", text.len());
    text.resize(bytes, b' ');
    text
}

// I2
#[test]
fn a_mebibyte_works_and_one_byte_more_is_refused() {
    let rules = document::parse(&of_bytes(DOCUMENT_BYTES_MAX)).unwrap();
    assert!(counts(&rules, || Asks("/".into(), format!("{:0>512}", 1_999), "192.0.2.1")));
    let errors = texts(&document::parse(&of_bytes(DOCUMENT_BYTES_MAX + 1)).unwrap_err());
    assert_eq!(errors, ["expected a rule set of at most 1048576 bytes, found 1048577"]);
}

// I2
#[test]
fn regular_expressions_are_bounded() {
    let regex = |regex: &str| matching(&json!({"headers": [{"name": "x", "regex": regex}]}));
    let place = "rules[0].match.headers[0].regex: expected";
    let rules = regex(&"a".repeat(256)).unwrap();
    assert!(counts(&rules, || Asks("/".into(), "a".repeat(256), "192.0.2.1")));
    let found = regex(&"a".repeat(257)).unwrap_err();
    assert!(found[0].starts_with(&format!("{place} text of 1 to 256 bytes, found")), "{found:?}");
    let nested = |depth: usize| regex(&format!("{}a{}", "(".repeat(depth), ")".repeat(depth)));
    assert!(nested(15).is_ok());
    for wrong in [nested(20), regex("(a{1,1000}){1,1000}"), regex("(")] {
        let found = wrong.unwrap_err();
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with(&format!("{place} a regular expression within bounds: ")), "{found:?}");
    }
    // A value above 1 KiB is not searched, so the request is counted.
    let rules = regex("b$").unwrap();
    assert!(!counts(&rules, || Asks("/".into(), "a".repeat(1_024), "192.0.2.1")));
    assert!(counts(&rules, || Asks("/".into(), "a".repeat(1_025), "192.0.2.1")));
}

// I2
#[test]
fn globs_and_paths_are_bounded() {
    let path = |path: Value| matching(&json!({"path": path}));
    let glob = |bytes: usize| path(json!({"glob": format!("/{}*", "a".repeat(bytes - 2))}));
    assert!(glob(255).is_ok());
    let found = glob(256).unwrap_err();
    assert!(found[0].starts_with("rules[0].match.path.glob: expected text of 1 to 255 bytes"), "{found:?}");
    // No glob is tried on a longer path, so it is counted.
    let rules = path(json!({"glob": "/**/b"})).unwrap();
    assert!(!counts(&rules, || asks(&format!("/{}", "a".repeat(2_047)))));
    assert!(counts(&rules, || asks(&format!("/{}", "a".repeat(2_048)))));
}

#[test]
fn a_wrong_rate_is_quoted_only_in_part() {
    for rate in [json!("7".repeat(10_000)), json!({"any": vec!["5/m"; 5_000]}), json!(vec![1; 5_000])] {
        for algorithm in ["token_bucket", "fixed_window", "quota"] {
            let fields = json!({"algorithm": algorithm, "rate": rate});
            let found = parse(&json!({"rules": [rule(0, &fields)]})).unwrap_err();
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("rules[0].rate: expected ") && found[0].len() < 300, "{found:?}");
        }
    }
}
