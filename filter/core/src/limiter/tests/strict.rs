//! Strict rules: only tokens that were paid for are spent.

use super::*;
use crate::RuleIndex;
use weir_protocol::messages::Leased;

fn strict(on_sync_loss: &str) -> (Limiter, LocalSlots) {
    let rule = json!([{"name": "login", "key": ["client_address"], "rate": "5/m", "strict": true,
                       "on_sync_loss": on_sync_loss}]);
    (limiter(rules(&rule), Some(1)), LocalSlots::new(4))
}

fn leased(sequence: u64, charged: u64, lease_ms: u32) -> Vec<u8> {
    answer_with(sequence, Leased::of(charged, lease_ms))
}

fn answer_with(sequence: u64, leased: Leased) -> Vec<u8> {
    let grants = vec![Allowance::Leased(leased)];
    Reply {
        sequence,
        pops: 1,
        settled: Settled::All,
        grants,
        rules: vec![],
        pushed: vec![],
        ..Reply::default()
    }
    .encode()
}

/// Asks, and expects to have to wait.
fn wait(limiter: &mut Limiter, slots: &mut LocalSlots, now: Time) -> (Report, u64) {
    waiting_for(ask(limiter, slots, "192.0.2.1", now))
}

fn again(limiter: &mut Limiter, answered: bool, slots: &mut LocalSlots, now: Time) -> DecisionKind {
    limiter.decide_again(answered, &mut Client("192.0.2.1".into()), slots, now).outcome()
}

#[test]
fn a_first_touch_waits_for_one_token_and_spends_it() {
    let (mut limiter, mut slots) = strict("deny");
    let (report, draw) = wait(&mut limiter, &mut slots, T0);
    let key = &report.keys[0];
    assert_eq!((key.admitted, key.ahead, report.rules[0].sharing.strict), (0, 1, true));
    let later = T0 + 90 * MS;
    assert!(limiter.drawn(draw, &leased(report.sequence, 1, 2_000), &mut slots, later).unwrap());
    assert_eq!(again(&mut limiter, true, &mut slots, later), DecisionKind::Allow);
    // The token is spent, so the next request waits again.
    let (report, draw) = wait(&mut limiter, &mut slots, later);
    assert_eq!((report.keys[0].admitted, report.keys[0].ahead), (1, 1));
    assert!(limiter.drawn(draw, &leased(report.sequence, 1, 2_000), &mut slots, later).unwrap());
    assert_eq!(again(&mut limiter, true, &mut slots, later), DecisionKind::Limit);
    // The next request is refused at once until a token may have come.
    assert_eq!(ask(&mut limiter, &mut slots, "192.0.2.1", later + 400 * MS).outcome(), DecisionKind::Limit);
    assert_eq!(ask(&mut limiter, &mut slots, "192.0.2.1", later + 600 * MS).outcome(), DecisionKind::Wait);
    assert_eq!(limiter.counters().take_event(CountedEvent::Paused), 3);
}

/// What clients are told of an hour, to within two seconds.
const HOUR_MS: u64 = 3_599_500;

/// So many an hour for each address.
fn hourly(rate: &str, burst: u32, on_sync_loss: &str) -> (Limiter, LocalSlots) {
    let rule = json!([{"name": "reset", "key": ["client_address"], "rate": rate, "burst": burst, "strict": true,
                       "on_sync_loss": on_sync_loss}]);
    (limiter(rules(&rule), Some(1)), LocalSlots::new(1))
}

/// Nothing was debited, and nothing will be for so long.
fn none_for(sequence: u64, charged: u64, wait_ms: u64) -> Vec<u8> {
    let grants = vec![Allowance::Leased(Leased { wait_ms, ..Leased::of(charged, 2_000) })];
    Reply { sequence, pops: 1, settled: Settled::All, grants, ..Reply::default() }.encode()
}

