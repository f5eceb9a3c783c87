//! Conditions and their index, as rules and lists use them.

mod agreement;
mod spellings;
mod unsure;

use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::reading::{ConfigError, ErrorCollector};
use crate::request::{
    ATTRIBUTES_MAX, Attribute, Fetched, HOST_BYTES_MAX, QUERY_BYTES_MAX, Request, SEARCH_WORK_MAX, Values,
};
use crate::{Listed, RuleSet, document};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::string::ToString;
use std::{format, vec};

/// A request as a map of its attributes, with a list of those that were fetched.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) has: BTreeMap<String, Vec<u8>>,
    pub(super) asked: Vec<String>,
}

impl Sample {
    fn of(has: &[(&str, &str)]) -> Self {
        let has = has.iter().map(|(name, value)| ((*name).into(), value.as_bytes().into())).collect();
        Self { has, asked: vec![] }
    }
}

impl Request for Sample {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        let claim;
        let name = match attribute {
            Attribute::SourceAddress => "address",
            Attribute::Method => "method",
            Attribute::Path => "path",
            Attribute::Authority => "host",
            Attribute::Route => "route",
            Attribute::Header(name) => name,
            Attribute::Claim(names) => {
                claim = format!("claim {}", names.join("."));
                &claim
            }
        };
        self.asked.push(name.into());
        self.has.get(name).cloned()
    }
}

/// A rule set with these conditions.
pub(super) fn rules(conditions: &[Value]) -> RuleSet {
    try_rules(conditions).unwrap()
}

fn try_rules(conditions: &[Value]) -> Result<RuleSet, Vec<ConfigError>> {
    let rule = |(i, condition)| {
        let name = format!("r{i}");
        json!({"name": name, "match": condition, "key": ["client_address"], "rate": "1/s"})
    };
    let rules: Vec<_> = conditions.iter().enumerate().map(rule).collect();
    let errors = ErrorCollector::default();
    let rules = document::read(&json!({"rules": rules}), &errors);
    errors.into_result(rules)
}

/// Reads a rule set with one plain rule and these fields beside it.
fn listing(fields: &Value) -> RuleSet {
    let mut document = json!({"rules": [{"name": "a", "key": ["client_address"], "rate": "1/s"}]});
    document.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let errors = ErrorCollector::default();
    let rules = document::read(&document, &errors);
    errors.into_result(rules).unwrap()
}

/// The result of the lists of `document` for a request.
fn listed(fields: &Value, sample: &Sample) -> Listed {
    let (rules, mut sample, mut values) = (listing(fields), sample.clone(), Values::default());
    rules.listed(&mut Fetched::new(&mut sample, rules.attributes(), &mut values), &mut Bits::default())
}

/// The rules that a request meets: found by the index, and found by trying each rule.
pub(super) fn met(rules: &RuleSet, sample: &mut Sample) -> (Vec<u16>, Vec<u16>) {
    let (mut values, mut room, mut out) = (Values::default(), Bits::default(), vec![7]);
    let mut plain = sample.clone();
    let mut request = Fetched::new(&mut plain, rules.attributes(), &mut values);
    let holds = |(i, rule): (u16, &crate::Rule)| rule.matches.holds(&mut request).may().then_some(i);
    let without: Vec<u16> = (0..).zip(rules.rules()).filter_map(holds).collect();
    let mut request = Fetched::new(sample, rules.attributes(), &mut values);
    (rules.find_matches(&mut request, &mut room, &mut out).to_vec(), without)
}

fn holds(condition: &Value, has: &[(&str, &str)]) -> bool {
    let (indexed, plain) = met(&rules(core::slice::from_ref(condition)), &mut Sample::of(has));
    assert_eq!(indexed, plain);
    plain == [0]
}

#[test]
fn a_host_beyond_253_bytes_matches_by_its_suffix() {
    let long = "a.".repeat(300) + "example.com";
    assert!(holds(&json!({"hosts": ["*.example.com"]}), &[("host", &long)]));
    let end = &long[long.len() - HOST_BYTES_MAX..];
    assert!(!holds(&json!({"hosts": [end.trim_start_matches('.')]}), &[("host", &long)]));
}

