//! Limits on the claims of a POP: room for an honest one, refusals for one that lies, and bounds on all of it.

use proptest::prelude::*;
use weir_budget::budget::{Budget, PlanEntry};
use weir_budget::hub::{Hub, StoreReplies};
use weir_budget::report_limits::{
    BURSTS, DEMAND_TIMES, FLOOD_PER_S, KnownRule, LATE_NS, OF_ONE_POP_MAX, RefusedClaimReason, ReporterKind, SPAN_NS,
};
use weir_protocol::messages::{Allowance, Ban, BudgetRule, Key, Report, RunningRules};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;
use weir_protocol::time::SECOND_NS;

use crate::{NOW_US, at, hub};

fn quota() -> Quota {
    Quota::new(Rate::new(10, Period::Second).unwrap(), 100).unwrap()
}

fn rule(quota: Quota) -> BudgetRule {
    BudgetRule { name: "r".into(), quota, sharing: Sharing::of(quota) }
}

/// A count of the client's key that no reply has confirmed.
fn key(epoch: u32, admitted: u64) -> Key {
    let (unconfirmed, asked) = (admitted, admitted);
    Key { value: vec![1], epoch, admitted, unconfirmed, span_ms: 250, asked, ..Key::default() }
}

/// A report of a POP that was made at `ms` of its clock.
fn report(ms: u64, keys: Vec<Key>) -> Report {
    Report { pop: "fra1".into(), table: 1, made_ms: ms, rules: vec![rule(quota())], keys, ..Report::default() }
}

/// Entries for the store of a report that arrives at `ms`, and refusals.
fn observe(hub: &mut Hub, ms: u64, report: Report) -> (Vec<PlanEntry>, Vec<(RefusedClaimReason, u64)>) {
    observe_from(ReporterKind::Pop, hub, ms, report)
}

fn observe_from(
    reporter: ReporterKind,
    hub: &mut Hub,
    ms: u64,
    report: Report,
) -> (Vec<PlanEntry>, Vec<(RefusedClaimReason, u64)>) {
    let pending = hub.report(reporter, at(ms), NOW_US, report);
    let (entries, answers) = (pending.entries().to_vec(), StoreReplies::failed(&pending, ()));
    let refused = hub.settle(at(ms), 0, pending, answers).facts.refused;
    (entries, refused.iter().map(|refusal| (refusal.reason, refusal.count)).collect())
}

/// Tokens of the client's key that are sent to the store as admitted, for a report that arrives at `ms`.
fn admitted(hub: &mut Hub, ms: u64, report: Report) -> u64 {
    observe(hub, ms, report).0[0].counts[0].admitted
}

/// Tokens that a POP may claim at once for a key that was never reported.
fn at_once(span_ns: u64) -> u64 {
    (BURSTS * quota().fill_ns() + LATE_NS + span_ns) / quota().token_ns()
}

/// Its callers charge what has happened, and that may be more than any bucket holds.
#[test]
fn claims_of_the_own_gateway_are_charged_at_once() {
    let claims = report(0, vec![key(1, 1 << 30)]);
    let (entries, refused) = observe_from(ReporterKind::Gateway, &mut hub("eu", 0), 0, claims);
    assert_eq!((entries[0].counts[0].admitted, refused), (1 << 30, vec![]));
}

/// Workers take a rule set over one after the other; a POP that lies may claim that in each of its reports.
#[test]
fn quotas_that_alternate_bring_no_more_than_one_new_bucket() {
    let slow = Quota::new(Rate::new(10, Period::Minute).unwrap(), 100).unwrap();
    let (mut hub, mut charged) = (hub("eu", 0), 0);
    let known = |quota: Quota| KnownRule { rule: rule(quota), ban_ms: 0, cost_max: 1 };
    hub.set_rules(8, [slow, quota()].map(known).to_vec());
    for n in 1..=100 {
        let (version, quota) = if n % 2 == 0 { (8 + u64::from(n), quota()) } else { (7, slow) };
        let lie = Report {
            running: RunningRules { version, ..RunningRules::default() },
            rules: vec![rule(quota)],
            ..report(10 * u64::from(n), vec![key(n, 1 << 50)])
        };
        let (entries, _) = observe(&mut hub, 10 * u64::from(n), lie);
        charged += entries[0].counts.iter().map(|count| count.unconfirmed).sum::<u64>();
    }
    let once = BURSTS * 100;
    assert!((once..=2 * once + 40).contains(&charged), "{charged}");
}

