//! Stages before the rules: the `allow` and `deny` lists, and rules that are off.

use super::*;
use std::string::ToString;
use weir_rules::config::PluginConfig;

/// True if the request was let through and no rule counted it.
fn is_uncounted(decision: &Decision) -> bool {
    matches!(decision, Decision::Allow { strictest: None, .. })
}

fn to(path: &str) -> Asks<'_> {
    Asks(vec![("source", "192.0.2.1:5"), ("path", path)])
}

fn limiter_of(extra: &Value) -> Limiter {
    let document =
        changed(json!({"rules": [{"name": "r", "key": ["client_address"], "rate": "1/h", "burst": 1}]}), extra);
    limiter(PluginConfig::parse(document.to_string().as_bytes()).unwrap().rules, None)
}

#[test]
fn a_client_on_a_list_is_counted_by_no_rule() {
    let lists = json!({
        "allow": [{"path": {"exact": "/health"}}, {"path": {"prefix": "/open/but"}}],
        "deny": [{"path": {"prefix": "/admin"}}, {"path": {"prefix": "/open"}}],
    });
    let (mut limiter, mut slots) = (limiter_of(&lists), LocalSlots::new(4));
    let mut ask = |limiter: &mut Limiter, path| limiter.decide(&mut to(path), &mut slots, T0);
    for _ in 0..3 {
        assert!(is_uncounted(&ask(&mut limiter, "/health")));
        assert!(is_uncounted(&ask(&mut limiter, "/open/but")), "allowed before it is refused");
        assert_eq!(ask(&mut limiter, "/open").outcome(), DecisionKind::Block);
        assert_eq!(ask(&mut limiter, "/admin/x").outcome(), DecisionKind::Block);
    }
    // None of them took the one token.
    assert_eq!(ask(&mut limiter, "/").outcome(), DecisionKind::Allow);
    assert_eq!(ask(&mut limiter, "/").outcome(), DecisionKind::Limit);
    assert_eq!(ask(&mut limiter, "/health").outcome(), DecisionKind::Allow);
    assert_eq!(limiter.counters().take_event(CountedEvent::ListAllowed), 7);
    assert_eq!(limiter.counters().take_event(CountedEvent::ListBlocked), 6);
}

#[test]
fn rules_that_are_off_admit_everything_and_fetch_nothing() {
    struct Untouchable;
    impl Request for Untouchable {
        fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
            panic!("asked for {attribute:?}")
        }
    }
    let off = json!({"enforce": false, "deny": [{"path": {"prefix": "/"}}]});
    let (mut limiter, mut slots) = (limiter_of(&off), LocalSlots::new(4));
    for _ in 0..3 {
        assert!(is_uncounted(&limiter.decide(&mut Untouchable, &mut slots, T0)));
    }
    let (mut limiter, on) = (limiter_of(&json!({"enforce": true})), DecisionKind::Limit);
    limiter.decide(&mut to("/"), &mut slots, T0);
    assert_eq!(limiter.decide(&mut to("/"), &mut slots, T0).outcome(), on);
}
