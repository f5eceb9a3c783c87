//! I6 at random: whatever POPs, network and clocks do, no more is spent than the refill policy allows.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use weir_budget::escrow::{AcquireRequest, Claim, DRIFT_PART, Escrow};
use weir_protocol::calendar::{Calendar, DAY_US, Window};
use weir_protocol::messages::Leased;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;

use super::pop::{Pop, Report};
use super::{DAY, SECOND_US, Store, quota};

/// Speeds of the POPs' clocks as fractions of true time: as slow as is allowed, true, fast.
const CLOCKS: [(u64, u64); POPS] = [(DRIFT_PART, DRIFT_PART + 1), (1, 1), (3, 2)];
const POPS: usize = 3;
const NAMES: [&str; POPS] = ["slow", "true", "fast"];
/// Time for which a request is reported to go on, in microseconds.
const HOLD_US: u64 = 5 * SECOND_US;
/// Begin by true time since 1970: an hour before a day ends. The store's clock may step back many times.
const BEGINS_US: u64 = DAY - 3_600 * SECOND_US;
/// Errors of the clocks of weir-syncs, in microseconds: less than a day.
const SKEWS_US: [i64; 3] = [0, -20 * 3_600 * 1_000_000, 23 * 3_600 * 1_000_000];

/// One event. Messages stay: each may be delivered late, many times, in any order, or never.
#[derive(Clone, Debug)]
enum Step {
    /// Thousandths of a lease pass.
    Wait(u64),
    /// Shortly before or after the next midnight.
    ToMidnight(i64),
    /// The store's clock steps back by thousandths of a lease.
    ClockBack(u64),
    Report(usize, u32),
    GiveBack(usize),
    Deliver(Index, usize),
    DeliverLast(usize),
    Observe(Index),
    ObserveLast,
    /// A report, and at once its answer.
    Exchange(usize, u32, usize),
    Spend(usize, u64),
    /// All POPs spend everything at once.
    SpendAll,
    /// A POP hoards until the last moment of its lease, and then spends it all.
    SpendAtTheEnd(usize),
    Crash(usize),
    /// Any claim of a POP that spends nothing.
    Claim(u64, u64, u32),
    Take(u32),
    /// A request acquires for itself, ...
    Begin(usize, u32),
    /// ... goes on, ...
    Hold(Index),
    /// ... spends some of its tokens, ...
    Use(Index, u64),
    /// ... and ends; its cost is reported as often as this happens.
    End(Index),
}

fn step() -> impl Strategy<Value = Step> {
    let (pop, skew) = (|| 0..POPS, || 0..SKEWS_US.len());
    prop_oneof![
        3 => (0..250_u64).prop_map(Step::Wait),
        1 => (0..2_000_u64).prop_map(Step::Wait),
        1 => (-5_000_000..5_000_000_i64).prop_map(Step::ToMidnight),
        1 => (0..500_u64).prop_map(Step::ClockBack),
        8 => (pop(), 1..60_u32, skew()).prop_map(|(pop, ahead, skew)| Step::Exchange(pop, ahead, skew)),
        4 => (pop(), 1..60_u32).prop_map(|(pop, ahead)| Step::Report(pop, ahead)),
        1 => pop().prop_map(Step::GiveBack),
        2 => (any::<Index>(), skew()).prop_map(|(which, skew)| Step::Deliver(which, skew)),
        4 => skew().prop_map(Step::DeliverLast),
        2 => any::<Index>().prop_map(Step::Observe),
        4 => Just(Step::ObserveLast),
        3 => (pop(), 1..20_u64).prop_map(|(pop, tokens)| Step::Spend(pop, tokens)),
        2 => Just(Step::SpendAll),
        4 => pop().prop_map(Step::SpendAtTheEnd),
        1 => pop().prop_map(Step::Crash),
        1 => (0..6_u64, 0..40_u64, any::<u32>()).prop_map(|(epoch, spent, ahead)| Step::Claim(epoch, spent, ahead % 50)),
        3 => (1..20_u32).prop_map(Step::Take),
        4 => (pop(), 1..20_u32).prop_map(|(pop, tokens)| Step::Begin(pop, tokens)),
        4 => any::<Index>().prop_map(Step::Hold),
        6 => (any::<Index>(), 1..20_u64).prop_map(|(which, tokens)| Step::Use(which, tokens)),
        3 => any::<Index>().prop_map(Step::End),
    ]
}