#[test]
fn a_first_report_covers_half_a_minute_and_the_pops_silence() {
    for silent_s in [0, 60, 3_600] {
        let (mut hub, ms) = (hub("eu", 0), silent_s * 1_000);
        observe(&mut hub, 0, report(0, vec![]));
        let claim = Key { span_ms: u32::MAX, ..key(1, 1 << 50) };
        let (entries, refused) = observe(&mut hub, ms, report(ms, vec![claim]));
        assert_eq!(entries[0].counts[0].unconfirmed, at_once(SPAN_NS + silent_s * SECOND_NS), "{silent_s}");
        assert_eq!(refused, [(RefusedClaimReason::Tokens, 1)]);
    }
}

#[test]
fn charged_tokens_cannot_be_claimed_again_after_a_store_loss() {
    let mut hub = hub("eu", 0);
    let mut unconfirmed = |ms: u64, tokens: u64, is_charged: bool| {
        let pending = hub.report(ReporterKind::Pop, at(ms), NOW_US, report(ms, vec![key(1, tokens)]));
        let tokens_charged = pending.entries()[0].counts[0].unconfirmed;
        let mut answers = StoreReplies::failed(&pending, ());
        if is_charged {
            let mut budget = Budget::default();
            let account = budget.charge(1 << 50, &pending.entries()[0].charge("eu", "fra1"));
            answers = StoreReplies { accounts: vec![Ok(account)], acquired: vec![], pops: Ok(1) };
        }
        drop(hub.settle(at(ms), 0, pending, answers));
        tokens_charged
    };
    assert_eq!(unconfirmed(0, 20, false), 20);
    assert_eq!(unconfirmed(250, 30, true), 30, "the store has none of it yet");
    assert_eq!(unconfirmed(500, 35, true), 5, "its reply was lost, but the store has it");
}

/// A response cost far more than the bucket had, and the client does not come back.
#[test]
fn a_clipped_report_is_repeated_until_all_is_charged() {
    let (mut hub, mut budget, mut charged) = (hub("eu", 0), Budget::default(), 0);
    let replies = (0..400_u64).take_while(|n| {
        let ms = n * 250;
        let claim = Key { span_ms: 250 * u32::try_from(n + 1).unwrap(), ..key(1, 1_000) };
        let pending = hub.report(ReporterKind::Pop, at(ms), NOW_US, report(ms, vec![claim]));
        let account = budget.charge((1 << 50) + ms * 1_000, &pending.entries()[0].charge("eu", "fra1"));
        charged += account.charged;
        let answers = StoreReplies::<()> { accounts: vec![Ok(account)], acquired: vec![], pops: Ok(1) };
        !hub.settle(at(ms), 0, pending, answers).reply.settled.covers(0)
    });
    let repeats = replies.count();
    assert_eq!(charged, 1_000, "after {repeats} repeats");
    assert!((200..240).contains(&repeats), "{repeats}: it takes as long as the meter refills");
}

#[test]
fn a_key_of_an_unknown_rule_is_refused_unconfirmed() {
    let mut hub = hub("eu", 0);
    assert_eq!(observe(&mut hub, 0, report(0, vec![key(1, 1)])).1, [], "without a pushed rule set no rules are known");
    hub.set_rules(7, vec![KnownRule { rule: rule(quota()), ban_ms: 0, cost_max: 1 }]);
    let slow = Quota::new(Rate::new(1, Period::Day).unwrap(), 100).unwrap();
    let rules = vec![rule(slow), rule(quota()), BudgetRule { name: "s".into(), ..rule(quota()) }];
    let keys = [0, 1, 2].map(|rule| Key { rule, ..key(1, 1) });
    let pending = hub.report(ReporterKind::Pop, at(250), NOW_US, Report { rules, ..report(250, keys.to_vec()) });
    let [entry] = pending.entries() else { panic!("{pending:?}") };
    let account = Budget::default().charge(NOW_US, &entry.charge("eu", "fra1"));
    let answers = StoreReplies::<()> { accounts: vec![Ok(account)], acquired: vec![], pops: Ok(1) };
    let outcome = hub.settle(at(250), 0, pending, answers);
    assert_eq!(outcome.facts.refused[0].count, 2);
    assert_eq!(outcome.reply.grants, [Allowance::Warm; 3]);
    assert_eq!([0, 1, 2].map(|at| outcome.reply.settled.covers(at)), [false, true, false]);
}

