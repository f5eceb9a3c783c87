//! No window of the calendar is given, or spends, more than its count, whatever POPs, network and clocks do.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use weir_budget::escrow::{AcquireRequest, DRIFT_PART, Escrow, WINDOW_TOKEN_NS};
use weir_protocol::calendar::{Calendar, DAY_US, Window};
use weir_protocol::messages::Leased;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;

use crate::pop::{Pop, Report};
use crate::{SECOND_US, acquire, quota};

/// How the clocks of the POPs run, in parts of true time: as slow as is allowed, true, fast.
const CLOCKS: [(u64, u64); POPS] = [(DRIFT_PART, DRIFT_PART + 1), (1, 1), (3, 2)];
const POPS: usize = 3;
const NAMES: [&str; POPS] = ["slow", "true", "fast"];
const LEASE_US: u64 = 600 * SECOND_US;
/// When it begins, by true time since 1970: an hour before a day ends.
const BEGINS_US: u64 = 20_000 * DAY_US - 3_600 * SECOND_US;
/// By how much the clocks of two weir-syncs are off, in microseconds: less than a day.
const SKEWS_US: [i64; 3] = [0, -20 * 3_600 * 1_000_000, 23 * 3_600 * 1_000_000];

/// What happens next. Messages stay: each may be delivered late, many times, in any order, or never.
#[derive(Clone, Debug)]
enum Step {
    Wait {
        us: u64,
    },
    /// To shortly before or after the next midnight.
    ToMidnight {
        us: i64,
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
        skew: usize,
    },
    DeliverLast {
        skew: usize,
    },
    Hear {
        which: Index,
    },
    HearLast,
    Exchange {
        pop: usize,
        ahead: u32,
        skew: usize,
    },
    Spend {
        pop: usize,
        tokens: u64,
    },
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
}

fn step() -> impl Strategy<Value = Step> {
    let (pop, skew) = (|| 0..POPS, || 0..SKEWS_US.len());
    prop_oneof![
        3 => (0..LEASE_US / 4).prop_map(|us| Step::Wait { us }),
        1 => (0..2 * LEASE_US).prop_map(|us| Step::Wait { us }),
        2 => (-5_000_000..5_000_000_i64).prop_map(|us| Step::ToMidnight { us }),
        8 => (pop(), 1..60_u32, skew()).prop_map(|(pop, ahead, skew)| Step::Exchange { pop, ahead, skew }),
        4 => (pop(), 1..60_u32).prop_map(|(pop, ahead)| Step::Report { pop, ahead }),
        1 => pop().prop_map(|pop| Step::GiveBack { pop }),
        2 => (any::<Index>(), skew()).prop_map(|(which, skew)| Step::Deliver { which, skew }),
        4 => skew().prop_map(|skew| Step::DeliverLast { skew }),
        2 => any::<Index>().prop_map(|which| Step::Hear { which }),
        4 => Just(Step::HearLast),
        3 => (pop(), 1..20_u64).prop_map(|(pop, tokens)| Step::Spend { pop, tokens }),
        2 => Just(Step::SpendAll),
        4 => pop().prop_map(|pop| Step::SpendAtTheEnd { pop }),
        1 => pop().prop_map(|pop| Step::Crash { pop }),
        1 => (0..600 * SECOND_US).prop_map(|us| Step::ClockBack { us }),
    ]
}

struct World {
    quota: Quota,
    refill_policy: RefillPolicy,
    /// True time since 1970, in microseconds.
    now_us: u64,
    back_us: u64,
    store: Escrow,
    pops: [Pop; POPS],
    reports: Vec<(usize, Report)>,
    answers: Vec<(usize, Report, Leased)>,
    epochs: u64,
    /// The latest day whose window the store has entered, ...
    entered_day: u64,
    /// ... what was spent since it did, ...
    by_entered_day: BTreeMap<u64, u64>,
    /// ... and what was spent on each day by true time.
    by_true_day: BTreeMap<u64, u64>,
}

impl World {
    /// A month where days are: the boundaries are those that are named.
    fn of_days(count: u32) -> Self {
        Self::new(count, RefillPolicy::Window(Calendar::Month))
    }

