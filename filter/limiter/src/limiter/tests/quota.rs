//! Quotas of the calendar: long leases, few pauses, and silence until the next window.
//!
//! Tests of I6.

use super::*;
use std::format;
use weir_protocol::messages::Leased;

const MINUTE: u64 = 60_000 * MS;
const LEASE_MS: u32 = 600_000;

fn daily(rate: &str) -> (Limiter, LocalSlots) {
    let rule = json!([{"name": "q", "key": ["client_address"], "algorithm": "quota", "rate": rate}]);
    (limiter(rules(&rule), Some(1)), LocalSlots::new(64))
}

fn answer(sequence: u64, leased: Leased) -> Vec<u8> {
    reply(sequence, 1, vec![Allowance::Leased(leased)])
}

/// Asks once, expects the request to wait, and answers it with this lease.
fn acquire(limiter: &mut Limiter, slots: &mut LocalSlots, leased: Leased, now: Time) -> (Report, Decision) {
    limiter.sync.as_mut().unwrap().observe(1, false, now);
    let (report, acquire) = waiting_for(ask(limiter, slots, "192.0.2.1", now));
    assert!(limiter.acquired(acquire, &answer(report.sequence, leased), slots, now).unwrap());
    let decision = limiter.decide_again(true, &mut Client("192.0.2.1".into()), slots, now);
    (report, decision)
}

/// A window's budget as weir-sync keeps it, for one POP.
struct Budget {
    left: u64,
    charged: u64,
    epoch: u32,
}

impl Budget {
    fn answer(&mut self, report: &Report) -> Vec<u8> {
        let key = &report.keys[0];
        if key.epoch != self.epoch {
            (self.epoch, self.charged) = (key.epoch, 0);
        }
        if key.ahead == 0 {
            self.left += self.charged - key.admitted;
            return answer(report.sequence, Leased::NONE);
        }
        let need = (key.admitted + u64::from(key.ahead)).saturating_sub(self.charged);
        let given = need.min(self.left);
        (self.charged, self.left) = (self.charged + given, self.left - given);
        let wait_ms = if given < need { 86_400_000 } else { 0 };
        let left = u32::try_from(self.left).unwrap();
        answer(report.sequence, Leased { wait_ms, left, ..Leased::of(self.charged, LEASE_MS) })
    }
}

/// Asks `at_once` times every `every_ns` for an hour, with a report every 250 ms; returns how many passed and how many
/// of them waited.
fn an_hour(rate: &str, every_ns: u64, at_once: u32, budget: &mut Budget) -> (u32, u32) {
    let (mut limiter, mut slots) = daily(rate);
    let (mut passed, mut waited) = (0, 0);
    for tick in 0..3_600 * 4 {
        let now = T0 + tick * 250 * MS;
        limiter.sync.as_mut().unwrap().observe(1, false, now);
        let asked = if (tick * 250 * MS).is_multiple_of(every_ns) { at_once } else { 0 };
        for _ in 0..asked {
            let mut decision = ask(&mut limiter, &mut slots, "192.0.2.1", now);
            if decision.outcome() == DecisionKind::Wait {
                waited += 1;
                let (report, acquire) = waiting_for(decision);
                assert!(limiter.acquired(acquire, &budget.answer(&report), &mut slots, now).unwrap());
                decision = limiter.decide_again(true, &mut Client("192.0.2.1".into()), &mut slots, now);
            }
            passed += u32::from(decision.outcome() == DecisionKind::Allow);
        }
        if let Some(report) = limiter.report(&mut slots, false, now) {
            limiter.apply(report.sequence, &budget.answer(&report), &mut slots, now).unwrap();
        }
    }
    (passed, waited)
}

#[test]
fn a_steady_client_waits_once_and_loses_nothing() {
    for (rate, every_ns, expected) in
        [("1000/day", MINUTE, 60), ("1000/day", 5 * MINUTE, 12), ("100000/month", 500 * MS, 7_200)]
    {
        let mut budget = Budget { left: 50_000, charged: 0, epoch: 0 };
        assert_eq!(an_hour(rate, every_ns, 1, &mut budget), (expected, 1), "{rate}");
        let chunk = if expected > 1_000 { 100 } else { 1 };
        assert!(50_000 - budget.left <= u64::from(expected) + chunk, "{rate}");
    }
}

/// A page that makes twenty requests at once: a thousandth of a large quota is on hand for them.
#[test]
fn only_the_first_of_simultaneous_requests_waits() {
    let mut budget = Budget { left: 50_000, charged: 0, epoch: 0 };
    assert_eq!(an_hour("100000/month", MINUTE, 20, &mut budget), (1_200, 1));
    assert!(50_000 - budget.left <= 1_200 + 100);
}

