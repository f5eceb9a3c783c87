//! A weir-sync without its IO: what it makes of reports, and of a store that answers or does not.

use weir_budget::ban::BanList;
use weir_budget::budget::{Account, Budget, BudgetId, PlanEntry};
use weir_budget::escrow::{AcquireRequest, AcquireResult};
use weir_budget::hub::{Hub, Pending, ReportResult, StoreReplies};
use weir_budget::report_limits::ReporterKind;
use weir_protocol::messages::{Allowance, Ban, BudgetRule, Key, Leased, Replies, Report, Settled};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;

use crate::{NOW_US, at, hub};

fn quota() -> Quota {
    Quota::new(Rate::new(10, Period::Second).unwrap(), 100).unwrap()
}

fn greeting(pop: &str, sequence: u64) -> Report {
    Report { pop: pop.into(), worker: 1, sequence, table: 1, ..Report::default() }
}

/// A report of `pop`, which admitted all that it was asked for and has had none of it confirmed.
fn report(pop: &str, sequence: u64, admitted: u64) -> Report {
    let rules = vec![BudgetRule { name: "r".into(), quota: quota(), sharing: Sharing::of(quota()) }];
    let (unconfirmed, asked) = (admitted, admitted);
    let key = Key { value: vec![1], epoch: 1, admitted, unconfirmed, span_ms: 250, asked, ..Key::default() };
    let key = Key { asked_recently: asked, ..key };
    Report { rules, keys: vec![key], ..greeting(pop, sequence) }
}

/// Replies of a store that counts `pops` POPs and charges full budgets.
fn answers(pending: &Pending, pops: u32) -> StoreReplies<&'static str> {
    StoreReplies { accounts: accounts(pending).into_iter().map(Ok).collect(), acquired: vec![], pops: Ok(pops) }
}

fn accounts(pending: &Pending) -> Vec<Account> {
    let charge = |charge| Budget::default().charge(NOW_US, &charge);
    pending.entries().iter().map(|entry| charge(entry.charge("eu", &pending.report.pop))).collect()
}

fn settle(hub: &mut Hub, ms: u64, report: Report, pops: u32) -> ReportResult<&'static str> {
    let pending = hub.report(ReporterKind::Pop, at(ms), NOW_US, report);
    let answers = answers(&pending, pops);
    hub.settle(at(ms), 7, pending, answers)
}

/// Overshoots of an outage multiply what is remembered.
#[test]
fn the_fan_out_never_exceeds_the_number_of_pops() {
    let mut hub = hub("eu", 0);
    let pending = hub.report(ReporterKind::Pop, at(0), NOW_US, report("fra1", 1, 70));
    let mut answers = answers(&pending, 2);
    answers.accounts.iter_mut().flatten().for_each(|account| account.fan_out = 195);
    hub.settle(at(0), 7, pending, answers);
    let pushed = settle(&mut hub, 100, greeting("fra2", 1), 2).reply.pushed;
    assert_eq!((pushed[0].grant.burst, pushed[0].grant.divisor), (50, 1), "of 100, at two POPs");
}

/// One node of a cluster is down, and only its keys have no account.
#[test]
fn a_key_without_an_account_uses_a_local_budget() {
    let mut hub = hub("eu", 0);
    settle(&mut hub, 0, greeting("fra1", 1), 2);
    let both = |sequence, admitted| {
        let mut both = report("fra1", sequence, admitted);
        both.keys.push(Key { value: vec![2], ..both.keys[0].clone() });
        both
    };
    let mut budget = Budget::default();
    let mut settle = |ms, admitted, is_down: bool| {
        let pending = hub.report(ReporterKind::Pop, at(ms), NOW_US, both(ms, admitted));
        let [living, other] = pending.entries() else { panic!("two keys") };
        let living = Ok(budget.charge(NOW_US, &living.charge("eu", "fra1")));
        let dead =
            if is_down { Err("down") } else { Ok(Budget::default().charge(NOW_US, &other.charge("eu", "fra1"))) };
        let answers = StoreReplies { accounts: vec![living, dead], acquired: vec![], pops: Ok(2) };
        let ReportResult { reply, facts, error, .. } = hub.settle(at(ms), 0, pending, answers);
        let charged = if is_down { Settled::But(vec![0b10]) } else { Settled::All };
        assert_eq!((error, reply.settled), (is_down.then_some("down"), charged));
        let bursts = reply.grants.iter().map(|allowance| allowance.grant().unwrap().burst);
        (bursts.collect::<Vec<_>>(), facts.deficits.len(), facts.tokens, hub.figures(at(ms)).store_silence_ns)
    };
    // The burst of the quota, and of the region's share of it. Of the share, 40 of 50 tokens are taken.
    assert_eq!(settle(250, 40, true), (vec![100, 50], 1, 40, 0));
    assert_eq!(settle(500, 41, true), (vec![100, 50], 1, 1, 0));
    assert_eq!(settle(750, 60, false), (vec![100, 100], 2, 79, 0));
}

