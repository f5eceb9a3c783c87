//! Rules are replaced while requests come, while reports are under way and while requests wait.

use super::*;
use crate::RuleIndex;
use crate::check::{Booking, book};
use weir_protocol::messages::Leased;

fn rule(name: &str, rate: &str, burst: u32) -> Value {
    json!({"name": name, "key": ["client_address"], "rate": rate, "burst": burst})
}

fn strict(name: &str, rate: &str) -> Value {
    json!({"name": name, "key": ["client_address"], "rate": rate, "strict": true})
}

/// A worker among 101 POPs: every key is watched from its first request.
fn in_a_fleet(set: &Value) -> (Limiter, LocalSlots) {
    let mut limiter = limiter(rules(set), Some(1));
    limiter.sync.as_mut().unwrap().observe(101, false, T0);
    (limiter, LocalSlots::new(4))
}

fn counts(report: &Report) -> Vec<(&str, u64)> {
    report.keys.iter().map(|key| (report.rules[usize::from(key.rule)].name.as_str(), key.admitted)).collect()
}

fn kept(report: &Report) -> Option<u64> {
    counts(report).into_iter().find(|(name, _)| *name == "kept").map(|(_, admitted)| admitted)
}

// I3
#[test]
fn unchanged_rules_keep_their_level_wherever_they_move() {
    let (mut limiter, mut slots) =
        (limiter(rules(&json!([rule("a", "1/h", 5), rule("b", "1/h", 9)])), None), LocalSlots::new(4));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 3, T0), 3);
    limiter.replace_rules(rules(&json!([rule("new", "1/h", 9), rule("a", "1/h", 5)])));
    let decision = ask(&mut limiter, &mut slots, "192.0.2.1", T0);
    assert_eq!(decision.strictest().map(|(rule, status)| (rule, status.remaining)), Some((RuleIndex::new(1), 1)));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 5, T0), 1);
}

/// The number of `n` requests of an address that pass; those whose response states their cost state one token.
fn passed(limiter: &mut Limiter, slots: &mut LocalSlots, address: &str, n: u32, now: Time) -> usize {
    let mut passed = 0;
    for _ in 0..n {
        if let Decision::Allow { afterwards, .. } = ask(limiter, slots, address, now) {
            passed += 1;
            for done in afterwards {
                limiter.charge(done, 1, slots, now);
            }
        }
    }
    passed
}

/// Costs that are known before and after the response.
fn costs() -> [Value; 2] {
    [json!(1), json!({"after": {"header": "x-tokens"}})]
}

fn costing(rate: &str, burst: u32, cost: &Value) -> Value {
    json!({"name": "a", "key": ["client_address"], "rate": rate, "burst": burst, "cost": cost})
}

/// The requests admitted at once under `after`, and once its burst could fill. The client took `taken` tokens under
/// `before`, and the fleet may have a deficit of a burst.
fn carried(before: &Value, after: &Value, taken: u32, owes: bool) -> [usize; 2] {
    let (mut limiter, mut slots) = (limiter(rules(&json!([before])), owes.then_some(1)), LocalSlots::new(4));
    if let Some(sync) = &mut limiter.sync {
        sync.observe(101, false, T0);
    }
    assert_eq!(passed(&mut limiter, &mut slots, "192.0.2.1", taken, T0), taken as usize);
    if owes {
        let sequence = limiter.report(&mut slots, false, T0).expect("a report").sequence;
        let level_milli = -1_000 * before["burst"].as_i64().expect("a burst");
        let owing =
            Allowance::Hot(Grant { ratio: AdmitRatio::ONE, level_milli, burst: 100, divisor: 1, lease_ms: 60_000 });
        limiter.apply(sequence, &reply(sequence, 101, vec![owing]), &mut slots, T0).unwrap();
    }
    limiter.replace_rules(rules(&json!([after])));
    let fill_ns = limiter.rules.get(RuleIndex::new(0)).expect("the rule").quota.fill_ns();
    [T0, T0 + fill_ns].map(|now| passed(&mut limiter, &mut slots, "192.0.2.1", 200, now))
}

#[test]
fn a_changed_quota_keeps_the_fraction_left_or_owed() {
    for cost in costs() {
        let [small, large, slow] =
            [("10/h", 10), ("100/h", 100), ("100/h", 10)].map(|(rate, burst)| costing(rate, burst, &cost));
        for (before, after, taken, owes, expected) in [
            (&large, &small, 50, false, [5, 10]),
            (&large, &small, 100, false, [0, 10]),
            (&small, &large, 5, false, [50, 100]),
            // Half of it, though it is slower.
            (&slow, &small, 5, false, [5, 10]),
            // A burst of debt takes two to fill, but under a larger burst it keeps its ten tokens.
            (&large, &small, 5, true, [0, 0]),
            (&small, &large, 5, true, [0, 90]),
        ] {
            assert_eq!(carried(before, after, taken, owes), expected, "{before} {after} {taken} {owes}");
        }
    }
}

