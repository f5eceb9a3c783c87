//! Keys with several parts, requests that lack a part, and wider prefixes.

use super::*;
use crate::RuleIndex;
use std::format;
use std::string::ToString;

/// A request with an address and headers, where it has any.
#[derive(Default)]
struct Asks {
    address: Option<&'static str>,
    key: Option<&'static str>,
    addresses_asked: u32,
}

impl Request for Asks {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        self.addresses_asked += u32::from(*attribute == Attribute::SourceAddress);
        match attribute {
            Attribute::SourceAddress => self.address.map(Into::into),
            Attribute::Header(name) if name == "key" => self.key.map(Into::into),
            _ => None,
        }
    }
}

fn asks(address: &'static str, key: &'static str) -> Asks {
    Asks { address: Some(address), key: Some(key), addresses_asked: 0 }
}

fn outcomes(rule_set: &Value, requests: &mut [Asks]) -> (Vec<DecisionKind>, Limiter) {
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
fn lacking() -> Vec<Asks> {
    let lacking = [(Some("10.0.0.1"), None), (None, Some("a")), (Some("/run/sock"), None)];
    let lacking = lacking.map(|(address, key)| Asks { address, key, ..Asks::default() });
    let again = lacking.each_ref().map(|asks| Asks { addresses_asked: 0, ..*asks });
    lacking.into_iter().chain(again).collect()
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
    let refused = limiter.decide(&mut Asks::default(), &mut slots, T0);
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
    let lacks = || Asks { address: Some("10.0.0.1"), ..Asks::default() };
    let (outcomes, mut limiter) = outcomes(&two, &mut [lacks(), lacks(), lacks()]);
    assert_eq!(outcomes, [DecisionKind::Allow, DecisionKind::Allow, DecisionKind::Limit]);
    assert_eq!((limiter.counters().take_rule(0).allowed, limiter.counters().take_rule(1).allowed), (0, 2));
}

#[test]
fn all_is_one_bucket_for_everybody() {
    let all = json!([{"name": "r", "key": ["all"], "missing": "limit", "rate": "1/m", "burst": 2}]);
    let (outcomes, _) = outcomes(&all, &mut [asks("10.0.0.1", "a"), asks("10.0.0.2", "b"), Asks::default()]);
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

#[test]
fn a_wider_rule_differs_in_name_prefix_and_quota() {
    let rule_set = rules(&widened());
    let [rule, first, second] = rule_set.rules() else { panic!("three rules") };
    assert_eq!([&*rule.name, &*first.name, &*second.name], ["r", "r.w1", "r.w2"]);
    assert_eq!([rule, first, second].map(weir_rules::Rule::is_written), [true, false, false]);
    assert_eq!([rule, first, second].map(|rule| rule.quota.burst()), [5, 20, 40]);
    let per_token = [rule, first, second].map(|rule| rule.quota.token_ns());
    assert_eq!(per_token, [12 * SECOND_NS, 3 * SECOND_NS, 1_500 * MS]);
    let prefixes = [rule, first, second].map(|rule| rule.key.prefixes().unwrap());
    assert_eq!(prefixes.map(|p| (p.ipv4, p.ipv6)), [(32, 64), (24, 48), (16, 64)]);
    assert!(rule_set.rules().iter().all(|rule| rule.sharing.fits(rule.quota)));
}

#[test]
fn each_error_of_also_by_prefix_has_its_place() {
    let name = "n".repeat(62);
    let errors = |key: Value, wider: Value, name: &str| {
        let errors = ErrorCollector::default();
        let rule = json!([{"name": name, "key": key, "rate": "1000/s", "also_by_prefix": wider}]);
        RuleSet::parse(&rule, "rules", &errors);
        let recorded = errors.into_result::<()>(None).unwrap_err();
        recorded.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let by_address = json!(["client_address"]);
    let wide = |wider: Value| errors(by_address.clone(), wider, "r");
    assert_eq!(wide(json!([{"ipv4": 24, "times": 1000}])), Vec::<String>::new());
    assert_eq!(
        wide(json!([{"ipv4": 32, "ipv6": 65, "times": 2}])),
        [
            "rules[0].also_by_prefix[0].ipv4: expected less than 32, which is the key's, found 32",
            "rules[0].also_by_prefix[0].ipv6: expected less than 64, which is the key's, found 65",
        ]
    );
    assert_eq!(
        wide(json!([{"times": 1001}, {"ipv4": 8}])),
        [
            "rules[0].also_by_prefix[0]: expected ipv4, ipv6 or both, as in {ipv4: 24, ipv6: 48, times: 8}",
            "rules[0].also_by_prefix[0].times: expected a whole number from 1 to 1000, found 1001",
            "rules[0].also_by_prefix[1].times: missing: expected how many times the rule's quota, as in 8",
        ]
    );
    assert_eq!(
        errors(json!(["host"]), json!([{"ipv4": 24, "times": 2}]), "r"),
        ["rules[0].also_by_prefix: expected a key with client_address: there is no prefix to widen"]
    );
    let long = errors(by_address.clone(), json!([{"ipv4": 24, "times": 2}]), &name);
    let expected = format!(
        "rules[0].name: expected a name that leaves room for the rule \"{name}.w1\" which also_by_prefix makes, of at \
         most 64 characters"
    );
    assert_eq!(long, [expected]);
    let errors = ErrorCollector::default();
    let fast = json!([{"name": "r", "key": ["client_address"], "rate": "500001/s",
        "also_by_prefix": [{"ipv4": 8, "times": 2}]}]);
    RuleSet::parse(&fast, "rules", &errors);
    let recorded = errors.into_result::<()>(None).unwrap_err();
    assert_eq!(
        recorded[0].to_string(),
        "rules[0].also_by_prefix[0]: expected no more than 1000000 as rate per second and as burst, 2 times the rule's"
    );
}
