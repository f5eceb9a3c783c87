//! Epochs that a request holds until its cost is known: nothing of them is lost or counted twice, and what is given
//! back can be given again.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use weir_budget::escrow::{Claim, DRIFT_PART, Escrow, NO_LEASE};
use weir_protocol::calendar::Calendar;
use weir_protocol::messages::Leased;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;

use crate::{LEASE_US, SECOND_US, acquire, quota};

const HOLD_US: u64 = 60 * SECOND_US;
/// When what was held at 0 counts as spent.
const HELD_US: u64 = HOLD_US + HOLD_US / DRIFT_PART;

fn acquired(epoch: u64, tokens: u32) -> Claim {
    Claim::of(epoch, 0, tokens)
}

fn held(epoch: u64, tokens: u32) -> Claim {
    Claim { held_us: Some(HOLD_US), ..acquired(epoch, tokens) }
}

fn settled(epoch: u64, cost: u64) -> Claim {
    Claim { held_us: Some(0), ..Claim::of(epoch, cost, 0) }
}

/// 100 tokens, one a day.
fn slow() -> Quota {
    quota(1, Period::Day, 100)
}

/// The answer to one claim of POP "a".
fn say(store: &mut Escrow, now_us: u64, quota: Quota, claim: Claim) -> Leased {
    store.acquire(now_us, "a", &acquire(quota, &[claim])).leases[0]
}

/// How many whole tokens are lacking.
fn lacking(store: &Escrow, quota: Quota) -> u64 {
    store.deficit_ns().div_ceil(quota.token_ns())
}

#[test]
fn what_a_request_did_not_cost_can_be_given_again() {
    let (quota, mut store) = (slow(), Escrow::default());
    assert_eq!(say(&mut store, 0, quota, acquired(1, 80)), Leased { left: 20, ..Leased::of(80, 2_000) });
    assert_eq!(say(&mut store, SECOND_US, quota, held(1, 80)), Leased { left: 20, ..Leased::of(80, 60_000) });
    assert_eq!(
        say(&mut store, 30 * SECOND_US, quota, acquired(2, 80)).charged,
        20,
        "it may still cost all of it"
    );
    say(&mut store, 30 * SECOND_US, quota, settled(2, 0));
    for _ in 0..3 {
        assert_eq!(say(&mut store, 30 * SECOND_US, quota, settled(1, 30)), NO_LEASE);
        assert_eq!(lacking(&store, quota), 30, "once, however often it is said");
    }
    assert_eq!(say(&mut store, 30 * SECOND_US, quota, acquired(3, 80)).charged, 70);
}

#[test]
fn what_is_held_holds_up_its_refill_and_nothing_else() {
    let (quota, mut store) = (quota(10, Period::Second, 100), Escrow::default());
    say(&mut store, 0, quota, acquired(1, 30));
    say(&mut store, 0, quota, held(1, 30));
    say(&mut store, 0, quota, Claim::of(2, 0, 70));
    say(&mut store, 0, quota, Claim::of(2, 70, 0));
    let later = say(&mut store, 20 * SECOND_US, quota, acquired(3, 100));
    assert_eq!(later.charged, 70);
    say(&mut store, 20 * SECOND_US, quota, settled(3, 0));
    say(&mut store, 20 * SECOND_US, quota, settled(1, 5));
    assert_eq!(say(&mut store, 20 * SECOND_US, quota, acquired(4, 100)).charged, 95);
}

#[test]
fn a_request_that_says_nothing_more_costs_its_estimate() {
    let (quota, mut store) = (slow(), Escrow::default());
    say(&mut store, 0, quota, acquired(1, 60));
    say(&mut store, 0, quota, held(1, 60));
    assert_eq!(say(&mut store, HELD_US - 1, quota, settled(9, 0)), NO_LEASE, "unknown");
    assert_eq!(store.acquire(HELD_US - 1, "b", &acquire(quota, &[])).outstanding, 60);
    assert_eq!(store.acquire(HELD_US, "b", &acquire(quota, &[])).outstanding, 0, "it counts as spent");
    say(&mut store, HELD_US, quota, settled(1, 10));
    assert_eq!(lacking(&store, quota), 60, "too late to give back");
}

#[test]
fn what_a_request_costs_beyond_its_estimate_is_debt_and_is_paid_first() {
    let (quota, mut store) = (quota(10, Period::Second, 100), Escrow::default());
    say(&mut store, 0, quota, acquired(1, 40));
    for _ in 0..3 {
        say(&mut store, 0, quota, settled(1, 250));
        assert_eq!(lacking(&store, quota), 250, "once, however often it is said");
    }
    let short = say(&mut store, 0, quota, acquired(2, 1));
    assert_eq!(
        (short.charged, short.wait_ms),
        (0, 15_100),
        "until the debt of 150 is paid, and one more refilled"
    );
    assert_eq!(say(&mut store, 15_099_999, quota, acquired(2, 1)).charged, 0);
    assert_eq!(say(&mut store, 15_100_000, quota, acquired(2, 1)).charged, 1);
}

