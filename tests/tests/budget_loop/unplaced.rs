//! I6 where no key has a place in its POP's table: each request acquires for itself.

use proptest::prelude::*;
use weir_budget::escrow::Escrow;
use weir_limiter::check::{Decision, DecisionKind};
use weir_limiter::key::HashSecret;
use weir_limiter::key::{Reporter, TableIdentity};
use weir_limiter::limiter::Limiter;
use weir_limiter::table::slot::Slot;
use weir_limiter::table::{ReadError, Slots, Version, WriteError};
use weir_protocol::messages::Report;
use weir_rules::config::PluginConfig;

use crate::{Client, SECOND_US, answer, at};

const RULES: &[u8] = br#"{"rules": [{"name": "login", "key": ["client_address"], "rate": "5/s", "strict": true}],
                          "sync": {"cluster": "c"}}"#;
const POPS: [&str; 3] = ["a", "a", "b"];

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

/// A request that waits: which worker's, what it sent and when the answer is there, if ever.
struct Waiting {
    worker: usize,
    acquire: u64,
    report: Report,
    arrives_us: u64,
    answered_us: u64,
    answer: Option<Vec<u8>>,
}

proptest! {
    /// However late messages are, however many are lost or come twice.
    // I6
    #[test]
    fn spending_never_exceeds_the_quota(
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
                let answered = limiter.acquired(one.acquire, &one.answer.unwrap(), &mut Full, at(us)).unwrap();
                match limiter.decide_again(answered, &mut Client, &mut Full, at(us)).outcome() {
                    DecisionKind::Allow => admitted.push(us),
                    outcome => { prop_assert_eq!(outcome, DecisionKind::Limit); refused += 1; }
                }
            }
            let limiter = &mut workers[worker];
            limiter.sync.as_mut().unwrap().observe(2, false, at(us));
            let decision = limiter.decide(&mut Client, &mut Full, at(us));
            prop_assert!(matches!(decision.outcome(), DecisionKind::Wait | DecisionKind::Limit));
            if let Decision::Wait(report) = decision {
                let acquire = report.sequence;
                if fate == 1 {
                    limiter.acquire_failed(acquire, &mut Full, at(us));
                    let _ = answer(&mut escrow, &report, us);
                } else {
                    let (arrives_us, answered_us) = (us + there_us, us + there_us + back_us);
                    waiting.push(Waiting { worker, acquire, report: *report, arrives_us, answered_us, answer: None });
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