/// Keys share an entry if one budget's bucket was made anew, or an acquire if the rule is strict.
#[test]
fn each_key_is_settled_if_what_it_shares_with_others_is() {
    let mut hub = hub("eu", 0);
    let mut report = report("fra1", 1, 40);
    let strict = Sharing { strict: true, ..report.rules[0].sharing.clone() };
    report.rules.push(BudgetRule { name: "strict".into(), sharing: strict, ..report.rules[0].clone() });
    let first = report.keys[0].clone();
    let key = |rule, value: u8, epoch| Key { rule, value: vec![value], epoch, ..first.clone() };
    report.keys = vec![key(0, 1, 1), key(1, 1, 1), key(0, 2, 1), key(1, 2, 1), key(0, 1, 2), key(1, 1, 2)];
    let mut settled = |dead: &[u8]| {
        let pending = hub.report(ReporterKind::Pop, at(0), NOW_US, report.clone());
        let is_dead = |id: &BudgetId| dead.contains(&id.value[0]);
        let account = |(entry, account): (&PlanEntry, Account)| {
            if is_dead(&entry.id) { Err("down") } else { Ok(account) }
        };
        let acquired = |acquire: &AcquireRequest| {
            let leases = vec![Leased::NONE; acquire.claims.len()];
            if is_dead(&acquire.id) {
                Err("down")
            } else {
                Ok(AcquireResult { deficit_ns: 0, outstanding: 0, given: 0, now_us: NOW_US, leases })
            }
        };
        let answers = StoreReplies {
            accounts: pending.entries().iter().zip(accounts(&pending)).map(account).collect(),
            acquired: pending.acquires().iter().map(acquired).collect(),
            pops: Ok(1),
        };
        hub.settle(at(0), 0, pending, answers).reply.settled
    };
    assert_eq!(settled(&[]), Settled::All);
    assert_eq!(settled(&[1]), Settled::But(vec![0b11_0011]));
    assert_eq!(settled(&[2]), Settled::But(vec![0b1100]));
    assert_eq!(settled(&[1, 2]), Settled::None);
}

#[test]
fn a_guessed_fleet_size_is_returned_once_until_it_is_known() {
    let mut hub = hub("eu", 0);
    let mut guess = |ms, report| {
        let pending = hub.report(ReporterKind::Pop, at(ms), NOW_US, report);
        let answers = StoreReplies::failed(&pending, ());
        let ReportResult { reply, facts, .. } = hub.settle(at(ms), 0, pending, answers);
        assert!(!reply.settled.is_all());
        (reply.is_guess, facts.guess)
    };
    assert_eq!(guess(0, greeting("fra1", 1)), (true, Some(1)));
    assert_eq!(guess(0, greeting("fra2", 1)), (true, None));
    assert_eq!(guess(0, Report { pops: 9, ..greeting("fra2", 2) }), (false, None));
}

/// An account of a budget that owes ten bursts, and one of the budget that took its place.
fn account(pending_entry: &PlanEntry, tokens: u64) -> Account {
    let mut entry = pending_entry.clone();
    entry.counts[0] = weir_budget::budget::Count { admitted: tokens, unconfirmed: tokens, ..entry.counts[0] };
    Budget::default().charge(NOW_US, &entry.charge("eu", "fra1"))
}

