//! Requests that take more than one token.

use super::*;

/// A request that says what it costs.
struct Costs(u32);

impl Request for Costs {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::SourceAddress => Some(b"192.0.2.1".to_vec()),
            Attribute::Header(_) => Some(std::format!("{}", self.0).into()),
            _ => None,
        }
    }
}

fn by_header(rate: &str, burst: u32) -> RuleSet {
    rules(
        &json!([{"name": "r", "key": ["client_address"], "rate": rate, "burst": burst, "cost": {"header": "cost"}}]),
    )
}

fn costs(limiter: &mut Limiter, slots: &mut dyn Slots, cost: u32, now: Time) -> Decision {
    limiter.decide(&mut Costs(cost), slots, now)
}

fn fixed(cost: u32, strict: bool) -> RuleSet {
    rules(
        &json!([{"name": "r", "key": ["client_address"], "rate": "1/s", "burst": 10, "cost": cost, "strict": strict}]),
    )
}

#[test]
fn a_request_takes_what_it_costs_and_waits_for_all_of_it() {
    let (mut limiter, mut slots) = (limiter(fixed(4, false), None), LocalSlots::new(1));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, T0), 2);
    let refused = ask(&mut limiter, &mut slots, "192.0.2.1", T0).strictest().unwrap().1;
    assert_eq!(refused.more_ns, 2 * SECOND_NS);
    assert!(!allows(&mut limiter, &mut slots, "192.0.2.1", T0 + (2 * SECOND_NS - 1)));
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0 + 2 * SECOND_NS));
}

// I3
#[test]
fn what_a_later_slot_refuses_an_earlier_one_gets_back_in_full() {
    let both = json!([
        {"name": "host", "key": [{"client_address": {"ipv4": 32}}], "rate": "1/m", "burst": 5, "cost": 5},
        {"name": "net", "key": [{"client_address": {"ipv4": 24}}], "rate": "1/m", "burst": 5},
    ]);
    let (mut mine, mut other) = (limiter(rules(&both), None), limiter(rules(&both), None));
    let mut slots = LocalSlots::new(1_024);
    let mut turns = 0;
    let mut interloper = |slots: &mut LocalSlots| {
        turns += 1;
        if turns == 2 {
            for n in 0..5 {
                assert!(allows(&mut other, slots, &std::format!("192.0.2.{}", 10 + n), T0));
            }
        }
    };
    let mut contended = Contended { slots: &mut slots, interloper: RefCell::new(&mut interloper) };
    assert!(!allows(&mut mine, &mut contended, "192.0.2.1", T0));
    let mut fresh = limiter(rules(&both), None);
    // One minute gives the net one token; the host has had all of its five back.
    assert!(allows(&mut fresh, &mut slots, "192.0.2.1", T0 + 60 * SECOND_NS));
}

proptest! {
    /// The exact model: a level in token-nanoseconds that refills by one per nanosecond.
    // I3
    #[test]
    fn costs_agree_with_a_plain_level(
        steps in prop::collection::vec((0usize..2, 0u64..200, 1u32..9), 1..200),
    ) {
        let rule_set = by_header("20/s", 8);
        let quota = rule_set.rules()[0].quota;
        let mut workers: Vec<_> = (0..2).map(|_| limiter(rule_set.clone(), None)).collect();
        let (mut slots, mut now, mut level) = (LocalSlots::new(1), T0, quota.fill_ns());
        for (worker, step_ms, cost) in steps {
            now += step_ms * MS;
            level = (level + step_ms * MS).min(quota.fill_ns());
            let price = quota.token_ns() * u64::from(cost);
            let decision = costs(&mut workers[worker], &mut slots, cost, now);
            prop_assert_eq!(decision.outcome() == DecisionKind::Allow, level >= price);
            if level >= price { level -= price; }
        }
    }

    /// What reports say was admitted and asked for are the tokens, whatever requests cost, and whatever is lost.
    #[test]
    fn reports_add_up_to_the_tokens(
        steps in prop::collection::vec((0u64..200, 1u32..9, 0u8..3), 1..150),
    ) {
        // The rate is so low that nothing refills during the test.
        let mut limiter = limiter(by_header("1/d", 100), Some(1));
        let (mut slots, mut now, mut admitted, mut asked) = (LocalSlots::new(1), T0, 0u64, 0u64);
        for (step_ms, cost, what) in steps {
            now += step_ms * MS;
            let is_allowed = costs(&mut limiter, &mut slots, cost, now).outcome() == DecisionKind::Allow;
            admitted += if is_allowed { u64::from(cost) } else { 0 };
            asked += u64::from(cost);
            if what == 0 { continue; }
            let Some(report) = limiter.report(&mut slots, false, now) else { continue };
            let key = &report.keys[0];
            prop_assert_eq!((key.admitted, key.asked), (admitted, asked));
            if what == 1 { limiter.report_failed(report.sequence, now); } else {
                answer(&mut limiter, &mut slots, &report, 1, grant(1, 1, 100_000), now);
            }
        }
    }
}
