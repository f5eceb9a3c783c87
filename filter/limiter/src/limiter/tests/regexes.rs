//! Regular expressions are the most expensive part of matching: they run last, and never for a client without tokens.

use super::*;

/// A request with a header, and the number of times that it was fetched.
struct WithHeader<'a>(&'a str, u32);

impl Request for WithHeader<'_> {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::SourceAddress => Some(self.0.into()),
            Attribute::Header(_) => {
                self.1 += 1;
                Some(b"abc".to_vec())
            }
            _ => None,
        }
    }
}

fn with(lists: &Value) -> Limiter {
    let document = json!({"rules": [
        {"name": "all", "key": ["client_address"], "rate": "1/h", "burst": 2},
        {"name": "some", "match": {"headers": [{"name": "x", "regex": "^a"}]}, "key": [{"header": "y"}],
         "rate": "1/h", "burst": 9},
    ]});
    let errors = ErrorCollector::default();
    let rules = document::read(&changed(document, lists), &errors);
    limiter(errors.into_result(rules).unwrap(), None)
}

fn outcome(limiter: &mut Limiter, slots: &mut dyn Slots, address: &str) -> (DecisionKind, u32) {
    let mut request = WithHeader(address, 0);
    (limiter.decide(&mut request, slots, T0).outcome(), request.1)
}

#[test]
fn a_client_without_tokens_is_not_worth_a_regular_expression() {
    let expression = json!({"headers": [{"name": "x", "regex": "b$"}]});
    for lists in [json!({}), json!({"deny": [expression]})] {
        let (mut limiter, mut slots) = (with(&lists), LocalSlots::new(8));
        let mut ask = |address| outcome(&mut limiter, &mut slots, address);
        assert!((0..2).all(|_| ask("192.0.2.1") == (DecisionKind::Allow, 2)), "{lists}");
        assert_eq!(ask("192.0.2.1"), (DecisionKind::Limit, 2), "the bucket is found empty");
        assert_eq!(ask("192.0.2.1"), (DecisionKind::Limit, 0), "and that is remembered: {lists}");
        assert_eq!(ask("192.0.2.2"), (DecisionKind::Allow, 2));
    }
}

#[test]
fn requests_that_may_be_allowed_are_looked_at_first() {
    let allow = json!({"allow": [{"headers": [{"name": "x", "regex": "^abc$"}]}]});
    let (mut limiter, mut slots) = (with(&allow), LocalSlots::new(8));
    assert!((0..9).all(|_| outcome(&mut limiter, &mut slots, "192.0.2.1") == (DecisionKind::Allow, 1)));
}

#[test]
fn a_tier_without_a_limit_counts_what_goes_through() {
    let tiers = json!([{"name": "own", "when": {"addresses": ["192.0.2.0/24"]}, "unlimited": true}]);
    let rules = rules(&json!([
        {"name": "r", "key": ["client_address"], "rate": "1/m", "tiers": tiers},
        {"name": "all", "key": ["all"], "rate": "1/h", "burst": 3},
    ]));
    let (mut limiter, mut slots) = (limiter(rules, None), LocalSlots::new(8));
    let outcomes: Vec<_> = (0..5).map(|_| ask(&mut limiter, &mut slots, "192.0.2.1", T0).outcome()).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == DecisionKind::Allow).count(), 3);
    let allowed = [0, 1, 2].map(|rule| limiter.counters().take_rule(rule).allowed);
    assert_eq!(allowed, [3, 0, 3], "the tier, its rule, and the one that limits");
}
