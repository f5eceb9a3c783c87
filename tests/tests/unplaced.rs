//! I6 where no key has a place in its POP's table: each request draws for itself.

use proptest::prelude::*;
use weir_budget::budget::BudgetId;
use weir_budget::escrow::{AcquireRequest, Claim, Escrow};
use weir_limiter::decide::{Decision, DecisionKind};
use weir_limiter::key::HashSecret;
use weir_limiter::limiter::{Limiter, Reporter, TableIdentity};
use weir_limiter::table::slot::Slot;
use weir_limiter::table::{ReadError, Slots, Version, WriteError};
use weir_protocol::messages::{Allowance, Message as _, Reply, Report, Settled};
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::time::Time;
use weir_rules::config::PluginConfig;
use weir_rules::request::{Attribute, Request};

const SECOND_US: u64 = 1_000_000;

const RULES: &[u8] =
    br#"{"rules": [{"name": "login", "key": ["client_address"], "rate": "5/s", "strict": true}],
                          "sync": {"cluster": "c"}}"#;
const POPS: [&str; 3] = ["a", "a", "b"];

struct Client;

impl Request for Client {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        (*attribute == Attribute::SourceAddress).then(|| b"192.0.2.1".to_vec())
    }
}

/// A table with no place for anybody.
struct Full;

impl Slots for Full {
    fn read(&mut self, _: u32, _: &mut Slot) -> Result<Version, ReadError> {
        Err(ReadError::Unavailable)
    }

    fn write(&mut self, _: u32, _: &mut Slot, _: Version) -> Result<(), WriteError> {
        Err(WriteError::Unavailable)
    }

    fn count(&self) -> u32 {
        1
    }
}

/// The workers of two POPs.
fn workers() -> Vec<Limiter> {
    let of = |(worker, pop): (u64, &&str)| {
        let table_id = u32::from(**pop == *"b");
        let identity = TableIdentity { secret: HashSecret::new([7; 16]), table_id };
        let reporter = Reporter { pop: (*pop).into(), worker: worker * 0x1234_5678_9abc_def1 };
        Limiter::new(PluginConfig::parse(RULES).unwrap().rules, identity, Some(reporter))
    };
    (0..).zip(&POPS).map(of).collect()
}

fn at(us: u64) -> Time {
    Time::from_nanos((1_000 * SECOND_US + us) * 1_000)
}

/// What the budget answers to `report` when it arrives.
fn answer(escrow: &mut Escrow, report: &Report, us: u64) -> Vec<u8> {
    let claims: Vec<_> =
        report.keys.iter().map(|key| Claim::of(report.epoch(key), key.admitted, key.ahead)).collect();
    let Some(rule) = report.rules.first() else {
        return Reply { sequence: report.sequence, pops: 2, settled: Settled::All, ..Reply::default() }
            .encode();
    };
    let id = BudgetId::new("login".into(), vec![1]);
    let draw = AcquireRequest {
        id,
        quota: rule.quota,
        lease_us: 2 * SECOND_US,
        refill_policy: RefillPolicy::Continuous,
        window: None,
        claims,
    };
    let drawn = escrow.acquire(us, &report.pop, &draw);
    let grants = drawn.leases.into_iter().map(Allowance::Leased).collect();
    Reply { sequence: report.sequence, pops: 2, settled: Settled::All, grants, ..Reply::default() }.encode()
}

/// A request that waits: which worker's, what it sent and when the answer is there, if ever.
struct Waiting {
    worker: usize,
    draw: u64,
    report: Report,
    arrives_us: u64,
    answered_us: u64,
    answer: Option<Vec<u8>>,
}