/// Asks, and answers that there will be no token for so long; returns how the request is refused.
fn in_vain(limiter: &mut Limiter, slots: &mut LocalSlots, wait_ms: u64, now: Time) -> BucketStatus {
    limiter.record_reply(1, false, now);
    let (report, draw) = wait(limiter, slots, now);
    let charged = report.keys[0].admitted;
    assert!(limiter.drawn(draw, &none_for(report.sequence, charged, wait_ms), slots, now).unwrap());
    let refused = limiter.decide_again(true, &mut Client("192.0.2.1".into()), slots, now);
    assert_eq!(refused.outcome(), DecisionKind::Limit);
    refused.strictest().unwrap().1
}

/// What a refused client is told of the next token, in seconds.
fn told_s(standing: &BucketStatus) -> u64 {
    standing.more_ns.div_ceil(SECOND_NS)
}

// I6
#[test]
fn a_client_without_a_token_is_told_when_the_budget_has_one() {
    let (mut limiter, mut slots) = hourly("1/h", 1, "deny");
    assert_eq!(told_s(&in_vain(&mut limiter, &mut slots, HOUR_MS, T0)), 3_600);
    // Later requests are told the same by this worker, from memory or the table, and by another worker from the table.
    for later_ms in [300, 30_000] {
        let later = T0 + later_ms * MS;
        limiter.record_reply(1, false, later);
        let standing = ask(&mut limiter, &mut slots, "192.0.2.1", later).strictest().unwrap().1;
        assert_eq!(told_s(&standing), (HOUR_MS - later_ms).div_ceil(1_000), "{later_ms} ms later");
    }
    let (mut other, _) = hourly("1/h", 1, "deny");
    other.record_reply(1, false, T0 + 30_000 * MS);
    let standing = ask(&mut other, &mut slots, "192.0.2.1", T0 + 30_000 * MS).strictest().unwrap().1;
    assert_eq!(told_s(&standing), 3_570);
    // When that time has passed, there is a token.
    let then = T0 + standing.more_ns + 30_000 * MS;
    limiter.record_reply(1, false, then);
    let (report, draw) = wait(&mut limiter, &mut slots, then);
    limiter
        .drawn(draw, &leased(report.sequence, report.keys[0].admitted + 1, 2_000), &mut slots, then)
        .unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, then), DecisionKind::Allow);
}

#[test]
fn a_client_is_told_what_the_budget_has_left_and_what_is_on_hand() {
    let (mut limiter, mut slots) = hourly("5/h", 5, "deny");
    let (report, draw) = wait(&mut limiter, &mut slots, T0);
    let grants =
        vec![Allowance::Leased(Leased { left: 2, ..Leased::of(report.keys[0].admitted + 3, 2_000) })];
    let reply =
        Reply { sequence: report.sequence, pops: 1, settled: Settled::All, grants, ..Reply::default() };
    assert!(limiter.drawn(draw, &reply.encode(), &mut slots, T0).unwrap());
    let first = limiter.decide_again(true, &mut Client("192.0.2.1".into()), &mut slots, T0);
    assert_eq!(first.strictest().unwrap().1.remaining, 4);
    let next =
        [(); 2].map(|()| ask(&mut limiter, &mut slots, "192.0.2.1", T0).strictest().unwrap().1.remaining);
    assert_eq!(next, [3, 2], "of tokens on hand");
}

#[test]
fn what_costs_more_than_there_is_waits_for_all_of_it() {
    let rule = json!([{"name": "reset", "key": ["client_address"], "rate": "1/h", "burst": 9, "strict": true, "cost": 4}]);
    let (mut limiter, mut slots) = (limiter(rules(&rule), Some(1)), LocalSlots::new(1));
    limiter.record_reply(1, false, T0);
    let (report, draw) = wait(&mut limiter, &mut slots, T0);
    assert_eq!(report.keys[0].ahead, 4);
    limiter.drawn(draw, &none_for(report.sequence, 1, 600_000), &mut slots, T0).unwrap();
    let refused = limiter.decide_again(true, &mut Client("192.0.2.1".into()), &mut slots, T0);
    // One of four was debited; one more comes in ten minutes, and two each an hour later.
    assert_eq!(told_s(&refused.strictest().unwrap().1), 600 + 2 * 3_600);
}