#[test]
fn unneeded_attributes_are_never_fetched() {
    let cases = [
        (vec![json!({})], &[][..]),
        (vec![json!({"methods": ["GET"]}), json!({})], &["method"]),
        // The path rules out the only condition that asks for a header.
        (vec![json!({"path": {"prefix": "/a"}, "headers": [{"name": "x", "equals": "1"}]})], &["path"]),
        (vec![json!({"methods": ["PUT"], "path": {"prefix": "/b"}, "hosts": ["a"]})], &["method"]),
        (vec![json!({"addresses": ["::/0"]}), json!({"addresses": ["::1"]})], &["address"]),
        (vec![json!({"any": [{"routes": ["r"]}, {"hosts": ["a"]}]})], &["route"]),
        (vec![json!({"path": {"prefix": "/a"}, "claims": [{"name": ["x"], "present": true}]})], &["path"]),
        (vec![json!({"cookies": [{"name": "a", "present": true}], "routes": ["s"]})], &["route"]),
    ];
    for (conditions, expected) in cases {
        let mut sample =
            Sample::of(&[("method", "GET"), ("path", "/b"), ("host", "a"), ("route", "r"), ("address", "::1")]);
        met(&rules(&conditions), &mut sample);
        assert_eq!(sample.asked, expected, "{conditions:?}");
    }
}

// I2
#[test]
fn expressions_wildcards_and_attributes_are_limited() {
    let regex = |i: usize| json!({"query": [{"name": "a", "regex": i.to_string()}]});
    let large = |i: usize| json!({"query": [{"name": "a", "regex": format!("{i}(?:a?){{100}}")}]});
    let glob = |i: usize| json!({"path": {"glob": format!("/{i}{}", "/*".repeat(10))}});
    // Each claim and each header is an attribute; all cookies are one, their header. Five are always there.
    let claim = |i: usize| json!({"claims": [{"name": ["a", i.to_string()], "present": true}]});
    let header = |i: usize| json!({"headers": [{"name": format!("h{i}"), "present": true}]});
    let cookie = |i: usize| json!({"cookies": [{"name": format!("c{i}"), "present": true}]});
    let attributes = ATTRIBUTES_MAX - 5;
    let (regexes, wildcards, more) =
        ("that take at most 32768 bytes in all", "at most 4096 wildcards", "at most 995 headers");
    let limits = [
        (100, 300, &regex as &dyn Fn(usize) -> Value, regexes),
        (2, 4, &large, regexes),
        (409, 410, &glob, wildcards),
        (attributes, attributes + 1, &claim, more),
        (attributes, attributes + 1, &header, more),
        (1_000, 1_001, &cookie, "a list of 1 to 1000 rules"),
    ];
    for (fits, too_many, condition, expected) in limits {
        let read =
            |n: usize| try_rules(&(0..n).map(condition).collect::<Vec<_>>()).map_err(|errors| errors[0].to_string());
        assert!(read(fits).is_ok(), "{expected}");
        let error = read(too_many).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

/// The dearest rule set that is accepted refuses what it cannot search at a bounded cost.
#[test]
fn the_dearest_request_costs_a_bounded_amount_of_work() {
    let dear = "(a?b?c?d?e?f?g?h?i?j?){6}z$";
    let bytes = Pattern::new(dear, false).unwrap().program_bytes();
    let count = PROGRAMS_BYTES_MAX / bytes;
    let deny: Vec<_> = (0..count).map(|_| json!({"headers": [{"name": "x", "regex": dear}]})).collect();
    let rules = listing(&json!({"deny": deny}));
    for (value_bytes, expected) in
        [(REGEX_VALUE_BYTES_MAX, Listed::Blocked), (SEARCH_WORK_MAX / bytes / count, Listed::No)]
    {
        let (mut sample, mut values) = (Sample::of(&[("x", &"a".repeat(value_bytes))]), Values::default());
        let mut request = Fetched::new(&mut sample, rules.attributes(), &mut values);
        assert_eq!(rules.listed(&mut request, &mut Bits::default()), expected, "{value_bytes}");
        let work = SEARCH_WORK_MAX - request.search_work;
        assert!(work <= SEARCH_WORK_MAX && work + REGEX_VALUE_BYTES_MAX * bytes > SEARCH_WORK_MAX, "{work}");
    }
}
