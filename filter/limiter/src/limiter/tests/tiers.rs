//! Tiers: another quota, or none, for some of a rule's requests.

use super::*;
use std::string::ToString;
use std::vec::Vec;
use weir_rules::reading::ERRORS_MAX;

/// A request of one client with this plan.
struct Plan(&'static str);

impl Request for Plan {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::SourceAddress => Some(b"192.0.2.1".to_vec()),
            Attribute::Header(name) if name == "x-plan" && !self.0.is_empty() => Some(self.0.into()),
            _ => None,
        }
    }
}

fn rule(fields: &Value) -> Value {
    let plan = |plan: &str| json!({"headers": [{"name": "x-plan", "equals": plan}]});
    let mut rule = json!({"name": "r", "key": ["client_address"], "rate": "10/h", "tiers": [
        {"name": "gold", "when": plan("gold"), "times": 3},
        {"name": "slow", "when": plan("slow"), "rate": "2/h"},
        {"name": "free", "when": plan("free"), "unlimited": true},
        {"name": "late", "when": {"headers": [{"name": "x-plan", "in": ["gold", "late"]}]}, "times": 2},
    ]});
    rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    rule
}

fn admitted_of(limiter: &mut Limiter, plan: &'static str) -> usize {
    let mut slots = LocalSlots::new(16);
    let mut decide = || limiter.decide(&mut Plan(plan), &mut slots, T0).outcome() == DecisionKind::Allow;
    (0..100).filter(|_| decide()).count()
}

#[test]
fn the_first_tier_whose_condition_holds_replaces_the_quota() {
    for algorithm in ["token_bucket", "fixed_window", "sliding_window"] {
        let set = rules(&json!([rule(&json!({"algorithm": algorithm}))]));
        let plans = ["", "gold", "slow", "free", "late", "other"];
        let admitted = plans.map(|plan| admitted_of(&mut limiter(set.clone(), None), plan));
        assert_eq!(admitted, [10, 30, 2, 100, 20, 10], "{algorithm}");
    }
}

// I3
#[test]
fn a_tier_has_its_own_bucket_and_wider_prefixes() {
    let wider = json!({"also_by_prefix": [{"ipv4": 24, "times": 1}]});
    let set = rules(&json!([rule(&wider), {"name": "all", "key": ["client_address"], "rate": "50/h"}]));
    let names: Vec<_> = set.rules().iter().map(|rule| rule.name.as_str()).collect();
    let expected =
        ["r.gold", "r.gold.w1", "r.slow", "r.slow.w1", "r.free", "r.free.w1", "r.late", "r.late.w1", "r", "r.w1"];
    assert_eq!(names[..10], expected);
    let (mut limiter, mut slots) = (limiter(set, None), LocalSlots::new(16));
    let mut admitted = |plan| {
        let mut decide = || limiter.decide(&mut Plan(plan), &mut slots, T0).outcome() == DecisionKind::Allow;
        (0..100).filter(|_| decide()).count()
    };
    // Each tier has its own tokens, and the other rule counts all requests.
    assert_eq!([admitted(""), admitted("gold"), admitted("free")], [10, 30, 10]);
}

/// A rule that counts each plan of each client, with these tiers.
fn by_plan(tiers: &Value) -> Value {
    rule(&json!({"key": ["client_address", {"header": "x-plan"}], "tiers": tiers}))
}

#[test]
fn a_tier_may_be_for_values_of_the_key() {
    let late = json!({"addresses": ["192.0.2.0/24"]});
    let set = rules(&json!([by_plan(&json!([
        {"name": "free", "keys": ["free"], "unlimited": true},
        {"name": "big", "keys": ["gold", "vip", "free"], "times": 3},
        {"name": "own", "keys": ["slow"], "rate": "2/h"},
        {"name": "here", "when": late, "keys": ["late"], "times": 2},
        {"name": "elsewhere", "when": {"not": late}, "keys": ["other"], "times": 2},
    ]))]));
    let plans = ["", "gold", "vip", "slow", "free", "late", "other", "gol", "Gold"];
    let admitted = plans.map(|plan| admitted_of(&mut limiter(set.clone(), None), plan));
    // Without a plan the key lacks a part, so no bucket counts the request.
    assert_eq!(admitted, [100, 30, 30, 2, 100, 20, 10, 10, 10]);
}

