//! Keys that operators see as limited, from reports and the store's answers.

use weir_budget::budget::{Budget, BudgetId};
use weir_budget::escrow::AcquireResult;
use weir_budget::hub::StoreReplies;
use weir_budget::report_limits::ReporterKind;
use weir_budget::top_keys::fleet::{FleetTopKey, together};
use weir_protocol::messages::{BudgetRule, Key, Leased, Report};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::sharing::Sharing;

use crate::{NOW_US, at, hub};

const INTERVAL_MS: u64 = 250;

fn report(worker: u64, sequence: u64, strict: bool, key: &Key) -> Report {
    let quota = Quota::new(Rate::new(1_000, Period::Second).unwrap(), 1_000).unwrap();
    let rules = vec![BudgetRule { name: "r".into(), quota, sharing: Sharing { strict, ..Sharing::of(quota) } }];
    let keys = vec![Key { value: vec![1], epoch: 1, span_ms: 250, ..key.clone() }];
    Report { pop: "fra1".into(), worker, sequence, table: 1, rules, keys, ..Report::default() }
}

fn id() -> BudgetId {
    BudgetId::new("r".into(), vec![1])
}

/// A key that each of two workers of a POP is asked for ten times an interval, for 30 s. They report one after the
/// other, each to a weir-sync of its own if there are `several`; all but `limited` of each interval's tokens are
/// admitted.
fn asked_at_two_workers(several: bool, limited: impl Fn(u64) -> u64) -> FleetTopKey {
    let mut hubs = ["fra/a", "fra/b"].map(|replica| (replica, hub(replica, 0)));
    let (mut budget, mut asked, mut admitted, mut charged) = (Budget::default(), 0, 0, 0);
    for interval in 1..=120 {
        admitted += 20 - limited(interval);
        for worker in 0..2 {
            asked += 10;
            let unconfirmed = admitted - charged;
            let asked = asked.max(admitted);
            let key = Key { admitted, unconfirmed, asked, asked_recently: 10, ..Key::default() };
            let ms = interval * INTERVAL_MS + worker * INTERVAL_MS / 2;
            let (replica, hub) = &mut hubs[if several { usize::try_from(worker).unwrap() } else { 0 }];
            let pending = hub.report(ReporterKind::Pop, at(ms), NOW_US, report(worker, interval, false, &key));
            let entry = pending.entries()[0].charge(replica, "fra1");
            let account = budget.charge(NOW_US + ms * 1_000, &entry);
            let answers = StoreReplies { accounts: vec![Ok(account)], acquired: vec![], pops: Ok(1) };
            let outcome = hub.settle::<&str>(at(ms), 0, pending, answers);
            assert!(outcome.reply.settled.is_all());
            charged = admitted;
        }
    }
    let now = at(121 * INTERVAL_MS);
    let (mut keys, _) = together(hubs.iter().map(|(replica, hub)| (*replica, hub.top_keys.message(now, 100))));
    keys.pop().unwrap()
}

#[test]
fn a_fully_admitted_key_is_not_limited_for_any_reporters() {
    for several in [false, true] {
        for was_limited in [false, true] {
            let key = asked_at_two_workers(several, |interval| if was_limited && interval < 40 { 5 } else { 0 });
            let (asked, limited) = (key.rates.asked_milli, key.rates.limited_milli());
            assert!((76_000..=84_000).contains(&asked), "{key:?}");
            assert!(limited * 20 <= asked && key.limited_ms.is_none(), "{several} {was_limited}: {key:?}");
        }
    }
}

#[test]
fn a_strict_key_that_gets_all_is_not_limited() {
    let mut hub = hub("fra", 0);
    for login in 0..20 {
        // A request acquires a token; a later report has it as spent, and returns the rest.
        let (acquired, spent) = (Key { ahead: 1, ..Key::default() }, Key { admitted: 1, asked: 1, ..Key::default() });
        for (step, key, given) in [(0, acquired, 1), (1, Key { asked_recently: 1, ..spent }, 0)] {
            let now = at(login * 500 + step * INTERVAL_MS);
            let pending = hub.report(ReporterKind::Pop, now, NOW_US, report(1, login * 2 + step + 1, true, &key));
            let leases = vec![if given > 0 { Leased::of(1, 2_000) } else { Leased::NONE }];
            let acquired = AcquireResult { deficit_ns: 0, outstanding: 0, given, now_us: NOW_US, leases };
            let answers = StoreReplies { accounts: vec![], acquired: vec![Ok(acquired)], pops: Ok(1) };
            hub.settle::<&str>(now, 0, pending, answers);
        }
    }
    let key = hub.top_keys.get(at(10_000), &id()).unwrap();
    assert_eq!((key.rates.limited_milli(), key.limited_ms), (0, None), "{key:?}");
    assert!((1_800..=2_200).contains(&key.rates.admitted_milli), "{key:?}");
}
