//! Epochs that a request holds until its cost is known: nothing of them is lost or counted twice, and tokens that are
//! given back can be given again.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use weir_budget::escrow::{Claim, DRIFT_PART, NO_LEASE};
use weir_protocol::calendar::Calendar;
use weir_protocol::quota::Period;
use weir_protocol::refill_policy::RefillPolicy;

use super::{LEASE_US, SECOND_US, Store, claim, quota};

const HOLD_US: u64 = 60 * SECOND_US;
/// When the tokens of an epoch that was held at 0 count as spent.
const HELD_US: u64 = HOLD_US + HOLD_US / DRIFT_PART;

fn acquired(epoch: u64, tokens: u32) -> Claim {
    claim(epoch, 0, tokens)
}

fn held(epoch: u64, tokens: u32) -> Claim {
    Claim { held_us: Some(HOLD_US), ..acquired(epoch, tokens) }
}

fn settled(epoch: u64, cost: u64) -> Claim {
    Claim { held_us: Some(0), ..claim(epoch, cost, 0) }
}

/// 100 tokens, one a day.
fn slow() -> Store {
    Store::new(RefillPolicy::Continuous, quota(1, Period::Day, 100))
}

/// 100 tokens, ten a second.
fn quick() -> Store {
    Store::new(RefillPolicy::Continuous, quota(10, Period::Second, 100))
}

#[test]
fn a_request_that_falls_silent_costs_its_estimate() {
    let mut store = slow();
    store.claim(0, acquired(1, 60));
    store.claim(0, held(1, 60));
    assert_eq!(store.claim(HELD_US - 1, settled(9, 0)), NO_LEASE, "unknown");
    assert_eq!([HELD_US - 1, HELD_US].map(|us| store.acquire(us, "b", &[]).outstanding), [60, 0]);
    store.claim(HELD_US, settled(1, 10));
    assert_eq!(store.lacking(), 60, "too late to give back");
}

/// Otherwise a POP that reports ever more of one epoch would owe without end, and a log would grow by each report.
#[test]
fn a_cost_beyond_the_estimate_is_charged_once_and_paid_first() {
    let mut store = quick();
    store.claim(0, acquired(1, 40));
    for _ in 0..3 {
        store.claim(0, settled(1, 250));
        assert_eq!(store.lacking(), 250, "once, however often it is reported");
    }
    // Until the debt of 150 is paid, and one more has refilled.
    for (at_us, charged, wait_ms) in [(0, 0, 15_100), (15_099_999, 0, 1), (15_100_000, 1, 0)] {
        let lease = store.claim(at_us, acquired(2, 1));
        assert_eq!((lease.charged, lease.wait_ms), (charged, wait_ms), "at {at_us}");
    }
    let mut store = slow();
    for (epoch, first, lacks) in [(1, 50, 50), (2, 5, 55), (3, 10, 65)] {
        store.claim(0, acquired(epoch, 10));
        store.claim(0, settled(epoch, first));
        for more in [60, 70] {
            assert_eq!(store.claim(0, settled(epoch, more)), NO_LEASE);
        }
        assert_eq!(store.lacking(), lacks);
    }
}