// I6
#[test]
fn a_key_that_is_told_to_wait_is_asked_for_again_within_a_minute() {
    let (mut limiter, mut slots) = hourly("1/h", 1, "deny");
    in_vain(&mut limiter, &mut slots, HOUR_MS, T0);
    let (soon, later) = (T0 + 59_000 * MS, T0 + 60_100 * MS);
    limiter.record_reply(1, false, soon);
    assert_eq!(ask(&mut limiter, &mut slots, "192.0.2.1", soon).outcome(), DecisionKind::Limit);
    // The budget was reset by hand meanwhile.
    limiter.record_reply(1, false, later);
    let (report, draw) = wait(&mut limiter, &mut slots, later);
    assert_eq!((report.keys[0].admitted, report.keys[0].ahead), (0, 1));
    limiter.drawn(draw, &leased(report.sequence, 1, 2_000), &mut slots, later).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, later), DecisionKind::Allow);
}

/// A client that is mostly refused and told to wait a moment is still paid for ahead as the budget refills.
#[test]
fn a_busy_key_that_is_told_to_wait_is_paid_for_ahead() {
    let (mut limiter, mut slots) = hourly("100/s", 100, "deny");
    let (report, draw) = wait(&mut limiter, &mut slots, T0);
    limiter.drawn(draw, &leased(report.sequence, 1, 2_000), &mut slots, T0).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Allow);
    in_vain(&mut limiter, &mut slots, 10, T0);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 9, T0), 0);
    let report = limiter.report(&mut slots, false, T0 + MS).unwrap();
    assert_eq!((report.keys[0].admitted, report.keys[0].ahead), (1, 11));
    limiter.apply(report.sequence, &leased(report.sequence, 12, 2_000), &mut slots, T0 + 2 * MS).unwrap();
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 20, T0 + 2 * MS), 11);
}

/// Outstanding tokens hold up the refill (I6), so an epoch must not end for every short wait.
#[test]
fn a_short_wait_ends_no_epoch() {
    let (mut limiter, mut slots) = hourly("100/s", 100, "deny");
    let (report, draw) = wait(&mut limiter, &mut slots, T0);
    let epoch = report.keys[0].epoch;
    limiter.drawn(draw, &leased(report.sequence, 1, 2_000), &mut slots, T0).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Allow);
    in_vain(&mut limiter, &mut slots, 10, T0);
    let (report, _) = wait(&mut limiter, &mut slots, T0 + 20 * MS);
    assert_eq!((report.keys[0].epoch, report.keys[0].admitted), (epoch, 1));
}

#[test]
fn what_is_given_back_leaves_it_known_when_there_are_tokens() {
    let (mut limiter, mut slots) = hourly("1/h", 1, "deny");
    let (report, draw) = wait(&mut limiter, &mut slots, T0);
    limiter.drawn(draw, &leased(report.sequence, 1, 2_000), &mut slots, T0).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Allow);
    in_vain(&mut limiter, &mut slots, HOUR_MS, T0);
    let report = limiter.report(&mut slots, false, T0 + 250 * MS).unwrap();
    assert_eq!((report.keys[0].admitted, report.keys[0].ahead), (1, 0), "the epoch has ended");
    limiter.record_reply(1, false, T0 + 2_000 * MS);
    let standing = ask(&mut limiter, &mut slots, "192.0.2.1", T0 + 2_000 * MS).strictest().unwrap().1;
    assert_eq!(told_s(&standing), 3_598);
}

// I6
#[test]
fn a_token_that_comes_sooner_ends_the_wait() {
    let (mut limiter, mut slots) = hourly("1/h", 3, "deny");
    let (first, one) = wait(&mut limiter, &mut slots, T0);
    let (second, other) = wait(&mut limiter, &mut slots, T0);
    limiter.drawn(one, &none_for(first.sequence, 0, HOUR_MS), &mut slots, T0).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Limit);
    limiter.drawn(other, &leased(second.sequence, 1, 2_000), &mut slots, T0).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Allow);
}