/// It may lie, so nothing is charged; and it may be right, so it has its part of the region.
// I9
#[test]
fn a_key_of_a_newer_rule_set_gets_a_local_grant() {
    let mut hub = hub("eu", 0);
    hub.set_rules(7, vec![]);
    let claim = |version: u64| Report {
        running: RunningRules { version, refused: 0 },
        ..report(250, vec![key(1, 1), Key { value: vec![2], ..key(1, 300) }])
    };
    for (version, reason) in [(8, RefusedClaimReason::Newer), (7, RefusedClaimReason::Rule)] {
        let (entries, refused) = observe(&mut hub, 250, claim(version));
        assert_eq!((entries.len(), refused), (0, vec![(reason, 2)]));
    }
    hub.set_rules(8, vec![KnownRule { rule: rule(quota()), ban_ms: 0, cost_max: 1 }]);
    assert_eq!(observe(&mut hub, 500, claim(8)).0.len(), 2);
}

// I2
#[test]
fn a_pop_claims_at_most_its_share_of_keys() {
    let mut hub = hub("eu", 0);
    let claim = |n: u64| Key { value: n.to_be_bytes().to_vec(), ..key(1, 400) };
    let most = OF_ONE_POP_MAX as u64;
    let asked = most.next_multiple_of(1_000) + 2_000;
    let mut refused = 0;
    for n in (0..asked).step_by(1_000) {
        let claims = report(0, (n..n + 1_000).map(claim).collect());
        refused += observe(&mut hub, 0, claims).1.iter().map(|(_, count)| count).sum::<u64>();
    }
    assert_eq!(refused, asked - most);
    let other = Report { pop: "iad1".into(), ..report(0, vec![key(1, 100)]) };
    assert_eq!(admitted(&mut hub, 0, other), 100);
    let later = observe(&mut hub, 60_000, report(60_000, vec![claim(1 << 60)]));
    assert_eq!((later.0.len(), later.1), (1, vec![]), "full meters have made room");
}

/// A flood of made-up addresses at an honest POP.
#[test]
fn a_key_beyond_the_share_gets_a_local_grant_unconfirmed() {
    let mut hub = hub("eu", 2);
    let claim = |n: u64, tokens: u64| Key { value: n.to_be_bytes().to_vec(), ..key(1, tokens) };
    for n in (0..=OF_ONE_POP_MAX as u64).step_by(1_000) {
        drop(hub.report(ReporterKind::Pop, at(0), 1 << 50, report(0, (n..n + 1_000).map(|n| claim(n, 1)).collect())));
    }
    let mut answer = |pop: &str, keys: Vec<Key>| {
        let pending = hub.report(ReporterKind::Pop, at(250), NOW_US, Report { pop: pop.into(), ..report(250, keys) });
        let charge = |entry: &PlanEntry| Ok(Budget::default().charge(1 << 50, &entry.charge("eu", pop)));
        let accounts: Vec<_> = pending.entries().iter().map(charge).collect();
        let answers = StoreReplies::<()> { accounts, acquired: vec![], pops: Ok(2) };
        (pending.entries().len(), hub.settle(at(250), 0, pending, answers).reply)
    };
    let (charged, reply) = answer("fra1", vec![claim(500_000, 1), claim(500_001, 1 << 40), claim(0, 1)]);
    assert_eq!((charged, [0, 1, 2].map(|at| reply.settled.covers(at))), (1, [false, false, true]));
    assert_eq!((reply.grants[0], reply.grants[2]), (Allowance::Warm, Allowance::Warm));
    assert!(reply.grants[1].grant().is_some_and(|grant| grant.level_milli < 0), "{:?}", reply.grants[1]);
    let (_, other) = answer("iad1", vec![claim(500_001, 1)]);
    assert_eq!((other.grants, other.pushed), (vec![Allowance::Warm], vec![]), "nothing of it is kept");
}

#[test]
fn a_ban_is_one_that_a_rule_imposes_and_no_longer() {
    let mut hub = hub("eu", 0);
    let penalty = |name: &str, ban_ms: u32| KnownRule {
        rule: BudgetRule { name: name.into(), ..rule(quota()) },
        ban_ms,
        cost_max: 1,
    };
    // The penalty of `r` is another in the version before.
    hub.set_rules(7, vec![penalty("r", 30_000), penalty("r", 60_000), penalty("s", 0)]);
    let mut listed = |rule_at: u16, value: u8, for_ms: u32| {
        let rules = ["r", "s", "t"].map(|name| BudgetRule { name: name.into(), ..rule(quota()) }).to_vec();
        let bans = vec![Ban { rule: rule_at, value: vec![value], for_ms }];
        let is_news =
            hub.report(ReporterKind::Pop, at(0), NOW_US, Report { rules, bans, ..report(0, vec![]) }).has_bans;
        let list = hub.share_bans(at(0));
        let listed = list.items.iter().find(|key| key.id.value == [value]).map(|key| key.for_ms);
        assert_eq!(is_news, listed.is_some());
        listed
    };
    assert_eq!(listed(0, 1, 60_000), Some(60_000));
    assert_eq!(listed(0, 2, 60_114), Some(60_000), "its POP's clock stepped back");
    assert_eq!([listed(1, 3, 1_000), listed(2, 4, 1_000)], [None, None]);
}