#[test]
fn tokens_that_are_held_when_a_window_begins_count_in_it() {
    let mut store = Store::new(RefillPolicy::Window(Calendar::every(1, 0)), quota(100, Period::Second, 100));
    // In microseconds; then the tokens that each claim debits.
    for (at_us, claim, given) in [
        (900_000, acquired(1, 60), 60),
        (910_000, held(1, 60), 0),
        (1_500_000, acquired(2, 100), 40),
        (1_600_000, settled(1, 15), 0),
        (1_600_000, acquired(2, 100), 45),
        (1_600_000, settled(2, 0), 0),
        (1_600_000, acquired(3, 10), 10),
        // In the last moment of a window nothing is leased, but epochs are still held, and settled.
        (1_999_500, held(3, 10), 0),
        (1_999_600, settled(3, 30), 20),
    ] {
        let answer = store.acquire(at_us, "a", &[claim]);
        assert_eq!(answer.given, given, "at {at_us}");
        let lasts_ms = answer.leases[0].lease_ms;
        assert!(claim.held_us != Some(HOLD_US) || lasts_ms == 60_000, "longer than the window: {lasts_ms}");
    }
    // A window without acquires counts the tokens that a request held in it, whose POP fell silent.
    let policy = RefillPolicy::Sliding(Calendar::every(100, 0));
    let mut store = Store::new(policy, quota(100, Period::Second, 100));
    let at_us = |s: u64| 100 * SECOND_US + s * SECOND_US;
    assert_eq!(store.given(at_us(95), acquired(1, 100)), 100);
    store.claim(at_us(95), held(1, 100));
    // It was held until 156 s, in the second window, and may have been spent then.
    for (s, given) in [(201, 1), (250, 50), (300, 100)] {
        assert_eq!(store.clone().acquire(at_us(s), "b", &[acquired(2, 100)]).given, given, "{s} s");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wait { us: u64 },
    Begin { pop: usize, tokens: u32 },
    Hold { which: Index },
    End { which: Index, cost: u64 },
    Deliver { which: Index },
    DeliverLast,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..SECOND_US).prop_map(|us| Step::Wait { us }),
        6 => (0..3_usize, 1..40_u32).prop_map(|(pop, tokens)| Step::Begin { pop, tokens }),
        2 => any::<Index>().prop_map(|which| Step::Hold { which }),
        6 => (any::<Index>(), 0..60_u64).prop_map(|(which, cost)| Step::End { which, cost }),
        4 => any::<Index>().prop_map(|which| Step::Deliver { which }),
        6 => Just(Step::DeliverLast),
    ]
}

/// A request that was let through: its tokens, and its cost once it has ended.
#[derive(Debug)]
struct Request {
    pop: usize,
    epoch: u64,
    tokens: u32,
    cost: Option<u64>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Against a list of requests: each counts for its tokens while it is not known to have ended, then
    /// for its cost, and never for both.
    // I6
    #[test]
    fn each_request_is_charged_what_it_cost_and_once(steps in prop::collection::vec(step(), 1..200)) {
        let (names, mut store, mut now_us) = (["a", "b", "c"], slow(), 0);
        let (mut requests, mut messages): (Vec<Request>, Vec<(usize, Claim)>) = (Vec::new(), Vec::new());
        // Tokens charged for each epoch, by the model.
        let mut charged: BTreeMap<u64, u64> = BTreeMap::new();
        let mut epochs = 0;
        for step in steps {
            let deliver = match step {
                // Never so long that a lease ends, or that an epoch is forgotten.
                Step::Wait { us } => { now_us = (now_us + us).min(LEASE_US - 1); None }
                Step::Begin { pop, tokens } => {
                    epochs += 1;
                    let given = store.acquire(now_us, names[pop], &[acquired(epochs, tokens)]).leases[0].charged;
                    let used: u64 = charged.values().sum();
                    prop_assert_eq!(given, u64::from(tokens).min(100_u64.saturating_sub(used)));
                    charged.insert(epochs, given);
                    if given < tokens.into() {
                        // It is refused, and gives back what it got.
                        messages.push((pop, Claim::of(epochs, 0, 0)));
                        Some(messages.len() - 1)
                    } else {
                        requests.push(Request { pop, epoch: epochs, tokens, cost: None });
                        None
                    }
                }
                Step::Hold { which } if !requests.is_empty() => {
                    let request = which.get(&requests);
                    messages.push((request.pop, held(request.epoch, request.tokens)));
                    None
                }
                Step::End { which, cost } if !requests.is_empty() => {
                    let which = which.index(requests.len());
                    let request = &mut requests[which];
                    let cost = *request.cost.get_or_insert(cost);
                    messages.push((request.pop, settled(request.epoch, cost)));
                    None
                }
                Step::Deliver { which } if !messages.is_empty() => Some(which.index(messages.len())),
                Step::DeliverLast if !messages.is_empty() => Some(messages.len() - 1),
                _ => None,
            };
            if let Some(which) = deliver {
                let (pop, claim) = messages[which];
                store.acquire(now_us, names[pop], &[claim]);
                if claim.ahead == 0 {
                    charged.insert(claim.epoch, claim.admitted);
                }
            }
            prop_assert_eq!(store.lacking(), charged.values().sum::<u64>());
        }
    }
}