#[test]
fn out_of_touch_the_rule_decides_however_long_its_key_was_to_wait() {
    for (policy, expected) in
        [("deny", DecisionKind::Deny), ("local", DecisionKind::Allow), ("share", DecisionKind::Allow)]
    {
        let (mut limiter, mut slots) = hourly("1/h", 1, policy);
        in_vain(&mut limiter, &mut slots, HOUR_MS, T0);
        lose(&mut limiter, &mut slots, T0);
        let lost = T0 + crate::fleet::connectivity::FALLBACK_NS;
        assert_eq!(ask(&mut limiter, &mut slots, "192.0.2.1", lost).outcome(), expected, "{policy}");
    }
}

/// A client that has to wait for an hour does not keep its place for that hour.
#[test]
fn a_key_that_waits_makes_room_for_others() {
    let (mut limiter, mut slots) = hourly("1/h", 1, "deny");
    for n in 1..=40 {
        let address = std::format!("198.51.100.{n}");
        limiter.record_reply(1, false, T0);
        let (report, draw) = waiting_for(ask(&mut limiter, &mut slots, &address, T0));
        limiter.drawn(draw, &none_for(report.sequence, 0, HOUR_MS), &mut slots, T0).unwrap();
        let refused = limiter.decide_again(true, &mut Client(address), &mut slots, T0);
        assert_eq!(told_s(&refused.strictest().unwrap().1), 3_600);
    }
    assert_eq!(limiter.counters().take_event(CountedEvent::Overflowed), 0);
    assert!(matches!(
        limiter.entry(0, &[4, 32, 198, 51, 100, 40], &mut slots),
        Some(crate::table::slot::Entry::Watched(_))
    ));
}

// I6
#[test]
fn what_is_paid_for_is_spent_without_waiting_until_its_lease_ends() {
    let (mut limiter, mut slots) = strict("deny");
    let (report, draw) = wait(&mut limiter, &mut slots, T0);
    limiter.drawn(draw, &leased(report.sequence, 4, 2_000), &mut slots, T0 + 500 * MS).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, T0 + 500 * MS), DecisionKind::Allow);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 1, T0 + 1_995 * MS), 1);
    // The two seconds begin when the draw was made, not when its answer came.
    assert_eq!(ask(&mut limiter, &mut slots, "192.0.2.1", T0 + 2_000 * MS).outcome(), DecisionKind::Wait);
}

/// Each draw is answered before the next request comes, and at the tick the key is still paid for ahead.
#[test]
fn a_key_is_paid_for_ahead_however_quickly_its_draws_are_answered() {
    let (mut limiter, mut slots) = strict("deny");
    for (round, asks, ahead) in [(0_u64, 5, 5), (1, 3, 0), (2, 4, 4)] {
        let begin = T0 + round * 250 * MS;
        for n in 0..asks {
            let now = begin + n * 40 * MS;
            let (report, draw) = wait(&mut limiter, &mut slots, now);
            let charged = report.keys[0].admitted + 1;
            limiter.drawn(draw, &leased(report.sequence, charged, 2_000), &mut slots, now + MS).unwrap();
            assert_eq!(again(&mut limiter, true, &mut slots, now + MS), DecisionKind::Allow);
        }
        let report = limiter.report(&mut slots, false, begin + 240 * MS).unwrap();
        assert_eq!(report.keys[0].ahead, ahead, "{asks} times");
        // Nothing is left to lease: what comes next is drawn again.
        let charged = report.keys[0].admitted;
        let lease_ms = if ahead > 0 { 2_000 } else { 0 };
        limiter
            .apply(report.sequence, &leased(report.sequence, charged, lease_ms), &mut slots, begin + 245 * MS)
            .unwrap();
    }
}

#[test]
fn two_requests_that_wait_at_once_want_two_tokens() {
    let (mut limiter, mut slots) = strict("deny");
    let (first, one) = wait(&mut limiter, &mut slots, T0);
    let (second, other) = wait(&mut limiter, &mut slots, T0);
    assert_eq!((first.keys[0].ahead, second.keys[0].ahead), (1, 2));
    // Answered in the other order.
    limiter.drawn(other, &leased(second.sequence, 2, 2_000), &mut slots, T0).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Allow);
    limiter.drawn(one, &leased(first.sequence, 1, 2_000), &mut slots, T0).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Allow);
    assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Limit);
    assert!(drawing(&limiter) == 0 && limiter.watch.get_mut(0).is_none());
}

