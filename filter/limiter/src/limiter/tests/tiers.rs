//! Tiers: another quota, or none, for some of a rule's requests.

use super::*;

/// A request of one client with this plan.
fn with_plan(plan: &str) -> Asks<'_> {
    let plan = Some(("x-plan", plan)).filter(|(_, plan)| !plan.is_empty());
    Asks([("source", "192.0.2.1")].into_iter().chain(plan).collect())
}

fn rule(fields: &Value) -> Value {
    let plan = |plan: &str| json!({"headers": [{"name": "x-plan", "equals": plan}]});
    changed(
        json!({"name": "r", "key": ["client_address"], "rate": "10/h", "tiers": [
            {"name": "gold", "when": plan("gold"), "times": 3},
            {"name": "slow", "when": plan("slow"), "rate": "2/h"},
            {"name": "free", "when": plan("free"), "unlimited": true},
            {"name": "late", "when": {"headers": [{"name": "x-plan", "in": ["gold", "late"]}]}, "times": 2},
        ]}),
        fields,
    )
}

fn admitted_of(limiter: &mut Limiter, plan: &'static str) -> usize {
    let mut slots = LocalSlots::new(16);
    let mut decide = || limiter.decide(&mut with_plan(plan), &mut slots, T0).outcome() == DecisionKind::Allow;
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
        let mut decide = || limiter.decide(&mut with_plan(plan), &mut slots, T0).outcome() == DecisionKind::Allow;
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
fn a_tier_may_be_for_ten_thousand_values() {
    let keys: Vec<_> = (0..10_000).map(|i| std::format!("account-{i}")).collect();
    let set = rules(&json!([by_plan(&json!([{"name": "big", "keys": keys, "times": 3}]))]));
    let plans = ["account-0", "account-5000", "account-9999", "account-10000", "account-"];
    let admitted = plans.map(|plan| admitted_of(&mut limiter(set.clone(), None), plan));
    assert_eq!(admitted, [30, 30, 30, 10, 10]);
}
