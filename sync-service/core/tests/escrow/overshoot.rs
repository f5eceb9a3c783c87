//! I6: in any time t no more than burst + rate x t is spent, or in any length of a log more than it allows,
//! whatever POPs, network and clocks do.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use weir_budget::escrow::{AcquireRequest, Claim, DRIFT_PART, Escrow};
use weir_protocol::messages::Leased;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;

use crate::pop::{Pop, Report};
use crate::{LEASE_US, SECOND_US, acquire, quota};

/// How the clocks of the POPs run, in parts of true time: as slow as is allowed, true, fast.
const CLOCKS: [(u64, u64); POPS] = [(DRIFT_PART, DRIFT_PART + 1), (1, 1), (3, 2)];
const POPS: usize = 3;
const NAMES: [&str; POPS] = ["slow", "true", "fast"];
/// How long a request says that it goes on, in microseconds.
const HOLD_US: u64 = 5 * SECOND_US;
/// Where the store's clock begins, in microseconds: it may step back many times.
const STORE_BEGINS_US: u64 = 1 << 50;

/// What happens next. Messages stay: each may be delivered late, many times, in any order, or never.
#[derive(Clone, Debug)]
enum Step {
    Wait {
        us: u64,
    },
    Report {
        pop: usize,
        ahead: u32,
    },
    GiveBack {
        pop: usize,
    },
    Deliver {
        which: Index,
    },
    DeliverLast,
    Hear {
        which: Index,
    },
    HearLast,
    /// A report, and at once its answer.
    Exchange {
        pop: usize,
        ahead: u32,
    },
    Spend {
        pop: usize,
        tokens: u64,
    },
    /// Everything that anyone has, at once.
    SpendAll,
    /// Hoards until the last moment of the lease, and then spends it all.
    SpendAtTheEnd {
        pop: usize,
    },
    Crash {
        pop: usize,
    },
    /// The store's clock steps back.
    ClockBack {
        us: u64,
    },
    /// A request takes; its answer is heard, or lost.
    Take {
        tokens: u32,
    },
    /// A request acquires for itself.
    Begin {
        pop: usize,
        tokens: u32,
    },
    /// A request goes on; says so, and takes in the answer.
    Hold {
        which: Index,
    },
    /// A request takes a part of what it drew.
    Use {
        which: Index,
        tokens: u64,
    },
    /// A request ends, and says what it has taken, as often as this happens.
    End {
        which: Index,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let pop = || 0..POPS;
    prop_oneof![
        2 => (0..LEASE_US / 4).prop_map(|us| Step::Wait { us }),
        1 => (0..2 * LEASE_US).prop_map(|us| Step::Wait { us }),
        8 => (pop(), 1..60_u32).prop_map(|(pop, ahead)| Step::Exchange { pop, ahead }),
        4 => (pop(), 1..60_u32).prop_map(|(pop, ahead)| Step::Report { pop, ahead }),
        1 => pop().prop_map(|pop| Step::GiveBack { pop }),
        2 => any::<Index>().prop_map(|which| Step::Deliver { which }),
        4 => Just(Step::DeliverLast),
        2 => any::<Index>().prop_map(|which| Step::Hear { which }),
        4 => Just(Step::HearLast),
        3 => (pop(), 1..20_u64).prop_map(|(pop, tokens)| Step::Spend { pop, tokens }),
        2 => Just(Step::SpendAll),
        4 => pop().prop_map(|pop| Step::SpendAtTheEnd { pop }),
        1 => pop().prop_map(|pop| Step::Crash { pop }),
        1 => (0..SECOND_US).prop_map(|us| Step::ClockBack { us }),
        4 => (1..20_u32).prop_map(|tokens| Step::Take { tokens }),
        4 => (pop(), 1..20_u32).prop_map(|(pop, tokens)| Step::Begin { pop, tokens }),
        4 => any::<Index>().prop_map(|which| Step::Hold { which }),
        6 => (any::<Index>(), 1..20_u64).prop_map(|(which, tokens)| Step::Use { which, tokens }),
        3 => any::<Index>().prop_map(|which| Step::End { which }),
    ]
}

/// What a limiter knows that sees every token when it is truly spent: an ideal bucket's debt, ...
#[derive(Debug, Default)]
struct Truth {
    debt_ns: u64,
    at_us: u64,
    spent: u64,
    /// ... and when each was spent, and how many.
    all: Vec<(u64, u64)>,
}

impl Truth {
    fn spend(&mut self, now_us: u64, tokens: u64, quota: Quota, refill_policy: RefillPolicy) {
        let RefillPolicy::Log(length_s) = refill_policy else {
            return self.spend_steadily(now_us, tokens, quota);
        };
        self.spent += tokens;
        self.all.push((now_us, tokens));
        let recent = self.all.iter().filter(|(us, _)| now_us - us < u64::from(length_s) * SECOND_US);
        let count: u64 = recent.map(|(_, tokens)| tokens).sum();
        assert!(count <= u64::from(quota.burst()), "{count} where {} are allowed", quota.burst());
    }