// I6
#[test]
fn a_draw_in_vain_is_decided_by_the_rule() {
    for (policy, expected) in
        [("deny", DecisionKind::Deny), ("local", DecisionKind::Allow), ("share", DecisionKind::Allow)]
    {
        let (mut limiter, mut slots) = strict(policy);
        let (report, draw) = wait(&mut limiter, &mut slots, T0);
        let nonsense = leased(report.sequence + 1, 9, 2_000);
        assert!(limiter.drawn(draw, &nonsense, &mut slots, T0).is_err());
        limiter.draw_failed(draw, &mut slots, T0);
        assert_eq!(again(&mut limiter, false, &mut slots, T0), expected, "{policy}");
        // weir-sync was silent from the start, so no other request waits for it.
        assert_eq!(ask(&mut limiter, &mut slots, "192.0.2.1", T0).outcome(), expected, "{policy}");
        // weir-sync answers, and the rule is strict again. What was let through meanwhile, its on_sync_loss allowed.
        limiter.record_reply(1, false, T0);
        let (report, _) = wait(&mut limiter, &mut slots, T0);
        let key = report.keys.last().unwrap();
        assert_eq!((key.admitted, key.ahead), (0, 1), "{policy}");
    }
}

// I6
#[test]
fn a_weir_sync_without_its_store_has_not_answered() {
    let (mut limiter, mut slots) = strict("deny");
    let (report, draw) = wait(&mut limiter, &mut slots, T0);
    let grants = vec![Allowance::Leased(Leased::of(0, 0))];
    let (sequence, rules) = (report.sequence, vec![]);
    let reply = Reply {
        sequence,
        pops: 1,
        settled: Settled::None,
        grants,
        rules,
        pushed: vec![],
        ..Reply::default()
    };
    assert!(!limiter.drawn(draw, &reply.encode(), &mut slots, T0).unwrap());
    assert_eq!(again(&mut limiter, false, &mut slots, T0), DecisionKind::Deny);
}

/// A request counts by two rules, and the budget of one of them is out of reach: its own `on_sync_loss` decides about
/// it, and nothing else.
#[test]
fn a_key_that_its_store_did_not_answer_for_is_decided_by_its_own_rule() {
    let rule = |name, on_sync_loss| {
        json!({"name": name, "key": ["client_address"], "rate": "5/m", "strict": true,
               "on_sync_loss": on_sync_loss})
    };
    let paid = Leased::of(1, 2_000);
    for (on_sync_loss, lease, expected) in [
        ("local", paid, DecisionKind::Allow),
        ("deny", paid, DecisionKind::Deny),
        ("local", Leased::of(0, 2_000), DecisionKind::Limit),
    ] {
        let rules = rules(&json!([rule("living", "local"), rule("dead", on_sync_loss)]));
        let (mut limiter, mut slots) = (limiter(rules, Some(1)), LocalSlots::new(4));
        let (report, draw) = wait(&mut limiter, &mut slots, T0);
        let dead =
            report.keys.iter().position(|key| report.rules[usize::from(key.rule)].name == "dead").unwrap();
        let settled = Settled::But(vec![1 << dead]);
        let mut grants = vec![Allowance::Leased(lease); 2];
        grants[dead] = Allowance::Leased(Leased::NONE);
        let reply = Reply { sequence: report.sequence, pops: 1, settled, grants, ..Reply::default() };
        assert!(limiter.drawn(draw, &reply.encode(), &mut slots, T0).unwrap());
        assert_eq!(again(&mut limiter, true, &mut slots, T0), expected, "{on_sync_loss}, {lease:?}");
        assert!(limiter.in_vain.is_empty(), "the next request asks again");
    }
}

