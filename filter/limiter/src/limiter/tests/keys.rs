//! Requests that lack a part of the key, and wider prefixes.

use super::*;
use std::format;

#[test]
fn incomplete_requests_are_skipped_share_a_bucket_or_are_limited() {
    use DecisionKind::{Allow, Limit};
    for (missing, expected, counts) in [
        ("skip", [Allow; 6], (0, 0)),
        ("share", [Allow, Limit, Limit, Limit, Limit, Limit], (1, 5)),
        ("limit", [Limit; 6], (0, 6)),
    ] {
        let both = json!(["client_address", {"header": "key"}]);
        let rule = json!([{"name": "r", "key": both, "missing": missing, "rate": "1/m"}]);
        let (mut limiter, mut slots) = (limiter(rules(&rule), None), LocalSlots::new(64));
        let mut decide = |has| limiter.decide(&mut Asks(has), &mut slots, T0);
        // They lack the header, the address, and both; each twice.
        let lacking = [("source", "10.0.0.1"), ("key", "a"), ("source", "/run/sock")];
        let outcomes: Vec<_> = lacking.iter().chain(&lacking).map(|has| decide(vec![*has]).outcome()).collect();
        assert_eq!(outcomes, expected, "{missing}");
        let complete = decide(vec![("source", "10.0.0.1"), ("key", "")]);
        assert_eq!(complete.outcome(), Allow, "{missing}");
        if missing == "limit" {
            assert_eq!(decide(vec![]).strictest().map(|(_, status)| status.more_ns), Some(60 * SECOND_NS));
        }
        let counted = limiter.counters().take_rule(0);
        assert_eq!(limiter.counters().take_event(CountedEvent::AddressUnreadable), 4 + u32::from(missing == "limit"));
        let expected = (counts.0 + 1, counts.1 + u32::from(missing == "limit"));
        assert_eq!((counted.allowed, counted.limited), expected, "{missing}");
    }
}

// I3
#[test]
fn rotating_inside_a_prefix_buys_only_the_wider_quota() {
    let wider = json!([{"ipv4": 24, "ipv6": 48, "times": 4}, {"ipv4": 16, "times": 8}]);
    let rule = json!([{"name": "r", "key": ["client_address"], "rate": "5/m", "also_by_prefix": wider}]);
    let (mut limiter, mut slots) = (limiter(rules(&rule), None), LocalSlots::new(4_096));
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