    fn spend_steadily(&mut self, now_us: u64, tokens: u64, quota: Quota) {
        let refilled_ns = (now_us - self.at_us) * 1_000;
        self.debt_ns = self.debt_ns.saturating_sub(refilled_ns) + tokens * quota.token_ns();
        self.at_us = now_us;
        self.spent += tokens;
        let burst = self.debt_ns.div_ceil(quota.token_ns());
        assert!(self.debt_ns <= quota.fill_ns(), "a burst of {burst} where {} is allowed", quota.burst());
    }
}

struct World {
    quota: Quota,
    refill_policy: RefillPolicy,
    /// True time, in microseconds.
    now_us: u64,
    back_us: u64,
    store: Escrow,
    pops: [Pop; POPS],
    reports: Vec<(usize, Report)>,
    answers: Vec<(usize, Report, Leased)>,
    epochs: u64,
    truth: Truth,
    /// Requests that drew for themselves: each as the key of a POP of its own, whose name is their POP's.
    requests: Vec<Request>,
}

struct Request {
    pop: usize,
    key: Pop,
    has_ended: bool,
}

impl World {
    fn new(quota: Quota) -> Self {
        Self::by(RefillPolicy::Continuous, quota)
    }

    fn by(refill_policy: RefillPolicy, quota: Quota) -> Self {
        let pops = [Pop::new(1), Pop::new(2), Pop::new(3)];
        let (reports, answers) = (Vec::new(), Vec::new());
        let (store, truth) = (Escrow::default(), Truth::default());
        let requests = Vec::new();
        Self {
            quota,
            refill_policy,
            now_us: 0,
            back_us: 0,
            store,
            pops,
            reports,
            answers,
            epochs: 3,
            truth,
            requests,
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Wait { us } => self.now_us += us,
            Step::ClockBack { us } => self.back_us += us,
            Step::Report { pop, ahead } => {
                let (now_us, epoch) = (self.clock(pop), self.new_epoch());
                self.reports.push((pop, self.pops[pop].report(now_us, ahead, epoch)));
            }
            Step::Exchange { pop, ahead } => {
                self.run(&Step::Report { pop, ahead });
                self.run(&Step::DeliverLast);
                self.run(&Step::HearLast);
            }
            Step::GiveBack { pop } => {
                let (now_us, epoch) = (self.clock(pop), self.new_epoch());
                self.reports.push((pop, self.pops[pop].give_back(now_us, epoch)));
            }
            Step::Deliver { which } if !self.reports.is_empty() => {
                self.deliver(which.index(self.reports.len()));
            }
            Step::DeliverLast if !self.reports.is_empty() => self.deliver(self.reports.len() - 1),
            Step::Hear { which } if !self.answers.is_empty() => self.observe(which.index(self.answers.len())),
            Step::HearLast if !self.answers.is_empty() => self.observe(self.answers.len() - 1),
            Step::Spend { pop, tokens } => self.spend(pop, tokens),
            Step::SpendAll => (0..POPS).for_each(|pop| self.spend(pop, u64::MAX)),
            Step::SpendAtTheEnd { pop } => {
                if let Some(until_us) = self.pops[pop].until_us {
                    // The last moment at which the POP's clock is before the end.
                    let (parts, of) = CLOCKS[pop];
                    self.now_us = self.now_us.max((until_us * of).div_ceil(parts).saturating_sub(1));
                }
                self.spend(pop, u64::MAX);
            }
            Step::Crash { pop } => self.pops[pop] = Pop::new(self.new_epoch()),
            Step::Take { tokens } => {
                let taken = self.acquire(0, Claim::take(tokens)).charged;
                assert!(taken == 0 || taken == u64::from(tokens), "all or nothing");
                self.truth.spend(self.now_us, taken, self.quota, self.refill_policy);
            }
            Step::Begin { pop, tokens } => {
                let key = Pop::new(self.new_epoch());
                self.requests.push(Request { pop, key, has_ended: false });
                self.ask(self.requests.len() - 1, Some(tokens), None);
            }
            Step::Hold { which } if !self.requests.is_empty() => {
                self.ask(which.index(self.requests.len()), None, Some(HOLD_US));
            }
            Step::Use { which, tokens } if !self.requests.is_empty() => {
                let which = which.index(self.requests.len());
                let (now_us, request) = (self.clock(self.requests[which].pop), &mut self.requests[which]);
                if !request.has_ended {
                    let spent = request.key.spend(now_us, tokens);
                    self.truth.spend(self.now_us, spent, self.quota, self.refill_policy);
                }
            }
            Step::End { which } if !self.requests.is_empty() => {
                let which = which.index(self.requests.len());
                self.requests[which].has_ended = true;
                self.ask(which, None, Some(0));
            }
            // Nothing is on its way, or no request is under way.
            Step::Deliver { .. }
            | Step::DeliverLast
            | Step::Hear { .. }
            | Step::HearLast
            | Step::Hold { .. }
            | Step::Use { .. }
            | Step::End { .. } => {}
        }
    }