#[test]
fn a_busy_key_is_paid_for_ahead_of_its_requests() {
    let (mut limiter, mut slots) = strict("deny");
    let (report, draw) = wait(&mut limiter, &mut slots, T0);
    limiter.drawn(draw, &leased(report.sequence, 5, 2_000), &mut slots, T0).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Allow);
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 4, T0), 4);
    let report = limiter.report(&mut slots, false, T0 + 250 * MS).unwrap();
    assert_eq!((report.keys[0].admitted, report.keys[0].ahead), (5, 5), "one was drawn, four were on hand");
    let answer = leased(report.sequence, 7, 2_000);
    limiter.apply(report.sequence, &answer, &mut slots, T0 + 300 * MS).unwrap();
    assert_eq!(admitted(&mut limiter, &mut slots, "192.0.2.1", 3, T0 + 300 * MS), 2);
}

#[test]
fn grants_of_the_other_kind_change_nothing() {
    let (mut limiter, mut slots) = strict("deny");
    let (report, draw) = wait(&mut limiter, &mut slots, T0);
    let grants = vec![Allowance::Hot(grant(1, 1, 100_000))];
    let (sequence, rules) = (report.sequence, vec![]);
    let reply =
        Reply { sequence, pops: 1, settled: Settled::All, grants, rules, pushed: vec![], ..Reply::default() };
    assert!(limiter.drawn(draw, &reply.encode(), &mut slots, T0).unwrap());
    assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Limit);
    // And a bounded rule's key is not paid for in advance.
    let (mut bounded, mut slots) = watching();
    let report = bounded.report(&mut slots, false, T0).unwrap();
    bounded.apply(report.sequence, &leased(report.sequence, 99, 2_000), &mut slots, T0).unwrap();
    let again = bounded.report(&mut slots, true, T0).unwrap();
    assert!(again.keys.iter().all(|key| key.unconfirmed == 4));
}

// I3
#[test]
fn a_token_is_given_back_where_another_rule_is_short() {
    let rule = json!([
        {"name": "login", "key": ["client_address"], "rate": "5/m", "strict": true},
        {"name": "net", "key": [{"client_address": {"ipv4": 8}}], "rate": "1/h", "burst": 2}
    ]);
    let (mut limiter, mut slots) = (limiter(rules(&rule), Some(1)), LocalSlots::new(64));
    let (report, draw) = wait(&mut limiter, &mut slots, T0);
    limiter.drawn(draw, &leased(report.sequence, 3, 9_000), &mut slots, T0).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Allow);
    // Another client takes one more token of the net; it waits for its own token and gets it.
    let (report, draw) = waiting_for(ask(&mut limiter, &mut slots, "192.9.9.9", T0));
    limiter.drawn(draw, &leased(report.sequence, 1, 9_000), &mut slots, T0).unwrap();
    let other = limiter.decide_again(true, &mut Client("192.9.9.9".into()), &mut slots, T0);
    assert_eq!(other.outcome(), DecisionKind::Allow);
    // The net has nothing left: what is on hand for the first client stays on hand.
    let decision = ask(&mut limiter, &mut slots, "192.0.2.1", T0);
    assert_eq!(
        (decision.outcome(), decision.strictest().unwrap().0),
        (DecisionKind::Limit, RuleIndex::new(1))
    );
    let report = limiter.report(&mut slots, true, T0).unwrap();
    let given_back = report.keys.iter().filter(|key| report.rules[usize::from(key.rule)].name == "login");
    let given_back: Vec<_> = given_back.map(|key| (key.admitted, key.ahead)).collect();
    assert_eq!(given_back, [(1, 0), (1, 0)]);
}