/// A limiter that sees every token when it is truly spent.
#[derive(Debug, Default)]
struct Truth {
    total: u64,
    /// Debt of an ideal bucket, in nanoseconds of refill, at its last change.
    debt_ns: u64,
    at_us: u64,
    /// Tokens and the true time at which they were spent.
    all: Vec<(u64, u64)>,
    /// The latest day whose window the store has entered, and the tokens spent since it did.
    entered_day: u64,
    by_entered_day: BTreeMap<u64, u64>,
}

impl Truth {
    fn spend(&mut self, now_us: u64, tokens: u64, store: &Store, is_clock_right: bool) {
        self.total += tokens;
        self.all.extend((tokens > 0).then_some((now_us, tokens)));
        let (count, quota) = (u64::from(store.quota.burst()), store.quota);
        let since = |us: u64| self.all.iter().filter(|(at_us, _)| *at_us >= us).map(|(_, tokens)| tokens).sum::<u64>();
        match store.refill_policy {
            RefillPolicy::Log(length_s) => {
                let counted = since((now_us + 1).saturating_sub(u64::from(length_s) * SECOND_US));
                assert!(counted <= count, "{counted} where {count} are allowed");
            }
            RefillPolicy::Window(_) | RefillPolicy::Sliding(_) => {
                let (day, elapsed) = (now_us / DAY_US, now_us % DAY_US);
                let today = since(day * DAY_US);
                let before = since((day - 1) * DAY_US) - today;
                let entered = self.by_entered_day.entry(self.entered_day).or_default();
                *entered += tokens;
                assert!(*entered <= count, "{entered} of {count}");
                // A store whose clock has stepped back has its days later.
                if is_clock_right {
                    assert!(today <= count, "{today} of {count}");
                    let fading = u128::from(before) * u128::from(DAY_US - elapsed);
                    let fits =
                        fading + u128::from(today) * u128::from(DAY_US) <= u128::from(count) * u128::from(DAY_US);
                    assert!(fits || !matches!(store.refill_policy, RefillPolicy::Sliding(_)), "{before}, {today}");
                }
            }
            _ => {
                let refilled_ns = (now_us - self.at_us) * 1_000;
                self.debt_ns = self.debt_ns.saturating_sub(refilled_ns) + tokens * quota.token_ns();
                self.at_us = now_us;
                assert!(self.debt_ns <= quota.fill_ns(), "a debt of {} ns, where {count} are allowed", self.debt_ns);
            }
        }
    }
}

/// A request with an epoch of its own, at one of the POPs.
struct Request {
    pop: usize,
    key: Pop,
    has_ended: bool,
}

struct World {
    store: Store,
    lease_us: u64,
    /// True time since the begin, in microseconds.
    now_us: u64,
    back_us: u64,
    pops: [Pop; POPS],
    reports: Vec<(usize, Report)>,
    answers: Vec<(usize, Report, Leased)>,
    epochs: u64,
    truth: Truth,
    requests: Vec<Request>,
}

impl World {
    fn new(refill_policy: RefillPolicy, quota: Quota) -> Self {
        let store = Store::new(refill_policy, quota);
        let lease_us = store.request(&[]).lease_us;
        let pops = [Pop::new(1), Pop::new(2), Pop::new(3)];
        let (reports, answers, requests) = (Vec::new(), Vec::new(), Vec::new());
        let truth = Truth::default();
        Self { store, lease_us, now_us: 0, back_us: 0, pops, reports, answers, epochs: 3, truth, requests }
    }