/// Step of a POP whose bucket admits as much as it can, with lost and late reports, restarts of its Envoy a minute
/// apart, and epochs that end at any time.
#[derive(Clone, Debug)]
struct Step {
    ms: u64,
    asks: u64,
    late_ms: u64,
    arrives: bool,
    is_new_epoch: bool,
}

#[test]
fn the_shown_demand_of_a_key_is_within_its_pops_limits() {
    let per_s = DEMAND_TIMES * (10 + 4 * 100);
    // Four times a second for a minute: of one epoch, of several in turn, and by an honest POP.
    for (epochs, asked_each) in [(1, u64::MAX / 1_000), (3, u64::MAX / 1_000), (1, 250)] {
        let (mut hub, mut budget, mut shown) = (hub("eu", 1), Budget::default(), 0);
        for n in 1..=240 {
            let epoch = u32::try_from(n % epochs).unwrap();
            let asked = n * asked_each;
            let key = Key { value: vec![1], epoch, asked, asked_recently: asked_each, ..Key::default() };
            let pending = hub.report(ReporterKind::Pop, at(n * 250), NOW_US + n * 250_000, report(n * 250, vec![key]));
            shown += pending.report.keys[0].asked_recently;
            let account = budget.charge(NOW_US + n * 250_000, &pending.entries()[0].charge("eu", "fra1"));
            let answers = StoreReplies { accounts: vec![Ok(account)], acquired: vec![], pops: Ok(1) };
            hub.settle::<&str>(at(n * 250), 0, pending, answers);
        }
        let rates = hub.top_keys.message(at(60_000), 10).keys[0].rates;
        if asked_each == 250 {
            assert_eq!((shown, rates.asked_milli), (60_000, 1_000_000));
        } else {
            let most = per_s * 95 + FLOOD_PER_S * 62;
            assert!(shown <= most, "{shown} in a minute, and half a minute before");
            assert!(rates.asked_milli <= (per_s + FLOOD_PER_S) * 1_000, "{rates:?}");
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let ms = prop_oneof![8 => 1..600_u64, 1 => 600..20_000_u64, 1 => 20_000..200_000_u64];
    let asks = prop_oneof![0..10_u64, 0..5_000_u64];
    (ms, asks, 0..1_500_u64, prop::bool::weighted(0.8), prop::bool::weighted(0.1))
        .prop_map(|(ms, asks, late_ms, arrives, is_new_epoch)| Step { ms, asks, late_ms, arrives, is_new_epoch })
}

proptest! {
    #[test]
    fn an_honest_pop_is_refused_nothing(steps in prop::collection::vec(step(), 1..120), drift_ppm in -200..200_i64) {
        let (mut hub, token_ms) = (hub("eu", 0), quota().token_ns() / 1_000_000);
        let (mut now_ms, mut lacks_ms, mut restarted_ms) = (0_u64, 0_u64, 0_u64);
        let (mut epoch, mut table, mut tokens, mut since_ms) = (1, 1, 0, None);
        let mut arrived_ms = 0;
        for Step { ms, asks, late_ms, arrives, is_new_epoch } in steps {
            now_ms += ms;
            lacks_ms = lacks_ms.saturating_sub(ms);
            if now_ms - restarted_ms > 60_000 {
                // What was not reported is lost.
                (lacks_ms, restarted_ms, table, tokens, since_ms) = (0, now_ms, table + 1, 0, None);
            } else if is_new_epoch && since_ms.is_none() {
                (epoch, tokens) = (epoch + 1, 0);
            }
            let admitted = asks.min((10_000 - lacks_ms) / token_ms);
            lacks_ms += admitted * token_ms;
            tokens += admitted;
            let since = *since_ms.get_or_insert(now_ms - ms);
            if !arrives {
                continue;
            }
            // By our clock, which drifts from the POP's, and in order.
            let here_ms = now_ms.cast_signed() + now_ms.cast_signed() * drift_ppm / 1_000_000;
            arrived_ms = arrived_ms.max(u64::try_from(here_ms).unwrap() + late_ms);
            let span_ms = u32::try_from(now_ms - since).unwrap();
            let claim = Key { span_ms, ..key(epoch, tokens) };
            let report = Report { table, ..report(now_ms, vec![claim]) };
            let (entries, refused) = observe(&mut hub, arrived_ms, report);
            prop_assert_eq!(refused, []);
            prop_assert_eq!(entries[0].counts[0].admitted, tokens);
            since_ms = None;
        }
    }
}