/// The same where the other slot was fine when it was read.
// I3
#[test]
fn a_token_is_given_back_where_another_rule_turns_out_short() {
    let net = json!({"name": "net", "key": [{"client_address": {"ipv4": 8}}], "rate": "1/h", "burst": 2});
    for (rate, burst) in [("5/m", 5), ("100/s", 1_000)] {
        let login =
            json!({"name": "login", "key": ["client_address"], "rate": rate, "burst": burst, "strict": true});
        let mut slots = LocalSlots::new(64);
        let mut mine = limiter(rules(&json!([login, net])), Some(1));
        let mut other = limiter(rules(&json!([net])), None);
        let (report, draw) = wait(&mut mine, &mut slots, T0);
        mine.drawn(draw, &leased(report.sequence, 3, 9_000), &mut slots, T0).unwrap();
        assert_eq!(again(&mut mine, true, &mut slots, T0), DecisionKind::Allow);
        let mut reads = 0;
        let mut interloper = |slots: &mut LocalSlots| {
            reads += 1;
            if reads == 2 {
                assert!(allows(&mut other, slots, "192.9.9.9", T0));
            }
        };
        let mut contended = Contended { slots: &mut slots, interloper: RefCell::new(&mut interloper) };
        assert_eq!(ask(&mut mine, &mut contended, "192.0.2.1", T0).outcome(), DecisionKind::Limit);
        assert!(reads >= 4, "judged again, and given back");
        let report = mine.report(&mut slots, true, T0).unwrap();
        let of_login = report.keys.iter().filter(|key| report.rules[usize::from(key.rule)].name == "login");
        assert_eq!(of_login.map(|key| key.admitted).collect::<Vec<_>>(), [1], "{rate}");
    }
}

#[test]
fn what_is_not_used_is_given_back_in_an_epoch_that_has_ended() {
    let (mut limiter, mut slots) = strict("deny");
    let (report, draw) = wait(&mut limiter, &mut slots, T0);
    let first = report.keys[0].epoch;
    limiter.drawn(draw, &leased(report.sequence, 3, 2_000), &mut slots, T0).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Allow);
    let report = limiter.report(&mut slots, false, T0 + 250 * MS).unwrap();
    let key = &report.keys[0];
    assert_eq!((key.epoch, key.admitted, key.ahead), (first, 1, 0));
    // Even if that report is lost, what was left cannot be spent any more.
    let (report, _) = wait(&mut limiter, &mut slots, T0 + 250 * MS);
    assert_eq!((report.keys[0].admitted, report.keys[0].ahead), (0, 1));
    assert_ne!(report.keys[0].epoch, first);
}

/// The epochs that a report names, with what was spent and what is wanted.
fn said(report: &Report) -> Vec<(u32, u64, u32)> {
    report.keys.iter().map(|key| (key.epoch, key.admitted, key.ahead)).collect()
}

#[test]
fn what_is_not_used_is_given_back_until_an_answer_confirms_it() {
    let (mut limiter, mut slots) = strict("deny");
    let (report, draw) = wait(&mut limiter, &mut slots, T0);
    let epoch = report.keys[0].epoch;
    limiter.drawn(draw, &leased(report.sequence, 3, 2_000), &mut slots, T0).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Allow);
    let mut reported = |ms| limiter.report(&mut slots, true, T0 + ms * MS).unwrap();
    let lost = reported(250);
    assert_eq!(said(&lost), [(epoch, 1, 0)]);
    assert_eq!(said(&reported(500)), [], "it is under way");
    limiter.report_failed(lost.sequence, T0 + 600 * MS);
    let second = limiter.report(&mut slots, true, T0 + 750 * MS).unwrap();
    assert_eq!(said(&second), [(epoch, 1, 0)]);
    limiter.apply(second.sequence, &leased(second.sequence, 0, 0), &mut slots, T0 + 800 * MS).unwrap();
    assert_eq!(said(&limiter.report(&mut slots, true, T0 + 1_000 * MS).unwrap()), []);
}