    fn run(&mut self, step: &Step) {
        let has_windows = self.store.refill_policy.windows().is_some();
        match *step {
            Step::Wait(part) => self.now_us += self.lease_us * part / 1_000,
            Step::ToMidnight(us) if has_windows => {
                let now_us = BEGINS_US + self.now_us;
                let midnight = (now_us + 10 * SECOND_US).next_multiple_of(DAY_US);
                self.now_us = now_us.max(midnight.saturating_add_signed(us)) - BEGINS_US;
            }
            Step::ClockBack(part) => self.back_us += self.lease_us * part / 1_000,
            Step::Report(pop, ahead) => {
                let (now_us, epoch) = (self.clock(pop), self.new_epoch());
                self.reports.push((pop, self.pops[pop].report(now_us, ahead, epoch)));
            }
            Step::Exchange(pop, ahead, skew) => {
                for step in [Step::Report(pop, ahead), Step::DeliverLast(skew), Step::ObserveLast] {
                    self.run(&step);
                }
            }
            Step::GiveBack(pop) => {
                let (now_us, epoch) = (self.clock(pop), self.new_epoch());
                self.reports.push((pop, self.pops[pop].give_back(now_us, epoch)));
            }
            Step::Deliver(which, skew) if !self.reports.is_empty() => {
                self.deliver(which.index(self.reports.len()), skew);
            }
            Step::DeliverLast(skew) if !self.reports.is_empty() => self.deliver(self.reports.len() - 1, skew),
            Step::Observe(which) if !self.answers.is_empty() => self.observe(which.index(self.answers.len())),
            Step::ObserveLast if !self.answers.is_empty() => self.observe(self.answers.len() - 1),
            Step::Spend(pop, tokens) => self.spend(pop, tokens),
            Step::SpendAll => (0..POPS).for_each(|pop| self.spend(pop, u64::MAX)),
            Step::SpendAtTheEnd(pop) => {
                if let Some(until_us) = self.pops[pop].until_us {
                    // The last moment at which the POP's clock is before the end.
                    let (parts, of) = CLOCKS[pop];
                    self.now_us = self.now_us.max((until_us * of).div_ceil(parts).saturating_sub(1));
                }
                self.spend(pop, u64::MAX);
            }
            Step::Crash(pop) => self.pops[pop] = Pop::new(self.new_epoch()),
            Step::Claim(epoch, spent, ahead) => {
                self.acquire("liar", Claim::of(epoch, spent, ahead), 0);
            }
            _ if !has_windows => self.run_request(step),
            // Nothing is on its way, or the step is one of another policy.
            _ => {}
        }
    }

    /// A step of a request with a token or an epoch of its own.
    fn run_request(&mut self, step: &Step) {
        let count = self.requests.len();
        let which = |which: Index| which.index(count);
        match *step {
            Step::Take(tokens) => {
                let taken = self.acquire(NAMES[0], Claim::take(tokens), 0).charged;
                assert!(taken == 0 || taken == u64::from(tokens), "all or nothing");
                self.count(taken);
            }
            Step::Begin(pop, tokens) => {
                let key = Pop::new(self.new_epoch());
                self.requests.push(Request { pop, key, has_ended: false });
                self.ask(self.requests.len() - 1, Some(tokens), None);
            }
            Step::Hold(at) if !self.requests.is_empty() => self.ask(which(at), None, Some(HOLD_US)),
            Step::Use(at, tokens) if !self.requests.is_empty() => {
                let at = which(at);
                let now_us = self.clock(self.requests[at].pop);
                let request = &mut self.requests[at];
                let spent = if request.has_ended { 0 } else { request.key.spend(now_us, tokens) };
                self.count(spent);
            }
            Step::End(at) if !self.requests.is_empty() => {
                let at = which(at);
                self.requests[at].has_ended = true;
                self.ask(at, None, Some(0));
            }
            _ => {}
        }
    }

    /// A request acquires `tokens`, or else reports its epoch: held, or given back if it has ended.
    fn ask(&mut self, which: usize, tokens: Option<u32>, held_us: Option<u64>) {
        let (now_us, epoch) = (self.clock(self.requests[which].pop), self.new_epoch());
        let Request { pop, ref mut key, has_ended } = self.requests[which];
        // No report contains its tokens before it has ended.
        let admitted = if has_ended { key.admitted } else { 0 };
        let ahead = tokens.unwrap_or(if has_ended { 0 } else { key.acquired() });
        let claim = Claim { held_us, ..Claim::of(key.epoch, admitted, ahead) };
        self.reports.push((pop, Report { claim, made_us: now_us }));
        self.deliver(self.reports.len() - 1, 0);
        let (_, report, lease) = self.answers[self.answers.len() - 1];
        self.requests[which].key.observe(now_us, &report, lease, epoch);
    }

    fn deliver(&mut self, which: usize, skew: usize) {
        let (pop, report) = self.reports[which];
        let lease = self.acquire(NAMES[pop], report.claim, skew);
        self.answers.push((pop, report, lease));
    }