    fn new(count: u32, refill_policy: RefillPolicy) -> Self {
        let pops = [Pop::new(1), Pop::new(2), Pop::new(3)];
        let (reports, answers, store) = (Vec::new(), Vec::new(), Escrow::default());
        let (entered_day, by_entered_day, by_true_day) = (0, BTreeMap::new(), BTreeMap::new());
        let (quota, now_us) = (quota(count, Period::Day, count), BEGINS_US);
        let epochs = 3;
        Self {
            quota,
            refill_policy,
            now_us,
            back_us: 0,
            store,
            pops,
            reports,
            answers,
            epochs,
            entered_day,
            by_entered_day,
            by_true_day,
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Wait { us } => self.now_us += us,
            Step::ToMidnight { us } => {
                let midnight = (self.now_us + 10 * SECOND_US).next_multiple_of(DAY_US);
                self.now_us = self.now_us.max(midnight.saturating_add_signed(us));
            }
            Step::ClockBack { us } => self.back_us += us,
            Step::Report { pop, ahead } => {
                let (now_us, epoch) = (self.clock(pop), self.new_epoch());
                self.reports.push((pop, self.pops[pop].report(now_us, ahead, epoch)));
            }
            Step::Exchange { pop, ahead, skew } => {
                self.run(&Step::Report { pop, ahead });
                self.run(&Step::DeliverLast { skew });
                self.run(&Step::HearLast);
            }
            Step::GiveBack { pop } => {
                let (now_us, epoch) = (self.clock(pop), self.new_epoch());
                self.reports.push((pop, self.pops[pop].give_back(now_us, epoch)));
            }
            Step::Deliver { which, skew } if !self.reports.is_empty() => {
                self.deliver(which.index(self.reports.len()), skew);
            }
            Step::DeliverLast { skew } if !self.reports.is_empty() => {
                self.deliver(self.reports.len() - 1, skew);
            }
            Step::Hear { which } if !self.answers.is_empty() => self.observe(which.index(self.answers.len())),
            Step::HearLast if !self.answers.is_empty() => self.observe(self.answers.len() - 1),
            Step::Deliver { .. } | Step::DeliverLast { .. } | Step::Hear { .. } | Step::HearLast => {}
            Step::Spend { pop, tokens } => self.spend(pop, tokens),
            Step::SpendAll => (0..POPS).for_each(|pop| self.spend(pop, u64::MAX)),
            Step::SpendAtTheEnd { pop } => {
                if let Some(until_us) = self.pops[pop].until_us {
                    // The last moment at which the POP's clock is before the end.
                    let (parts, of) = CLOCKS[pop];
                    let last_us = (until_us * of).div_ceil(parts).saturating_sub(1);
                    self.now_us = self.now_us.max(BEGINS_US + last_us);
                }
                self.spend(pop, u64::MAX);
            }
            Step::Crash { pop } => self.pops[pop] = Pop::new(self.new_epoch()),
        }
    }

    fn deliver(&mut self, which: usize, skew: usize) {
        let (pop, report) = self.reports[which];
        let now_us = self.now_us - self.back_us;
        // A store may forget what it need not keep.
        if self.store.expires_us() <= now_us {
            self.store = Escrow::default();
        }
        let by_us = self.now_us.saturating_add_signed(SKEWS_US[skew]);
        let window = Some(Window { calendar: Calendar::Month, ..Calendar::Day.window(by_us) });
        let acquire = AcquireRequest {
            lease_us: LEASE_US,
            refill_policy: self.refill_policy,
            window,
            ..acquire(self.quota, &[report.claim])
        };
        let acquired = self.store.acquire(now_us, NAMES[pop], &acquire);
        // An acquire that is refused enters a window, too.
        if let Some(ends_us) = self.store.window_ends_us() {
            self.entered_day = self.entered_day.max(ends_us / DAY_US - 1);
        }
        let used = self.store.deficit_ns() / WINDOW_TOKEN_NS;
        assert!(used <= u64::from(self.quota.burst()));
        assert!(acquired.outstanding <= used);
        self.answers.push((pop, report, acquired.leases[0]));
    }

    fn observe(&mut self, which: usize) {
        let (pop, report, lease) = self.answers[which];
        let (now_us, epoch) = (self.clock(pop), self.new_epoch());
        self.pops[pop].observe(now_us, &report, lease, epoch);
    }