/// The budget may have been debited, and the answer lost.
#[test]
fn what_a_call_that_failed_may_have_acquired_is_given_back() {
    let (mut limiter, mut slots) = strict("deny");
    let (lost, draw) = wait(&mut limiter, &mut slots, T0);
    limiter.draw_failed(draw, &mut slots, T0 + 500 * MS);
    assert_eq!(again(&mut limiter, false, &mut slots, T0 + 500 * MS), DecisionKind::Deny);
    limiter.record_reply(1, false, T0 + 500 * MS);
    // The next call for a token gives it back before it asks.
    let (report, draw) = wait(&mut limiter, &mut slots, T0 + 501 * MS);
    let next = report.keys[1].epoch;
    assert_eq!(said(&report), [(lost.keys[0].epoch, 0, 0), (next, 0, 1)]);
    limiter.draw_failed(draw, &mut slots, T0 + 600 * MS);
    let report = limiter.report(&mut slots, false, T0 + 750 * MS).unwrap();
    assert_eq!(said(&report), [(lost.keys[0].epoch, 0, 0), (next, 0, 0)]);
}

#[test]
fn a_little_that_is_spent_of_a_burst_needs_no_report_of_its_own() {
    let rule = json!([{"name": "login", "key": ["client_address"], "rate": "128/s", "strict": true}]);
    let (mut limiter, mut slots) = (limiter(rules(&rule), Some(1)), LocalSlots::new(4));
    for (charged, said) in [(1, None), (2, None), (3, Some((3, 0)))] {
        let now = T0 + charged * 300 * MS;
        let (report, draw) = wait(&mut limiter, &mut slots, now);
        // The next draw says it.
        assert_eq!((report.keys[0].admitted, report.keys[0].ahead), (charged - 1, 1));
        assert!(limiter.drawn(draw, &leased(report.sequence, charged, 2_000), &mut slots, now).unwrap());
        assert_eq!(again(&mut limiter, true, &mut slots, now), DecisionKind::Allow);
        let report = limiter.report(&mut slots, false, now + 250 * MS);
        assert_eq!(report.map(|report| (report.keys[0].admitted, report.keys[0].ahead)), said, "{charged}");
    }
}

// I6
#[test]
fn an_epoch_whose_lease_has_ended_is_never_named_again() {
    let (mut limiter, mut slots) = strict("deny");
    let (mut names, mut now) = (vec![], T0);
    for round in 0..20 {
        let (report, draw) = wait(&mut limiter, &mut slots, now);
        names.push(report.keys[0].epoch);
        // The lease has ended when it arrives, or the answer says that the epoch is over.
        let lease_ms = 9 * u32::from(round % 2 == 1);
        limiter.drawn(draw, &leased(report.sequence, 9, lease_ms), &mut slots, now + 5).unwrap();
        if lease_ms > 0 {
            assert_eq!(again(&mut limiter, true, &mut slots, now + 5), DecisionKind::Allow);
        }
        let report = limiter.report(&mut slots, true, now + 6).unwrap();
        limiter.report_failed(report.sequence, now + 6);
        now += if lease_ms > 0 { 9 * MS } else { 100_000 };
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 20);
}

// I6
#[test]
fn an_answer_that_comes_after_its_lease_is_ignored() {
    let (mut limiter, mut slots) = strict("deny");
    let (report, draw) = wait(&mut limiter, &mut slots, T0);
    let late = T0 + 2_000 * MS;
    limiter.drawn(draw, &leased(report.sequence, 5, 2_000), &mut slots, late).unwrap();
    assert_eq!(again(&mut limiter, true, &mut slots, late), DecisionKind::Limit);
}

/// Where tokens that others hold may come back, the next request asks again; else the key is barred until its refill.
// I6
#[test]
fn a_key_whose_tokens_may_come_back_is_not_barred() {
    for (may_return, next) in [(true, DecisionKind::Wait), (false, DecisionKind::Limit)] {
        let (mut limiter, mut slots) = strict("deny");
        let (report, draw) = wait(&mut limiter, &mut slots, T0);
        let none = Leased { wait_ms: 30_000, may_return, ..Leased::of(0, 2_000) };
        limiter.drawn(draw, &answer_with(report.sequence, none), &mut slots, T0).unwrap();
        assert_eq!(again(&mut limiter, true, &mut slots, T0), DecisionKind::Limit);
        let later = T0 + SECOND_NS;
        assert_eq!(ask(&mut limiter, &mut slots, "192.0.2.1", later).outcome(), next, "{may_return}");
    }
}