    /// Has a request acquire, or else say what it holds, which is nothing any more if it has ended; and hear the answer.
    fn ask(&mut self, which: usize, tokens: Option<u32>, held_us: Option<u64>) {
        let (now_us, epoch) = (self.clock(self.requests[which].pop), self.new_epoch());
        let Request { pop, ref mut key, has_ended } = self.requests[which];
        // No report says what it has taken before it has ended.
        let admitted = if has_ended { key.admitted } else { 0 };
        let ahead = tokens.unwrap_or(if has_ended { 0 } else { key.acquired() });
        let claim = Claim { held_us, ..Claim::of(key.epoch, admitted, ahead) };
        self.reports.push((pop, Report { claim, made_us: now_us }));
        self.deliver(self.reports.len() - 1);
        let (_, report, lease) = self.answers[self.answers.len() - 1];
        self.requests[which].key.observe(now_us, &report, lease, epoch);
    }

    fn deliver(&mut self, which: usize) {
        let (pop, report) = self.reports[which];
        let lease = self.acquire(pop, report.claim);
        self.answers.push((pop, report, lease));
    }

    fn acquire(&mut self, pop: usize, claim: Claim) -> Leased {
        let now_us = STORE_BEGINS_US + self.now_us - self.back_us;
        // A store may forget what is full.
        if self.store.full_us() <= now_us {
            self.store = Escrow::default();
        }
        let acquire = AcquireRequest { refill_policy: self.refill_policy, ..acquire(self.quota, &[claim]) };
        self.store.acquire(now_us, NAMES[pop], &acquire).leases[0]
    }

    fn observe(&mut self, which: usize) {
        let (pop, report, lease) = self.answers[which];
        let (now_us, epoch) = (self.clock(pop), self.new_epoch());
        self.pops[pop].observe(now_us, &report, lease, epoch);
    }

    fn spend(&mut self, pop: usize, tokens: u64) {
        let now_us = self.clock(pop);
        let spent = self.pops[pop].spend(now_us, tokens);
        self.truth.spend(self.now_us, spent, self.quota, self.refill_policy);
    }

    fn clock(&self, pop: usize) -> u64 {
        let (parts, of) = CLOCKS[pop];
        self.now_us * parts / of
    }