/// Otherwise a POP that says ever more of one epoch would owe without end, and a log would grow by each word of it.
#[test]
fn what_a_request_cost_is_said_once() {
    let (quota, mut store) = (slow(), Escrow::default());
    for (epoch, first, lacks) in [(1, 50, 50), (2, 5, 55), (3, 10, 65)] {
        say(&mut store, 0, quota, acquired(epoch, 10));
        say(&mut store, 0, quota, settled(epoch, first));
        for more in [60, 70] {
            assert_eq!(say(&mut store, 0, quota, settled(epoch, more)), NO_LEASE);
        }
        assert_eq!(lacking(&store, quota), lacks);
    }
}

/// What a request holds when a window begins counts in that window, and what it did not cost comes back to it.
#[test]
fn what_is_held_when_a_window_begins_counts_in_it() {
    let ten = quota(100, Period::Second, 100);
    let by_window = |claim| weir_budget::escrow::AcquireRequest {
        refill_policy: RefillPolicy::Window(Calendar::every(1, 0)),
        ..acquire(ten, &[claim])
    };
    let (mut store, begin_us) = (Escrow::default(), 1_000 * SECOND_US);
    let mut say = |ms: u64, claim| store.acquire(begin_us + ms * 1_000, "a", &by_window(claim));
    assert_eq!(say(900, acquired(1, 60)).given, 60);
    let lease = say(910, held(1, 60)).leases[0];
    assert_eq!((lease.charged, lease.lease_ms), (60, 60_000), "longer than the window");
    assert_eq!(say(1_500, acquired(2, 100)).given, 40);
    assert_eq!(say(1_600, settled(1, 15)).leases, [NO_LEASE]);
    assert_eq!(say(1_600, acquired(2, 100)).given, 45);
    // In the last moment of a window nothing is leased, but what is held is still held, and settled.
    assert_eq!(say(1_600, settled(2, 0)).given, 0);
    assert_eq!(say(1_600, acquired(3, 10)).given, 10);
    assert_eq!(say(1_600, held(3, 10)).leases[0].lease_ms, 60_000);
    let last = store.acquire(begin_us + 2_000_000 - 500, "a", &by_window(held(3, 10)));
    assert_eq!((last.leases[0].charged, last.leases[0].lease_ms), (10, 60_000));
    let last = store.acquire(begin_us + 2_000_000 - 400, "a", &by_window(settled(3, 30)));
    assert_eq!(last.given, 20);
}

/// A window that nobody drew in counts for what a request held in it, whose POP fell silent.
#[test]
fn what_was_held_in_a_window_before_slides_out_of_it() {
    let hundred = quota(100, Period::Second, 100);
    let refill_policy = RefillPolicy::Sliding(Calendar::every(100, 0));
    let slides = |claim| weir_budget::escrow::AcquireRequest { refill_policy, ..acquire(hundred, &[claim]) };
    let begin_us = 1_000 * SECOND_US;
    let (mut store, at_us) = (Escrow::default(), |s: u64| begin_us + s * SECOND_US);
    assert_eq!(store.acquire(at_us(95), "a", &slides(acquired(1, 100))).given, 100);
    store.acquire(at_us(95), "a", &slides(held(1, 100)));
    // It was held until 156 s, in the second window, and may have been spent then.
    let (mut early, mut late) = (store.clone(), store.clone());
    assert_eq!(early.acquire(at_us(201), "b", &slides(acquired(2, 100))).given, 1);
    assert_eq!(late.acquire(at_us(250), "b", &slides(acquired(2, 100))).given, 50);
    assert_eq!(store.acquire(at_us(300), "b", &slides(acquired(2, 100))).given, 100);
}

/// What happens next to one of the requests, or to a message: each may be delivered late, many times, in any order, or
/// never.
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

/// A request that was let through, in the order in which they were: what it drew, and what it cost once it has ended.
#[derive(Debug)]
struct Request {
    pop: usize,
    epoch: u64,
    tokens: u32,
    cost: Option<u64>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Against a list of what each request drew, and cost: a request counts for the larger of the two while it is
    /// not known to have ended, then for its cost, and never for both.
    // I6
    #[test]
    fn each_request_is_charged_what_it_cost_and_once(steps in prop::collection::vec(step(), 1..200)) {
        let (quota, names) = (slow(), ["a", "b", "c"]);
        let (mut store, mut now_us) = (Escrow::default(), 0);
        let (mut requests, mut messages): (Vec<Request>, Vec<(usize, Claim)>) = (Vec::new(), Vec::new());
        // What the model charges for each epoch: the store has heard of it.
        let mut charged: BTreeMap<u64, u64> = BTreeMap::new();
        let mut epochs = 0;
        for step in steps {
            let deliver = match step {
                // Never so long that a lease ends, or that an epoch is forgotten.
                Step::Wait { us } => { now_us = (now_us + us).min(LEASE_US - 1); None }
                Step::Begin { pop, tokens } => {
                    epochs += 1;
                    let lease = store.acquire(now_us, names[pop], &acquire(quota, &[acquired(epochs, tokens)])).leases[0];
                    let given = lease.charged;
                    let used: u64 = charged.values().sum();
                    prop_assert!(given <= 100_u64.saturating_sub(used), "{given} of what is left of {used}");
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
                store.acquire(now_us, names[pop], &acquire(quota, &[claim]));
                if claim.ahead == 0 {
                    charged.insert(claim.epoch, claim.admitted);
                }
            }
            prop_assert_eq!(lacking(&store, quota), charged.values().sum::<u64>());
        }
    }
}