    fn acquire(&mut self, pop: &str, claim: Claim, skew: usize) -> Leased {
        let now_us = BEGINS_US + self.now_us - self.back_us;
        let Store { escrow, quota, .. } = &mut self.store;
        // A store may forget a full budget.
        if escrow.full_us() <= now_us {
            *escrow = Escrow::default();
        }
        let (burst, by_us) = (quota.burst(), (BEGINS_US + self.now_us).saturating_add_signed(SKEWS_US[skew]));
        // A month where days are: the boundaries are those that are named.
        let window = Some(Window { calendar: Calendar::MONTH, ..Calendar::DAY.window(by_us) });
        let request = AcquireRequest { window, ..self.store.request(&[claim]) };
        let most_ns = (u64::from(burst) * request.token_ns()).max(self.store.escrow.deficit_ns());
        let acquired = self.store.escrow.acquire(now_us, pop, &request);
        // An acquire that is refused enters a window, too.
        if let Some(ends_us) = self.store.escrow.window_ends_us() {
            self.truth.entered_day = self.truth.entered_day.max(ends_us / DAY_US - 1);
        }
        let deficit_ns = self.store.escrow.deficit_ns();
        assert!(acquired.outstanding * request.token_ns() <= deficit_ns);
        // If the record that an epoch is over was lost, a late report holds it again, with fewer tokens than were
        // spent.
        assert!(deficit_ns <= most_ns || claim.is_settled());
        acquired.leases[0]
    }

    fn observe(&mut self, which: usize) {
        let (pop, report, lease) = self.answers[which];
        let (now_us, epoch) = (self.clock(pop), self.new_epoch());
        self.pops[pop].observe(now_us, &report, lease, epoch);
    }

    fn spend(&mut self, pop: usize, tokens: u64) {
        let spent = self.pops[pop].spend(self.clock(pop), tokens);
        self.count(spent);
    }

    fn count(&mut self, tokens: u64) {
        self.truth.spend(BEGINS_US + self.now_us, tokens, &self.store, self.back_us == 0);
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

const POLICIES: [RefillPolicy; 5] = [
    RefillPolicy::Continuous,
    RefillPolicy::Log(1),
    RefillPolicy::Log(5),
    RefillPolicy::Window(Calendar::MONTH),
    RefillPolicy::Sliding(Calendar::DAY),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    // I6
    #[test]
    fn no_more_is_ever_spent_than_the_policy_allows(
        steps in prop::collection::vec(step(), 1..250), burst in 1..40_u32, policy in 0..POLICIES.len(),
        has_steps in any::<bool>(),
    ) {
        let mut world = World::new(POLICIES[policy], quota(10, Period::Second, burst));
        for step in steps.iter().filter(|step| has_steps || !matches!(step, Step::ClockBack(_))) {
            world.run(step);
        }
    }
}

// I6
#[test]
fn a_late_answer_does_not_revive_an_ended_epoch() {
    let (wait, report, exchange) = (Step::Wait, Step::Report, |pop, ahead| Step::Exchange(pop, ahead, 0));
    let late = |ahead| [Step::DeliverLast(0), Step::ObserveLast, exchange(2, ahead), Step::SpendAll];
    // The first answer comes when its lease is over, and its epoch has been forgotten and begun again.
    let mut world = World::new(POLICIES[0], quota(10, Period::Second, 20));
    for step in [report(1, 20), Step::DeliverLast(0), wait(3_000), exchange(1, 1)] {
        world.run(&step);
    }
    world.observe(0);
    for step in [exchange(2, 20), Step::SpendAll] {
        world.run(&step);
    }
    assert_eq!(world.truth.total, 20);
    // A report is delayed until its epoch has ended and been forgotten.
    let mut world = World::new(POLICIES[0], quota(10, Period::Second, 20));
    for step in [exchange(1, 10), wait(999), report(1, 1), wait(551)].iter().chain(&late(20)) {
        world.run(step);
    }
    assert_eq!(world.truth.total, 19, "the one given anew is lost");
}

/// A window that a refused acquire has entered is the next day's, even if the store's clock steps back before it.
#[test]
fn a_refused_acquire_begins_no_second_window_of_the_day_before() {
    let mut world = World::new(POLICIES[3], quota(1, Period::Second, 1));
    let exchange = |pop, ahead| Step::Exchange(pop, ahead, 0);
    for step in [Step::ToMidnight(-1_016), exchange(0, 17), exchange(0, 1), exchange(1, 28), Step::SpendAll] {
        world.run(&step);
    }
    world.now_us += 1_016;
    world.deliver(0, 0);
    world.back_us += 1;
    for step in [exchange(0, 23), exchange(1, 56), Step::SpendAll] {
        world.run(&step);
    }
}