/// The deficit of a refused client refills at the new rate from the change on: the old rate makes its wait neither
/// longer nor shorter.
#[test]
fn a_carried_over_deficit_refills_at_the_new_rate() {
    let [slow, quick] = ["10/h", "100/h"].map(|rate| rule("a", rate, 10));
    for (before, after, token_ns) in [(&slow, &quick, 36 * SECOND_NS), (&quick, &slow, 360 * SECOND_NS)] {
        let mut limiter = limiter(rules(&json!([before])), None);
        let mut slots = LocalSlots::new(4);
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 11, T0), 10);
        limiter.replace_rules(rules(&json!([after])));
        let steps = [0, token_ns / 2, token_ns - MS, token_ns, 2 * token_ns - MS, 2 * token_ns];
        let passed = steps.map(|ns| admitted(&mut limiter, &mut slots, "192.0.2.1", 2, T0 + ns));
        assert_eq!(passed, [0, 0, 0, 1, 0, 1]);
    }
}

/// A cut quota lets no more through until its first grant than the old grant let through, and a raised one no less; all
/// that is asked for meanwhile is reported.
// I4
#[test]
fn a_grant_keeps_its_fraction_of_a_changed_rate() {
    let granted = |part: u128| {
        let ratio = AdmitRatio::of(1, part);
        Allowance::Hot(Grant { ratio, level_milli: 1_000_000, burst: 1_000, divisor: 1, lease_ms: 60_000 })
    };
    for cost in costs() {
        let [small, large] = [("100/s", 100), ("1000/s", 1_000)].map(|(rate, burst)| costing(rate, burst, &cost));
        for (before, after, part, expected) in [(&large, &small, 2, 5), (&small, &large, 20, 50)] {
            let (mut limiter, mut slots) = in_a_fleet(&json!([before]));
            let addresses = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
            for address in addresses {
                assert_eq!(passed(&mut limiter, &mut slots, address, 10, T0), 10);
            }
            let sequence = limiter.report(&mut slots, false, T0).expect("a report").sequence;
            limiter.apply(sequence, &reply(sequence, 101, vec![granted(part); 3]), &mut slots, T0).unwrap();
            limiter.replace_rules(rules(&json!([after])));
            let through = addresses.map(|address| passed(&mut limiter, &mut slots, address, 100, T0 + MS));
            for passed in through {
                assert!(passed.abs_diff(expected) <= 1, "{through:?} of 100, expected {expected}: {cost}");
            }
            let report = limiter.report(&mut slots, false, T0 + 2 * MS).expect("a report");
            let mut named: Vec<_> = report.keys.iter().map(|key| key.admitted).collect();
            named.sort_unstable();
            let mut all = through.map(|passed| passed as u64);
            all.sort_unstable();
            assert_eq!(named, all, "{cost}");
            // A request whose cost makes its key watched came before that.
            assert!(report.keys.iter().all(|key| key.asked_recently >= 99), "{cost}");
        }
    }
}

/// The rules change once more before the client's next request.
// I3
#[test]
fn a_changed_quota_keeps_what_is_left_over_further_changes() {
    let [first, second, third] = [("10/h", 10), ("20/h", 20), ("40/h", 40)].map(|(rate, burst)| rule("a", rate, burst));
    for (changes, expected) in
        [([json!([second]), json!([third])], 20), ([json!([second]), json!([second, rule("b", "9/s", 999)])], 10)]
    {
        let (mut limiter, mut slots) = (limiter(rules(&json!([first])), None), LocalSlots::new(4));
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 5, T0), 5);
        for rule_set in changes {
            limiter.replace_rules(rules(&rule_set));
        }
        assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 100, T0), expected);
    }
}

/// A refund to a client that used all of its burst before the quota changed.
// I3
#[test]
fn a_refund_after_a_quota_change_forgives_nothing_else() {
    let [small, large] = [("10/h", 10), ("100/h", 100)].map(|(rate, burst)| rule("a", rate, burst));
    let (mut limiter, mut slots) = (limiter(rules(&json!([large])), None), LocalSlots::new(4));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 100, T0), 100);
    limiter.replace_rules(rules(&json!([small])));
    let request = &mut Client("192.0.2.1".into());
    assert!(book(&mut limiter, Booking::Refund, request, &mut slots, T0).is_ok());
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 100, T0), 1);
}