#[test]
fn an_exhausted_quota_is_not_acquired_before_its_window_ends() {
    let mut budget = Budget { left: 10, charged: 0, epoch: 0 };
    let (passed, waited) = an_hour("1000/day", 1_000 * MS, 1, &mut budget);
    assert_eq!(passed, 10);
    assert!(waited <= 4, "{waited} of 3600");
}

#[test]
fn a_refusal_states_when_the_window_ends() {
    let (mut limiter, mut slots) = daily("1000/day");
    let none = Leased { wait_ms: 7_200_000, ..Leased::of(0, LEASE_MS) };
    let (report, decision) = acquire(&mut limiter, &mut slots, none, T0);
    let mut first = Some(decision);
    assert_eq!(report.keys[0].ahead, 2, "one to spend, one for the next");
    let two_hours = 7_200_000 * MS;
    for (after, left) in [(0, two_hours), (MINUTE, two_hours - MINUTE), (two_hours - 2 * MS, 2 * MS)] {
        let decision = first.take().unwrap_or_else(|| ask(&mut limiter, &mut slots, "192.0.2.1", T0 + after));
        let more_ns = decision.strictest().unwrap().1.more_ns;
        assert_eq!(decision.outcome(), DecisionKind::Limit);
        // The budget rounds it up to a millisecond: no request after the end of the window is refused.
        assert!((left - 2 * MS..=left - MS).contains(&more_ns), "{more_ns} after {after}");
        // No report is due.
        assert!(limiter.report(&mut slots, false, T0 + after).is_none());
    }
    let later = T0 + (two_hours - MS);
    let (_, decision) = acquire(&mut limiter, &mut slots, Leased::of(2, LEASE_MS), later);
    assert_eq!(decision.outcome(), DecisionKind::Allow);
}

#[test]
fn an_exhausted_quotas_entry_stays_until_its_window_ends() {
    let (mut limiter, _) = daily("1000/day");
    let mut slots = LocalSlots::new(1);
    let none = Leased { wait_ms: 7_200_000, ..Leased::of(0, LEASE_MS) };
    acquire(&mut limiter, &mut slots, none, T0);
    // Others come and go, and each gives back what it was leased.
    for n in 0..200 {
        let now = T0 + MINUTE + n * 500 * MS;
        limiter.sync.as_mut().unwrap().observe(1, false, now);
        let from = format!("198.51.100.{n}");
        let (report, acquire) = waiting_for(ask(&mut limiter, &mut slots, &from, now));
        let two = Leased::of(2, 1);
        assert!(limiter.acquired(acquire, &answer(report.sequence, two), &mut slots, now).unwrap());
        limiter.decide_again(true, &mut Client(from), &mut slots, now);
    }
    let decision = ask(&mut limiter, &mut slots, "192.0.2.1", T0 + 10 * MINUTE);
    assert_eq!(decision.outcome(), DecisionKind::Limit);
    assert!(decision.strictest().unwrap().1.more_ns > 100 * MINUTE);
}

/// Two requests acquire as a window ends. One acquire reaches the budget just before, the other in the next window.
#[test]
fn the_next_windows_tokens_survive_a_reply_from_the_last() {
    let none = Leased { wait_ms: 3, ..Leased::NONE };
    for (ended, is_overtaken) in
        [none, Leased { lease_ms: 2, ..none }].into_iter().flat_map(|e| [(e, false), (e, true)])
    {
        let (mut limiter, mut slots) = daily("1000/day");
        limiter.sync.as_mut().unwrap().observe(1, false, T0);
        let waits = [0, 1].map(|ms| waiting_for(ask(&mut limiter, &mut slots, "192.0.2.1", T0 + ms * MS)));
        let mut answers = waits.into_iter().zip([ended, Leased::of(3, LEASE_MS)]).collect::<Vec<_>>();
        if is_overtaken {
            answers.reverse();
        }
        let now = T0 + 90 * MS;
        for ((report, acquire), leased) in answers {
            assert!(limiter.acquired(acquire, &answer(report.sequence, leased), &mut slots, now).unwrap());
            let outcome = limiter.decide_again(true, &mut Client("192.0.2.1".into()), &mut slots, now).outcome();
            assert_eq!(outcome == DecisionKind::Allow, leased != ended || is_overtaken, "{leased:?}");
        }
        let outcome = ask(&mut limiter, &mut slots, "192.0.2.1", now).outcome();
        assert_eq!(outcome, DecisionKind::Allow, "{ended:?}, overtaken: {is_overtaken}");
    }
}