    fn new_epoch(&mut self) -> u64 {
        self.epochs += 1;
        self.epochs
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    // I6
    #[test]
    fn no_more_than_the_quota_is_ever_spent(steps in prop::collection::vec(step(), 1..250), burst in 1..40_u32) {
        let mut world = World::new(quota(10, Period::Second, burst));
        for step in &steps {
            world.run(step);
        }
    }

    // I6
    #[test]
    fn no_more_is_ever_spent_within_its_length_than_a_log_allows(
        steps in prop::collection::vec(step(), 1..250), burst in 1..40_u32, length_s in 1..6_u32,
    ) {
        let mut world = World::by(RefillPolicy::Log(length_s), quota(10, Period::Second, burst));
        for step in &steps {
            world.run(step);
            prop_assert!(world.store.log_len() <= 40, "each stands for a token at least");
        }
    }

    /// The deficit covers what is outstanding and is never more than the burst, for any input.
    // I6
    #[test]
    fn what_is_outstanding_is_within_the_deficit(
        claims in prop::collection::vec((0..3_000_000_u64, 0..6_u64, 0..40_u64, any::<u32>(), 0..4_u32), 1..200)
    ) {
        let (quota, mut store) = (quota(10, Period::Second, 30), Escrow::default());
        let mut now_us = STORE_BEGINS_US;
        for (us, epoch, admitted, ahead, kind) in claims {
            now_us = if kind == 0 { now_us - us } else { now_us + us };
            let ahead = if kind == 1 { 0 } else { ahead };
            let claim = if kind == 2 { Claim::take(ahead % 40) } else { Claim::of(epoch, admitted, ahead) };
            let acquired = store.acquire(now_us, "a", &acquire(quota, &[claim]));
            prop_assert!(acquired.outstanding * quota.token_ns() <= acquired.deficit_ns);
            prop_assert!(acquired.deficit_ns <= quota.fill_ns());
            prop_assert_eq!(acquired.deficit_ns, store.deficit_ns());
        }
    }
}

/// The runs above would say little if in most of them hardly anything was spent.
#[test]
fn random_runs_spend_much_of_what_there_is() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for refill_policy in [RefillPolicy::Continuous, RefillPolicy::Log(2)] {
        let (mut spent, mut ideal) = (0, 0);
        for _ in 0..200 {
            let steps = prop::collection::vec(step(), 200).new_tree(&mut runner).unwrap().current();
            let mut world = World::by(refill_policy, quota(10, Period::Second, 20));
            for step in &steps {
                world.run(step);
            }
            spent += world.truth.spent;
            ideal += 20 + world.now_us / 100_000;
        }
        let part = if refill_policy == RefillPolicy::Continuous { 4 } else { 8 };
        assert!(spent * part > ideal, "{spent} of {ideal} by {refill_policy:?}");
    }
}

/// The POP whose clock is true.
const TRUE: usize = 1;
const OTHER: usize = 2;

/// A first report whose answer comes when its lease is over, and its epoch has been forgotten and begun
/// again: it must not add to what the second answer gave.
// I6
#[test]
fn an_answer_that_comes_when_its_lease_is_over_gives_nothing() {
    let mut world = World::new(quota(10, Period::Second, 20));
    world.run(&Step::Report { pop: TRUE, ahead: 20 });
    world.run(&Step::DeliverLast);
    world.run(&Step::Wait { us: 3 * LEASE_US });
    world.run(&Step::Exchange { pop: TRUE, ahead: 1 });
    world.observe(0);
    world.run(&Step::Exchange { pop: OTHER, ahead: 20 });
    world.run(&Step::SpendAll);
    assert_eq!(world.truth.spent, 20);
}

/// A report that is held up until its epoch has ended and been forgotten: what the epoch had before
/// must not come back with the answer.
// I6
#[test]
fn an_epoch_that_has_ended_is_not_brought_back_by_an_answer() {
    let mut world = World::new(quota(10, Period::Second, 20));
    world.run(&Step::Exchange { pop: TRUE, ahead: 10 });
    world.run(&Step::Wait { us: LEASE_US - 1 });
    world.run(&Step::Report { pop: TRUE, ahead: 1 });
    world.run(&Step::Wait { us: LEASE_US / 2 + 100_000 });
    world.run(&Step::DeliverLast);
    world.run(&Step::HearLast);
    world.run(&Step::Exchange { pop: OTHER, ahead: 20 });
    world.run(&Step::SpendAll);
    assert_eq!(world.truth.spent, 19, "the one given anew is lost");
}