/// 20/s of 5/s, with 40 ms to weir-sync and back, and a report every 250 ms.
// I6
#[test]
fn a_busy_key_gets_its_quota() {
    const STEP_US: u64 = 10_000;
    let (mut limiter, mut escrow) = (workers().remove(0), Escrow::default());
    let (mut waiting, mut admitted) = (Vec::<(u64, u64, Vec<u8>)>::new(), 0);
    for us in (0..60 * SECOND_US).step_by(10_000) {
        limiter.record_reply(1, false, at(us));
        for (_, draw, bytes) in waiting.extract_if(.., |(sent_us, ..)| *sent_us + 4 * STEP_US <= us) {
            let answered = limiter.drawn(draw, &bytes, &mut Full, at(us)).unwrap();
            let outcome = limiter.decide_again(answered, &mut Client, &mut Full, at(us)).outcome();
            admitted += u64::from(outcome == DecisionKind::Allow);
        }
        if us % (250 * SECOND_US / 1_000) == 0
            && let Some(report) = limiter.report(&mut Full, true, at(us))
        {
            let bytes = answer(&mut escrow, &report, us);
            limiter.apply(report.sequence, &bytes, &mut Full, at(us)).unwrap();
        }
        if us % (5 * STEP_US) == 0
            && let Decision::Wait(report) = limiter.decide(&mut Client, &mut Full, at(us))
        {
            let draw = report.sequence;
            let bytes = answer(&mut escrow, &report, us + 2 * STEP_US);
            waiting.push((us, draw, bytes));
        }
    }
    assert!((285..=305).contains(&admitted), "{admitted} of 305");
}

proptest! {
    /// However late messages are, however many are lost or come twice.
    // I6
    #[test]
    fn no_more_than_the_quota_is_ever_spent(
        steps in prop::collection::vec((0..POPS.len(), 0u64..60_000, 0u64..900_000, 0u64..1_800_000, 0u8..8), 1..300),
    ) {
        let (mut workers, mut escrow, mut waiting) = (workers(), Escrow::default(), Vec::<Waiting>::new());
        let (mut us, mut admitted, mut refused) = (0, Vec::new(), 0);
        for (worker, step_us, there_us, back_us, fate) in steps {
            us += step_us;
            // In the order in which they arrive.
            waiting.sort_by_key(|one| one.arrives_us);
            for one in waiting.iter_mut().filter(|one| one.arrives_us <= us && one.answer.is_none()) {
                one.answer = Some(answer(&mut escrow, &one.report, one.arrives_us));
                if fate == 0 {
                    one.answer = Some(answer(&mut escrow, &one.report, us));
                }
            }
            for one in waiting.extract_if(.., |one| one.answer.is_some() && one.answered_us <= us) {
                let limiter = &mut workers[one.worker];
                let answered = limiter.drawn(one.draw, &one.answer.unwrap(), &mut Full, at(us)).unwrap();
                match limiter.decide_again(answered, &mut Client, &mut Full, at(us)).outcome() {
                    DecisionKind::Allow => admitted.push(us),
                    outcome => { prop_assert_eq!(outcome, DecisionKind::Limit); refused += 1; }
                }
            }
            let limiter = &mut workers[worker];
            limiter.record_reply(2, false, at(us));
            let decision = limiter.decide(&mut Client, &mut Full, at(us));
            prop_assert!(matches!(decision.outcome(), DecisionKind::Wait | DecisionKind::Limit));
            if let Decision::Wait(report) = decision {
                let draw = report.sequence;
                if fate == 1 {
                    limiter.draw_failed(draw, &mut Full, at(us));
                    let _ = answer(&mut escrow, &report, us);
                } else {
                    let (arrives_us, answered_us) = (us + there_us, us + there_us + back_us);
                    waiting.push(Waiting { worker, draw, report: *report, arrives_us, answered_us, answer: None });
                }
            }
        }
        // 5/s, burst 5: between any two admissions.
        for (i, from) in admitted.iter().enumerate() {
            for (n, to) in (1u64..).zip(&admitted[i..]) {
                let most = 5 + (to - from) * 5 / SECOND_US;
                prop_assert!(n <= most, "{} in {} us, {} refused", n, to - from, refused);
            }
        }
    }
}
