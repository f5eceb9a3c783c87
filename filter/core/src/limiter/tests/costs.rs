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

#[test]
fn a_request_that_is_refused_bars_no_cheaper_one() {
    let (mut limiter, mut slots) = (limiter(by_header("1/s", 10), None), LocalSlots::new(1));
    assert_eq!(costs(&mut limiter, &mut slots, 7, T0).outcome(), DecisionKind::Allow);
    assert_eq!(costs(&mut limiter, &mut slots, 4, T0).outcome(), DecisionKind::Limit);
    assert_eq!(costs(&mut limiter, &mut slots, 5, T0).outcome(), DecisionKind::Limit);
    assert_eq!(limiter.counters().take_event(CountedEvent::LocalCacheHits), 1);
    assert_eq!(costs(&mut limiter, &mut slots, 3, T0).outcome(), DecisionKind::Allow);
}

#[test]
fn reports_count_tokens() {
    let (mut limiter, mut slots) = (limiter(fixed(4, false), Some(1)), LocalSlots::new(1));
    let greeting = limiter.report(&mut slots, true, T0).unwrap();
    answer(&mut limiter, &mut slots, &greeting, 4, grant(1, 1, 0), T0);
    // A cold key may use half of a fair share; four of ten are more than that.
    assert!(allows(&mut limiter, &mut slots, "192.0.2.1", T0));
    let report = limiter.report(&mut slots, false, T0).unwrap();
    assert_eq!((report.keys[0].admitted, report.keys[0].asked), (4, 4));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 4, T0), 1);
    let report = limiter.report(&mut slots, false, T0).unwrap();
    let key = &report.keys[0];
    assert_eq!((key.admitted, key.unconfirmed, key.asked, key.asked_recently), (8, 8, 20, 16));
}

#[test]
fn a_ratio_lets_through_its_part_of_the_requests() {
    let (mut limiter, mut slots) = (limiter(fixed(4, false), Some(1)), LocalSlots::new(1));
    admitted(&mut limiter, &mut slots, "192.0.2.1", 5, T0);
    let report = limiter.report(&mut slots, false, T0).unwrap();
    answer(&mut limiter, &mut slots, &report, 2, grant(1, 4, 10_000), T0 + 8 * SECOND_NS);
    let later = T0 + 8 * SECOND_NS;
    // The ratio lets a quarter of eight requests through; they cost four tokens each, and the bucket has ten.
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 8, later), 2);
}

#[test]
fn a_share_that_is_less_than_a_request_lets_one_through_now_and_then() {
    let (mut limiter, mut slots) = (limiter(fixed(4, false), Some(1)), LocalSlots::new(1));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 5, T0), 2);
    let report = limiter.report(&mut slots, false, T0).unwrap();
    // The grant allows one token at most and an eighth of the rate: half a request refills in four seconds.
    let grant = Grant { burst: 1, parts: 8, lease_ms: 60_000, ..grant(1, 1, 2_000) };
    answer(&mut limiter, &mut slots, &report, 2, grant, T0);
    let through = (0..40).filter(|s| allows(&mut limiter, &mut slots, "192.0.2.1", T0 + s * SECOND_NS));
    assert_eq!(through.count(), 5);
}

/// A request of one token waits for as long as `parts` tokens take to refill. A dear one waits no longer, unless its
/// tokens take longer at the whole rate.
#[test]
fn a_slow_rate_does_not_keep_a_dear_request_for_longer_than_a_cheap_one() {
    for (cost, seconds) in [(1, 5), (2, 4), (5, 5), (7, 7)] {
        let (mut limiter, mut slots) = (limiter(by_header("1/s", 10), Some(1)), LocalSlots::new(1));
        admitted(&mut limiter, &mut slots, "192.0.2.1", 11, T0);
        let report = limiter.report(&mut slots, false, T0).unwrap();
        let slow = Grant { burst: 1, parts: 5, lease_ms: 60_000, ..grant(1, 1, 1_000) };
        let later = T0 + 10 * SECOND_NS;
        answer(&mut limiter, &mut slots, &report, 2, slow, T0);
        assert_eq!(costs(&mut limiter, &mut slots, cost, later).outcome(), DecisionKind::Allow);
        let tried = (1..20).find(|s| {
            costs(&mut limiter, &mut slots, cost, later + s * SECOND_NS).outcome() == DecisionKind::Allow
        });
        assert_eq!(tried, Some(seconds), "cost {cost}");
    }
}

/// Otherwise cheap requests would keep taking the tokens that a dear one waits for.
#[test]
fn cheap_requests_leave_what_the_dearest_costs_where_the_fleet_has_it_hold_little() {
    let (mut limiter, mut slots) = (limiter(by_header("1/s", 10), Some(1)), LocalSlots::new(1));
    for _ in 0..2 {
        costs(&mut limiter, &mut slots, 6, T0);
    }
    let report = limiter.report(&mut slots, false, T0).unwrap();
    let little = Grant { burst: 2, lease_ms: 60_000, ..grant(1, 1, 10_000) };
    answer(&mut limiter, &mut slots, &report, 2, little, T0);
    let later = T0 + 10 * SECOND_NS;
    assert_eq!(costs(&mut limiter, &mut slots, 1, later).outcome(), DecisionKind::Allow);
    assert_eq!(costs(&mut limiter, &mut slots, 6, later).outcome(), DecisionKind::Limit);
    assert_eq!(costs(&mut limiter, &mut slots, 6, later + SECOND_NS).outcome(), DecisionKind::Allow);
    assert_eq!(costs(&mut limiter, &mut slots, 1, later + SECOND_NS).outcome(), DecisionKind::Limit);
}

#[test]
fn what_costs_more_is_paid_for_in_advance() {
    let (mut limiter, mut slots) = (limiter(fixed(4, true), Some(1)), LocalSlots::new(1));
    let greeting = limiter.report(&mut slots, true, T0).unwrap();
    answer(&mut limiter, &mut slots, &greeting, 1, grant(1, 1, 0), T0);
    let ahead = |limiter: &mut Limiter, slots: &mut LocalSlots, now: Time| {
        waiting_for(ask(limiter, slots, "192.0.2.1", now))
    };
    let (first, first_draw) = ahead(&mut limiter, &mut slots, T0);
    let (second, second_draw) = ahead(&mut limiter, &mut slots, T0);
    assert_eq!((first.keys[0].ahead, second.keys[0].ahead), (4, 8));
    limiter.draw_failed(first_draw, &mut slots, T0);
    let leased = weir_protocol::messages::Leased::of(7, 2_000);
    let reply = Reply {
        sequence: second.sequence,
        pops: 1,
        settled: Settled::All,
        grants: vec![Allowance::Leased(leased)],
        ..Reply::default()
    };
    assert_eq!(limiter.drawn(second_draw, &reply.encode(), &mut slots, T0), Ok(true));
    let mut again = || limiter.decide_again(true, &mut Costs(4), &mut slots, T0).outcome();
    assert_eq!((again(), again()), (DecisionKind::Allow, DecisionKind::Limit));
    // No request waits any more. Of the four tokens that it needs, three are on hand.
    let (third, _) = ahead(&mut limiter, &mut slots, T0 + SECOND_NS);
    assert_eq!((third.keys[0].admitted, third.keys[0].ahead), (4, 4));
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