#[test]
fn a_list_of_more_than_ten_thousand_values_is_refused() {
    let tiers = |n: usize| {
        let keys: Vec<_> = (0..n).map(|i| std::format!("account-{i}")).collect();
        json!([{"name": "big", "keys": keys, "times": 3}])
    };
    let set = rules(&json!([by_plan(&tiers(10_000))]));
    let plans = ["account-0", "account-5000", "account-9999", "account-10000", "account-"];
    let admitted = plans.map(|plan| admitted_of(&mut limiter(set.clone(), None), plan));
    assert_eq!(admitted, [30, 30, 30, 10, 10]);
    let errors = ErrorCollector::default();
    let read = RuleSet::parse(&json!([by_plan(&tiers(10_001))]), "rules", &errors);
    let errors: Vec<_> = errors.into_result(read).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["rules[0].tiers[0].keys: expected a list of 1 to 10000 items, found 10001"]);
}

#[test]
fn a_malformed_list_of_key_values_is_refused() {
    let one = "rules[0].tiers[0].keys: expected a key with one part beside client_address, whose values these are";
    for (key, keys, expected) in [
        (json!(["all"]), json!(["a"]), one),
        (json!(["client_address"]), json!(["192.0.2.1"]), one),
        (json!(["host", "method"]), json!(["a"]), one),
        (json!(["host"]), json!([]), "rules[0].tiers[0].keys: expected a list of 1 to 10000 items, found 0"),
        (json!(["host"]), json!(["a", ""]), "rules[0].tiers[0].keys[1]: expected text of 1 to 1024 bytes, found \"\""),
        (json!(["host"]), json!([7]), "rules[0].tiers[0].keys[0]: expected text of 1 to 1024 bytes, found 7"),
    ] {
        let errors = ErrorCollector::default();
        let tiers = json!([{"name": "a", "keys": keys, "times": 2}]);
        let read = RuleSet::parse(&json!([rule(&json!({"key": key, "tiers": tiers}))]), "rules", &errors);
        let errors: Vec<_> = errors.into_result(read).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(errors, [expected], "{key} {keys}");
    }
}

#[test]
fn a_malformed_tier_is_refused_at_its_place() {
    let errors = |tiers: Value| -> Vec<String> {
        let errors = ErrorCollector::default();
        let read = RuleSet::parse(&json!([rule(&json!({"tiers": tiers, "cost": 3}))]), "rules", &errors);
        let errors = errors.into_result(read).unwrap_err();
        assert!(errors.len() < ERRORS_MAX);
        errors.iter().map(ToString::to_string).collect()
    };
    let when = json!({"methods": ["GET"]});
    let one = "rules[0].tiers[0]: expected one of times, rate and unlimited: true";
    assert_eq!(errors(json!([{"name": "a", "when": when}])), [one]);
    assert_eq!(errors(json!([{"name": "a", "when": when, "times": 2, "rate": "1/s"}])), [one]);
    for (tier, expected) in [
        (json!({"when": when, "times": 2}), "rules[0].tiers[0].name: missing: expected the tier's name"),
        (
            json!({"name": "a", "times": 2}),
            "rules[0].tiers[0]: missing: expected when, a condition, as in {headers: [{name: x-plan, equals: gold}]}, \
             or keys, a list of the key's values, or both",
        ),
        (
            json!({"name": "a", "keys": ["b"], "times": 2}),
            "rules[0].tiers[0].keys: expected a key with one part beside client_address, whose values these are",
        ),
        (
            json!({"name": "a", "when": when, "times": 0}),
            "rules[0].tiers[0].times: expected a whole number from 1 to 1000, found 0",
        ),
        (
            json!({"name": "a", "when": when, "rate": "9"}),
            "rules[0].tiers[0].rate: expected a whole number from 1 to 1000000, then /s, /m, /h or /d, as in \
             \"50/s\" or \"5/15m\", found \"9\"",
        ),
        (
            json!({"name": "a", "when": when, "rate": "2/s"}),
            "rules[0].tiers[0]: expected room for a request that costs 3",
        ),
        (
            json!({"name": "a", "when": when, "times": 2, "key": []}),
            "rules[0].tiers[0].key: unknown field: did you mean keys?",
        ),
    ] {
        assert_eq!(errors(json!([tier.clone()])), [expected], "{tier}");
    }
    let twice = json!([{"name": "a", "when": when, "times": 2}, {"name": "a", "when": when, "times": 3}]);
    assert_eq!(errors(twice)[0], "rules[0].tiers[1].name: another tier has the name \"a\"");
}
