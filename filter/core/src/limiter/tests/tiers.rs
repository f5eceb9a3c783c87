//! Tiers: another quota, or none, for some of a rule's requests.

use super::*;
use crate::reading::ERRORS_MAX;
use std::string::ToString;
use std::vec::Vec;

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
    let mut decide = || limiter.decide(&mut Plan(plan), &mut slots, T0).outcome == Outcome::Allow;
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

#[test]
fn a_tier_has_a_bucket_of_its_own_and_the_wider_prefixes_of_its_rule() {
    let wider = json!({"wider": [{"ipv4": 24, "times": 1}]});
    let set = rules(&json!([rule(&wider), {"name": "all", "key": ["client_address"], "rate": "50/h"}]));
    let names: Vec<_> = set.rules().iter().map(|rule| rule.name.as_str()).collect();
    let expected = [
        "r.gold",
        "r.gold.w1",
        "r.slow",
        "r.slow.w1",
        "r.free",
        "r.free.w1",
        "r.late",
        "r.late.w1",
        "r",
        "r.w1",
    ];
    assert_eq!(names[..10], expected);
    let (mut limiter, mut slots) = (limiter(set, None), LocalSlots::new(16));
    let mut admitted = |plan| {
        let mut decide = || limiter.decide(&mut Plan(plan), &mut slots, T0).outcome == Outcome::Allow;
        (0..100).filter(|_| decide()).count()
    };
    // What one tier took, the next has; and the other rule counts them all.
    assert_eq!([admitted(""), admitted("gold"), admitted("free")], [10, 30, 10]);
}

#[test]
fn what_is_no_tier_is_refused_at_its_place() {
    let errors = |tiers: Value| -> Vec<String> {
        let mut errors = Errors::default();
        let read = RuleSet::parse(&json!([rule(&json!({"tiers": tiers, "cost": 3}))]), "rules", &mut errors);
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
            "rules[0].tiers[0].when: missing: expected a condition, as in {headers: [{name: x-plan, equals: gold}]}",
        ),
        (
            json!({"name": "a", "when": when, "times": 0}),
            "rules[0].tiers[0].times: expected a whole number from 1 to 1000, found 0",
        ),
        (
            json!({"name": "a", "when": when, "rate": "9"}),
            "rules[0].tiers[0].rate: expected a whole number from 1 to 1000000, then /s, /m, /h or /d, as in \"50/s\" or \"5/15m\", found \"9\"",
        ),
        (
            json!({"name": "a", "when": when, "rate": "2/s"}),
            "rules[0].tiers[0]: expected room for a request that costs 3",
        ),
        (
            json!({"name": "a", "when": when, "times": 2, "key": []}),
            "rules[0].tiers[0].key: unknown field: expected name, when, unlimited, times, rate",
        ),
    ] {
        assert_eq!(errors(json!([tier.clone()])), [expected], "{tier}");
    }
    let twice = json!([{"name": "a", "when": when, "times": 2}, {"name": "a", "when": when, "times": 3}]);
    assert_eq!(errors(twice)[0], "rules[0].tiers[1].name: another tier has the name \"a\"");
}
