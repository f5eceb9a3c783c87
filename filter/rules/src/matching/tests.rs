mod agreement;
mod searches;
mod spellings;
mod unsure;

use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::RuleSet;
use crate::reading::ErrorCollector;
use crate::request::{Attribute, Fetched, HOST_BYTES_MAX, QUERY_BYTES_MAX, Request, Values};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::string::ToString;
use std::vec;

/// A request as a map of its attributes; notes which of them it is asked for.
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
                claim = std::format!("claim {}", names.join("."));
                &claim
            }
        };
        self.asked.push(name.into());
        self.has.get(name).cloned()
    }
}

/// A rule set with these conditions.
pub(super) fn rules(conditions: &[Value]) -> RuleSet {
    let rule = |(i, condition): (usize, &Value)| json!({"name": i.to_string(), "match": condition, "key": ["client_address"], "rate": "1/s"});
    let rules: Vec<_> = conditions.iter().enumerate().map(rule).collect();
    let errors = ErrorCollector::default();
    let rules = RuleSet::parse(&json!(rules), "rules", &errors);
    errors.into_result(rules).unwrap()
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
fn nothing_asked_for_holds_always() {
    assert!(holds(&json!({}), &[]));
}

#[test]
fn the_query_is_no_part_of_the_path() {
    let exact = json!({"path": {"exact": "/login"}});
    assert!(holds(&exact, &[("path", "/login?a=/x")]));
    assert!(!holds(&exact, &[("path", "/login/x")]));
    let prefix = json!({"path": {"prefix": "/api"}});
    assert!(holds(&prefix, &[("path", "/api/v1")]));
    assert!(!holds(&prefix, &[("path", "/x?/api")]));
    let glob = json!({"paths": [{"glob": "/a/*/b"}, {"exact": "/c"}]});
    assert!(holds(&glob, &[("path", "/a/x/b?y")]));
    assert!(holds(&glob, &[("path", "/c")]));
    assert!(!holds(&glob, &[("path", "/a/x/c")]));
}

#[test]
fn every_field_must_hold_and_one_item_of_a_list() {
    let both = json!({"methods": ["POST", "PUT"], "path": {"exact": "/x"}, "routes": ["r", "s"]});
    assert!(holds(&both, &[("method", "PUT"), ("path", "/x"), ("route", "s")]));
    assert!(!holds(&both, &[("method", "GET"), ("path", "/x"), ("route", "s")]));
    assert!(!holds(&both, &[("method", "PUT"), ("path", "/y"), ("route", "s")]));
    assert!(!holds(&both, &[("method", "PUT"), ("path", "/x"), ("route", "t")]));
    assert!(!holds(&both, &[]));
}

#[test]
fn what_the_host_does_not_have_meets_no_test_but_its_absence() {
    for positive in [
        json!({"hosts": ["a"]}),
        json!({"methods": ["GET"]}),
        json!({"path": {"prefix": "/"}}),
        json!({"path": {"glob": "/**"}}),
        json!({"headers": [{"name": "x", "equals": "a"}]}),
        json!({"headers": [{"name": "x", "present": true}]}),
        json!({"headers": [{"name": "x", "regex": "a*"}]}),
        json!({"cookies": [{"name": "x", "equals": "a"}]}),
        json!({"cookies": [{"name": "x", "present": true}]}),
        json!({"query": [{"name": "x", "in": ["a"]}]}),
        json!({"claims": [{"name": ["x"], "regex": "a*"}]}),
        json!({"claims": [{"name": ["x"], "present": true}]}),
        json!({"addresses": ["0.0.0.0/0", "::/0"]}),
        json!({"routes": ["a"]}),
    ] {
        assert!(!holds(&positive, &[]), "{positive}");
        assert!(holds(&json!({"not": positive}), &[]), "not {positive}");
        assert!(!holds(&json!({"any": [positive]}), &[]), "any {positive}");
    }
    for absence in [
        json!({"headers": [{"name": "x", "present": false}]}),
        json!({"cookies": [{"name": "x", "present": false}]}),
        json!({"query": [{"name": "x", "present": false}]}),
        json!({"claims": [{"name": ["x"], "present": false}]}),
    ] {
        assert!(holds(&absence, &[]), "{absence}");
        let has = [("x", ""), ("cookie", "y=1; x="), ("path", "/?x"), ("claim x", "")];
        assert!(!holds(&absence, &has), "{absence}");
    }
}

#[test]
fn an_address_is_read_as_the_host_writes_it() {
    let net = json!({"addresses": ["10.0.0.0/8", "2001:db8::/32"]});
    for (address, expected) in [
        ("10.1.2.3:567", true),
        ("[::ffff:10.1.2.3]:567", true),
        ("[2001:db8::1]:5", true),
        ("11.0.0.1:5", false),
        ("/run/a.sock", false),
    ] {
        assert_eq!(holds(&net, &[("address", address)]), expected, "{address}");
    }
}

#[test]
fn any_and_not_are_asked_beside_the_rest() {
    let condition = json!({
        "methods": ["GET"],
        "any": [{"path": {"prefix": "/a"}}, {"headers": [{"name": "X-Tier", "equals": "gold"}]}],
        "not": {"query": [{"name": "debug", "equals": "1"}]},
    });
    for (has, expected) in [
        (&[("method", "GET"), ("path", "/a")][..], true),
        (&[("method", "GET"), ("path", "/b"), ("x-tier", "gold")], true),
        (&[("method", "GET"), ("path", "/b")], false),
        (&[("method", "PUT"), ("path", "/a")], false),
        (&[("method", "GET"), ("path", "/a?debug=1")], false),
        (&[("method", "GET"), ("path", "/a?debug=2")], true),
    ] {
        assert_eq!(holds(&condition, has), expected, "{has:?}");
    }
}

#[test]
fn a_cookie_and_a_claim_are_tested_as_they_are() {
    let cookie =
        json!({"cookies": [{"name": "plan", "in": ["gold", "vip"]}, {"name": "sid", "regex": "^[0-9]+$"}]});
    for (header, expected) in [
        ("plan=gold; sid=12", true),
        ("a=b;sid=1;plan= vip ", true),
        // Nobody can say which of the two counts, so the rule counts the request.
        ("plan=gold; plan=free; sid=1", true),
        ("plan=free; plan=gold; sid=1", true),
        ("plan=free; plan=no; sid=1", false),
        ("plan=gold", false),
        ("Plan=gold; sid=1", false),
        ("xplan=gold; sid=1", false),
        ("plan=%67old; sid=1", false),
    ] {
        assert_eq!(holds(&cookie, &[("cookie", header)]), expected, "{header}");
    }
    let claim = json!({"claims": [{"name": ["payload", "plan"], "equals": "gold"}]});
    assert!(holds(&claim, &[("claim payload.plan", "gold")]));
    assert!(!holds(&claim, &[("claim payload.plan", "Gold")]));
    assert!(!holds(&claim, &[("claim plan", "gold"), ("plan", "gold")]));
}

#[test]
fn a_host_of_more_than_253_bytes_still_matches_by_its_suffix() {
    let long = "a.".repeat(300) + "example.com";
    assert!(holds(&json!({"hosts": ["*.example.com"]}), &[("host", &long)]));
    let end = &long[long.len() - HOST_BYTES_MAX..];
    assert!(!holds(&json!({"hosts": [end.trim_start_matches('.')]}), &[("host", &long)]));
}

#[test]
fn what_no_condition_needs_is_never_asked_for() {
    let cases = [
        (vec![json!({})], &[][..]),
        (vec![json!({"methods": ["GET"]}), json!({})], &["method"]),
        // The path rules out the only rule that asks for a header.
        (
            vec![
                json!({"path": {"prefix": "/a"}, "headers": [{"name": "x", "equals": "1"}]}),
                json!({"path": {"exact": "/b"}}),
            ],
            &["path"],
        ),
        (vec![json!({"methods": ["PUT"], "path": {"prefix": "/b"}, "hosts": ["a"]})], &["method"]),
        (vec![json!({"addresses": ["::/0"]}), json!({"addresses": ["::1"]})], &["address"]),
        (vec![json!({"any": [{"routes": ["r"]}, {"hosts": ["a"]}]})], &["route"]),
        (vec![json!({"path": {"prefix": "/a"}, "claims": [{"name": ["x"], "present": true}]})], &["path"]),
        (
            vec![
                json!({"cookies": [{"name": "a", "present": false}], "claims": [{"name": ["x"], "present": true}]}),
            ],
            &["cookie", "claim x"],
        ),
        (
            vec![
                json!({"cookies": [{"name": "a", "present": true}], "claims": [{"name": ["x"], "present": true}]}),
            ],
            &["cookie"],
        ),
    ];
    for (conditions, expected) in cases {
        let mut sample = Sample::of(&[
            ("method", "GET"),
            ("path", "/b"),
            ("host", "a"),
            ("route", "r"),
            ("address", "::1"),
        ]);
        met(&rules(&conditions), &mut sample);
        assert_eq!(sample.asked, expected, "{conditions:?}");
    }
}

#[test]
fn a_thousand_rules_come_out_in_their_order() {
    let conditions: Vec<_> = (0..1_000)
        .map(|i| match i % 4 {
            0 => json!({"path": {"prefix": std::format!("/{}", i % 8)}}),
            1 => json!({"hosts": [std::format!("*.{i}.example")]}),
            2 => json!({"methods": ["GET"], "path": {"glob": "/0/*"}}),
            _ => json!({"paths": [{"exact": std::format!("/{i}")}, {"prefix": "/0/"}]}),
        })
        .collect();
    let rules = rules(&conditions);
    let (indexed, plain) =
        met(&rules, &mut Sample::of(&[("path", "/0/x"), ("method", "GET"), ("host", "a.9.example")]));
    assert_eq!(indexed, plain);
    assert_eq!(plain.len(), 125 + 1 + 250 + 250);
    assert!(plain.is_sorted());
}

#[test]
fn many_conditions_on_a_claim_are_found_by_its_value() {
    let condition = |i: usize| {
        json!({"claims": [{"name": ["domain"], "equals": "shop"}, {"name": ["entries"], "in": [(i % 10).to_string(), "all"]},
            {"name": ["entry"], "equals": (i / 10).to_string()}]})
    };
    let rules = rules(&(0..200).map(condition).collect::<Vec<_>>());
    let index = Index::new(rules.rules().iter().map(|rule| &*rule.matches));
    for (domain, entries, entry, expected) in [
        ("shop", "7", "12", vec![127]),
        ("shop", "all", "12", (120..130).collect()),
        ("shop", "7", "20", vec![]),
        ("shop", "none", "12", vec![]),
        ("bank", "7", "12", vec![]),
    ] {
        let has = [("claim domain", domain), ("claim entries", entries), ("claim entry", entry)];
        let (mut sample, mut values, mut found) = (Sample::of(&has), Values::default(), Bits::default());
        index.candidates(&mut Fetched::new(&mut sample, rules.attributes(), &mut values), &mut found);
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{has:?}");
        let (indexed, plain) = met(&rules, &mut Sample::of(&has));
        assert_eq!(indexed, plain);
    }
    // A claim that few ask for is not fetched for the index.
    let mut sample = Sample::of(&[("claim domain", "bank")]);
    met(&rules, &mut sample);
    assert_eq!(sample.asked, ["claim domain"]);
}