    fn spend(&mut self, pop: usize, tokens: u64) {
        let spent = self.pops[pop].spend(self.clock(pop), tokens);
        let count = u64::from(self.quota.burst());
        for (tally, day) in
            [(&mut self.by_entered_day, self.entered_day), (&mut self.by_true_day, self.now_us / DAY_US)]
        {
            *tally.entry(day).or_default() += spent;
        }
        assert!(self.by_entered_day[&self.entered_day] <= count, "{:?} of {count}", self.by_entered_day);
        // A store whose clock has stepped back has its days later.
        if self.back_us == 0 {
            assert!(self.by_true_day[&(self.now_us / DAY_US)] <= count, "{:?} of {count}", self.by_true_day);
            if let RefillPolicy::Sliding(_) = self.refill_policy {
                assert!(self.slides_to(count), "{:?} of {count}", self.by_true_day);
            }
        }
    }

    /// The naive model: whether what was spent today and the part of yesterday's that a day ending now covers fit,
    /// without rounding.
    fn slides_to(&self, count: u64) -> bool {
        let (day, elapsed) = (self.now_us / DAY_US, u128::from(self.now_us % DAY_US));
        let spent = |day| u128::from(self.by_true_day.get(&day).copied().unwrap_or_default());
        let day_us = u128::from(DAY_US);
        spent(day - 1) * (day_us - elapsed) + spent(day) * day_us <= u128::from(count) * day_us
    }

    fn clock(&self, pop: usize) -> u64 {
        let (parts, of) = CLOCKS[pop];
        (self.now_us - BEGINS_US) * parts / of
    }

    fn new_epoch(&mut self) -> u64 {
        self.epochs += 1;
        self.epochs
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    // I6
    #[test]
    fn no_window_spends_more_than_its_count(steps in prop::collection::vec(step(), 1..250), count in 1..400_u32) {
        let mut world = World::of_days(count);
        for step in &steps {
            world.run(step);
        }
    }

    // I6
    #[test]
    fn by_true_time_neither_while_no_clock_steps_back(
        steps in prop::collection::vec(step(), 1..250), count in 1..100_u32
    ) {
        let mut world = World::of_days(count);
        for step in steps.iter().filter(|step| !matches!(step, Step::ClockBack { .. })) {
            world.run(step);
        }
    }

    /// It cannot be told from a limiter that sees every request at once.
    // I6
    #[test]
    fn at_no_time_is_more_spent_than_a_sliding_window_lets_through(
        steps in prop::collection::vec(step(), 1..250), count in 1..100_u32
    ) {
        let mut world = World::new(count, RefillPolicy::Sliding(Calendar::Day));
        for step in steps.iter().filter(|step| !matches!(step, Step::ClockBack { .. })) {
            world.run(step);
        }
    }
}

/// A window that a refused acquire has entered is the next day's, also where the store's clock steps back behind
/// its begin.
#[test]
fn a_window_that_a_refused_acquire_entered_is_no_second_one_of_the_day_before() {
    let mut world = World::of_days(1);
    let exchange = |pop, ahead| Step::Exchange { pop, ahead, skew: 0 };
    world.run(&Step::ToMidnight { us: -1_016 });
    for step in [exchange(0, 17), exchange(0, 1), exchange(1, 28), Step::SpendAll, Step::Wait { us: 1_016 }] {
        world.run(&step);
    }
    world.deliver(0, 0);
    for step in [Step::ClockBack { us: 1 }, exchange(0, 23), exchange(1, 56), Step::SpendAll] {
        world.run(&step);
    }
}

/// The runs above would say little if in most of them hardly anything was spent.
#[test]
fn random_runs_spend_much_of_what_there_is() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut spent, mut windows) = (0, 0);
    for _ in 0..200 {
        let steps = prop::collection::vec(step(), 200).new_tree(&mut runner).unwrap().current();
        let mut world = World::of_days(40);
        for step in &steps {
            world.run(step);
        }
        spent += world.by_entered_day.values().sum::<u64>();
        windows += world.by_entered_day.values().filter(|spent| **spent > 0).count() as u64;
    }
    assert!(windows > 400, "{windows} windows in 200 runs");
    assert!(spent * 2 > windows * 40, "{spent} in {windows} windows of 40");
}