#[test]
fn unreported_counts_of_unchanged_rules_are_reported_and_others_dropped() {
    let (mut limiter, mut slots) = in_a_fleet(&json!([rule("old", "1/h", 90), rule("kept", "1/h", 50)]));
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 3, T0), 3);
    limiter.replace_rules(rules(&json!([rule("kept", "1/h", 50), rule("new", "1/h", 99)])));
    let report = limiter.report(&mut slots, false, T0).unwrap();
    assert_eq!((counts(&report), report.sequence), (vec![("kept", 3)], 1));
    assert_eq!(report.keys[0].unconfirmed, 3);
}

fn leased(sequence: u64, charged: u64) -> Vec<u8> {
    reply(sequence, 101, vec![Allowance::Leased(Leased::of(charged, 2_000))])
}

fn wait(limiter: &mut Limiter, slots: &mut LocalSlots) -> (Report, u64) {
    waiting_for(ask(limiter, slots, "192.0.2.1", T0))
}

#[test]
fn a_waiting_request_spends_its_token_under_an_unchanged_rule() {
    let (mut limiter, mut slots) = in_a_fleet(&json!([strict("login", "5/m")]));
    let (report, acquire) = wait(&mut limiter, &mut slots);
    limiter.replace_rules(rules(&json!([rule("wide", "9/s", 99), strict("login", "5/m")])));
    assert!(limiter.acquired(acquire, &leased(report.sequence, 1), &mut slots, T0).unwrap());
    let decision = limiter.decide_again(true, &mut Client("192.0.2.1".into()), &mut slots, T0);
    assert_eq!(decision.outcome(), DecisionKind::Allow);
    assert_eq!(acquiring(&limiter), 0);
    assert_eq!(ask(&mut limiter, &mut slots, "192.0.2.1", T0).outcome(), DecisionKind::Wait);
}

#[test]
fn counts_go_with_the_rules_name() {
    let mut limiter = limiter(rules(&json!([rule("a", "1/h", 1), rule("b", "1/h", 9)])), None);
    let mut slots = LocalSlots::new(4);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 2, T0), 1);
    limiter.replace_rules(rules(&json!([rule("c", "1/h", 9), rule("b", "1/h", 8), rule("a", "1/h", 2)])));
    let counts = [0, 1, 2].map(|i| limiter.counters().take_rule(i));
    assert_eq!(counts.map(|counts| (counts.allowed, counts.limited)), [(0, 0), (1, 0), (1, 1)]);
}

proptest! {
    /// An unchanged rule lets through the same requests whenever others are replaced, and reports all of them.
    #[test]
    fn replacing_rules_does_not_affect_an_unchanged_one(
        steps in prop::collection::vec((0u8..6, 0usize..4), 1..60),
    ) {
        let sets = [
            json!([rule("kept", "1/s", 20)]),
            json!([rule("x", "5/s", 1_000), rule("kept", "1/s", 20)]),
            json!([rule("y", "5/s", 1_000), rule("x", "6/s", 1_000), rule("kept", "1/s", 20)]),
            json!([rule("kept", "1/s", 20), rule("x", "5/s", 1_000)]),
        ];
        let (mut changed, mut slots) = in_a_fleet(&sets[0]);
        let (mut still, mut other_slots) = in_a_fleet(&sets[0]);
        let (mut now, mut under_way, mut through, mut confirmed) = (T0, Vec::new(), 0u64, 0u64);
        for (step, which) in steps {
            now += 100 * MS;
            match step {
                0 => changed.replace_rules(rules(&sets[which])),
                1 => under_way.extend(changed.report(&mut slots, false, now)),
                2 if !under_way.is_empty() => {
                    let report: Report = under_way.remove(which % under_way.len());
                    let grants = vec![Allowance::Warm; report.keys.len()];
                    if changed.apply(report.sequence, &reply(report.sequence, 101, grants), &mut slots, now).is_ok() {
                        confirmed = kept(&report).map_or(confirmed, |admitted| admitted.max(confirmed));
                    }
                }
                _ => {
                    let goes_on = allows(&mut changed, &mut slots, "192.0.2.1", now);
                    prop_assert_eq!(goes_on, allows(&mut still, &mut other_slots, "192.0.2.1", now));
                    through += u64::from(goes_on);
                }
            }
        }
        // Late enough that no report is under way, and a warm key is due.
        let report = changed.report(&mut slots, true, now + 20 * SECOND_NS);
        let reported = report.as_ref().and_then(kept);
        prop_assert_eq!(reported.unwrap_or(confirmed), through);
    }
}
