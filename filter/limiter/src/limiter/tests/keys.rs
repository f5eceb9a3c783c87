//! Keys with several parts, requests that lack a part, and wider prefixes.

use super::*;
use crate::RuleIndex;
use std::format;

fn asks(address: &'static str, key: &'static str) -> Asks<'static> {
    Asks(vec![("source", address), ("key", key)])
}

fn outcomes(rule_set: &Value, requests: &mut [Asks<'_>]) -> (Vec<DecisionKind>, Limiter) {
    let (mut limiter, mut slots) = (limiter(rules(rule_set), None), LocalSlots::new(64));
    let outcomes = requests.iter_mut().map(|request| limiter.decide(request, &mut slots, T0).outcome());
    (outcomes.collect(), limiter)
}

fn by_both(missing: &str) -> Value {
    json!([{"name": "r", "key": ["client_address", {"header": "key"}], "missing": missing, "rate": "1/m"}])
}

#[test]
fn each_tuple_has_a_bucket() {
    let mut requests = [asks("10.0.0.1", "a"), asks("10.0.0.1", "b"), asks("10.0.0.2", "a"), asks("10.0.0.1", "a")];
    let (outcomes, _) = outcomes(&by_both("skip"), &mut requests);
    assert_eq!(outcomes, [DecisionKind::Allow, DecisionKind::Allow, DecisionKind::Allow, DecisionKind::Limit]);
}

/// Requests that lack the header, the address, and both; each twice.
fn lacking() -> Vec<Asks<'static>> {
    let lacking = [("source", "10.0.0.1"), ("key", "a"), ("source", "/run/sock")];
    lacking.into_iter().chain(lacking).map(|has| Asks(vec![has])).collect()
}

#[test]
fn missing_skip_leaves_incomplete_requests_uncounted() {
    let (outcomes, mut limiter) = outcomes(&by_both("skip"), &mut lacking());
    assert_eq!(outcomes, [DecisionKind::Allow; 6]);
    assert_eq!(limiter.counters().take_rule(0).allowed, 0);
    assert_eq!(limiter.counters().take_event(CountedEvent::AddressUnreadable), 4);
}

#[test]
fn missing_share_gives_incomplete_requests_one_bucket() {
    let mut requests = lacking();
    requests.push(asks("10.0.0.1", ""));
    let (outcomes, mut limiter) = outcomes(&by_both("share"), &mut requests);
    assert_eq!(outcomes[0], DecisionKind::Allow);
    assert_eq!(outcomes[1..6], [DecisionKind::Limit; 5]);
    assert_eq!(outcomes[6], DecisionKind::Allow);
    assert_eq!(limiter.counters().take_event(CountedEvent::AddressUnreadable), 4);
}

#[test]
fn missing_limit_refuses_incomplete_requests_at_once() {
    let (outcomes, mut lacks) = outcomes(&by_both("limit"), &mut lacking());
    assert_eq!(outcomes, [DecisionKind::Limit; 6]);
    assert_eq!((lacks.counters().take_rule(0).limited, lacks.counters().take_rule(0).limited), (6, 0));
    let (mut limiter, mut slots) = (limiter(rules(&by_both("limit")), None), LocalSlots::new(64));
    let refused = limiter.decide(&mut Asks(vec![]), &mut slots, T0);
    let status = BucketStatus { remaining: 0, more_ns: 60 * SECOND_NS, full_ns: 60 * SECOND_NS };
    assert_eq!(refused.strictest(), Some((RuleIndex::new(0), status)));
    // It took nothing from any rule.
    assert_eq!(limiter.decide(&mut asks("10.0.0.1", "a"), &mut slots, T0).outcome(), DecisionKind::Allow);
}

#[test]
fn a_rule_that_lacks_a_part_leaves_the_others_alone() {
    let two = json!([
        {"name": "by-key", "key": [{"header": "key"}], "rate": "1/m"},
        {"name": "by-address", "key": ["client_address"], "rate": "1/m", "burst": 2},
    ]);
    let lacks = || Asks(vec![("source", "10.0.0.1")]);
    let (outcomes, mut limiter) = outcomes(&two, &mut [lacks(), lacks(), lacks()]);
    assert_eq!(outcomes, [DecisionKind::Allow, DecisionKind::Allow, DecisionKind::Limit]);
    assert_eq!((limiter.counters().take_rule(0).allowed, limiter.counters().take_rule(1).allowed), (0, 2));
}

#[test]
fn all_is_one_bucket_for_everybody() {
    let all = json!([{"name": "r", "key": ["all"], "missing": "limit", "rate": "1/m", "burst": 2}]);
    let (outcomes, _) = outcomes(&all, &mut [asks("10.0.0.1", "a"), asks("10.0.0.2", "b"), Asks(vec![])]);
    assert_eq!(outcomes, [DecisionKind::Allow, DecisionKind::Allow, DecisionKind::Limit]);
}

fn widened() -> Value {
    json!([{"name": "r", "key": ["client_address"], "rate": "5/m", "also_by_prefix": [
        {"ipv4": 24, "ipv6": 48, "times": 4}, {"ipv4": 16, "times": 8},
    ]}])
}

// I3
#[test]
fn rotating_inside_a_prefix_buys_only_the_wider_quota() {
    let (mut limiter, mut slots) = (limiter(rules(&widened()), None), LocalSlots::new(4_096));
    assert_eq!(admitted(&mut limiter, &mut slots, "10.1.0.9", 9, T0), 5);
    // The rest of the /24: four times five in all.
    let many = |limiter: &mut Limiter, slots: &mut LocalSlots, net: &str| {
        (0..=255).filter(|n| allows(limiter, slots, &format!("{net}.{n}"), T0)).count()
    };
    assert_eq!(many(&mut limiter, &mut slots, "10.1.0"), 15);
    assert_eq!(many(&mut limiter, &mut slots, "10.1.1"), 20);
    // And the /16, eight times five in all.
    assert_eq!(many(&mut limiter, &mut slots, "10.1.2"), 0);
    assert_eq!(many(&mut limiter, &mut slots, "10.2.0"), 20);
    let v6 = (0..99).filter(|n| allows(&mut limiter, &mut slots, &format!("2001:db8:7:{n}::1"), T0));
    assert_eq!(v6.count(), 20);
}