// I4
#[test]
fn a_reset_key_has_a_new_budget_in_every_region() {
    let (mut here, mut elsewhere, mut list) = (hub("eu", 0), hub("us", 0), BanList::default());
    let id = BudgetId::new("r".into(), vec![1]);
    let in_debt = |hub: &mut Hub, ms, pop, sequence| {
        let pending = hub.report(ReporterKind::Pop, at(ms), NOW_US, report(pop, sequence, 70));
        let accounts = vec![Ok(account(&pending.entries()[0], 1_000))];
        (pending, StoreReplies::<&str> { accounts, acquired: vec![], pops: Ok(3) })
    };
    for hub in [&mut here, &mut elsewhere] {
        let (pending, answers) = in_debt(hub, 0, "fra1", 1);
        let reply = hub.settle(at(0), 7, pending, answers).reply;
        assert!(reply.grants[0].grant().is_some_and(|grant| grant.level_milli < 0));
        assert!(hub.figures(at(0)).rules["r"].owed.sum_milli > 0);
        assert_eq!(hub.refill_policies("r"), []);
    }
    // The store is asked, and forgets the budget before its answer arrives.
    let (pending, answers) = in_debt(&mut here, 100, "fra1", 2);
    here.forget(at(110), id.clone());
    let reply = here.settle(at(120), 7, pending, answers).reply;
    assert_eq!((reply.grants, reply.pushed.len()), (vec![Allowance::Warm], 0));
    assert_eq!((reply.bans[0].for_ms, reply.rules), (0, vec!["r".to_owned()]));
    let mine = here.share_bans(at(120));
    let fleet = list.exchange(&mine.items, NOW_US);
    here.bans_listed(at(120), mine, &fleet);
    let (pending, answers) = in_debt(&mut elsewhere, 130, "iad1", 1);
    let nothing = elsewhere.share_bans(at(140));
    elsewhere.bans_listed(at(140), nothing, &fleet);
    let reply = elsewhere.settle(at(150), 7, pending, answers).reply;
    assert_eq!((reply.grants, reply.bans[0].for_ms), (vec![Allowance::Warm], 0));
    for hub in [&mut here, &mut elsewhere] {
        let reply = settle(hub, 200, greeting("new1", 1), 3).reply;
        assert_eq!((reply.pushed.len(), reply.bans.len()), (0, 1));
        assert_eq!(hub.figures(at(200)).rules["r"].owed.sum_milli, 0);
        assert!(hub.tick(at(200)).listing.items.is_empty(), "it is not listed as hot for any region");
        // From now on, the store's answers are of the new budget.
        let reply = settle(hub, 250, report("fra1", 3, 70), 3).reply;
        assert!(reply.grants[0].grant().is_some_and(|grant| grant.level_milli > 0));
    }
}

/// Only one of the two replies arrives, and it is unknown which.
#[test]
fn a_ban_in_the_reply_to_a_repeated_report_is_pushed_again() {
    let mut hub = hub("eu", 0);
    let bans = vec![Ban { rule: 0, value: vec![1], for_ms: 60_000 }];
    let banning = Report { keys: vec![], bans, ..report("fra1", 1, 0) };
    settle(&mut hub, 0, banning, 2);
    let copies = [0, 0].map(|ms| hub.report(ReporterKind::Pop, at(ms), NOW_US, greeting("fra2", 1)));
    let [first, second] = copies;
    let mut bans_in = |pending| {
        let answers = answers(&pending, 2);
        hub.settle(at(0), 7, pending, answers).reply.bans.len()
    };
    assert_eq!((bans_in(second), bans_in(first)), (1, 0));
    let one_received = Report { replies: Replies { done: 1, lost: 0 }, ..greeting("fra2", 2) };
    assert_eq!(settle(&mut hub, 0, one_received, 2).reply.bans.len(), 1);
}
