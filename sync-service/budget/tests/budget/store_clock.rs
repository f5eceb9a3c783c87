//! The store's clock jumps, weir-syncs come and go, and each budget refills by the time that passed.

use proptest::prelude::*;
use weir_budget::budget::{Budget, BudgetId, Charge, Count, Demand};
use weir_budget::escrow::{AcquireRequest, Claim, Escrow};
use weir_budget::store_clock::{MARGIN_US, StoreClock, StoreTime};
use weir_protocol::quota::{Period, Quota, Rate};
use weir_protocol::refill_policy::RefillPolicy;

use crate::SECOND_US;

const HOUR_US: u64 = 3_600 * SECOND_US;
/// Time of right clocks at the beginning.
const BEGIN_US: u64 = 1 << 50;
/// Tokens of each budget, one of which refills in a second.
const BURST: u32 = 100_000;
/// Initial debt of charged budgets, in tokens.
const OWED: u64 = 2 * BURST as u64;
/// Keys of either kind.
const KEYS: usize = 3;

fn quota() -> Quota {
    Quota::new(Rate::new(1, Period::Second).unwrap(), BURST).unwrap()
}

/// A weir-sync, as far as it knows of its store's clock.
struct Caller {
    started_us: u64,
    /// Drift of its clock, in millionths.
    drift_ppm: i64,
    clock: StoreClock,
}

impl Caller {
    fn start(now_us: u64, drift_ppm: i64) -> Self {
        Self { started_us: now_us, drift_ppm, clock: StoreClock::new(BEGIN_US + now_us, 0) }
    }

    fn own_us(&self, now_us: u64) -> u64 {
        let passed_us = (now_us - self.started_us).cast_signed();
        (passed_us + passed_us * self.drift_ppm / 1_000_000).cast_unsigned()
    }
}

/// A store, its keys, and who calls it.
struct World {
    now_us: u64,
    ahead_us: i64,
    /// Jumps of the clock ahead so far, and all of its steps.
    jumps: u64,
    steps: u64,
    callers: Vec<Caller>,
    escrows: [Escrow; KEYS],
    given: [u64; KEYS],
    budgets: [Budget; KEYS],
    calls: u64,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            now_us: 0,
            ahead_us: 0,
            jumps: 0,
            steps: 0,
            callers: vec![Caller::start(0, 0), Caller::start(0, 300)],
            escrows: Default::default(),
            given: [0; KEYS],
            budgets: Default::default(),
            calls: 0,
        };
        for key in 0..KEYS {
            world.acquire(0, key);
            world.charge(1, key, OWED);
        }
        world
    }

    /// Time of the store's clock, as bounded by the caller. A call that is refused is sent again.
    fn time(&mut self, caller: usize) -> StoreTime {
        let shown_us = (BEGIN_US + self.now_us).saturating_add_signed(self.ahead_us);
        let caller = &mut self.callers[caller];
        let own_us = caller.own_us(self.now_us);
        let first = caller.clock.bounds(own_us).at(shown_us);
        let jump = caller.clock.observe(own_us, own_us, shown_us);
        assert!(jump.is_none() || self.jumps > 0, "no clock jumped");
        assert_eq!(first.is_none(), jump.is_some(), "nothing is under way for long");
        first.or_else(|| caller.clock.bounds(own_us).at(shown_us)).expect("the clock was observed")
    }

    fn jump(&mut self, by_us: i64) {
        self.ahead_us += by_us;
        self.jumps += u64::from(by_us > 0);
        self.steps += 1;
        if by_us < 0 {
            // A caller that misses a step back takes the step forth for time.
            for caller in 0..self.callers.len() {
                self.time(caller);
            }
        }
    }

    /// Acquires all that there is, and spends it at once.
    fn acquire(&mut self, caller: usize, key: usize) {
        self.calls += 1;
        let (time, epoch) = (self.time(caller), self.calls);
        let claim = |admitted, ahead| AcquireRequest {
            id: BudgetId::new("r".into(), vec![]),
            quota: quota(),
            lease_us: SECOND_US,
            refill_policy: RefillPolicy::Continuous,
            window: None,
            claims: vec![Claim::of(epoch, admitted, ahead)],
        };
        let given = self.escrows[key].acquire(time, "p", &claim(0, 2 * BURST)).given;
        self.escrows[key].acquire(time, "p", &claim(given, 0));
        self.given[key] += given;
    }

    /// A POP without a record has admitted tokens; returns what the budget owes, in whole tokens.
    fn charge(&mut self, caller: usize, key: usize, admitted: u64) -> u64 {
        self.calls += 1;
        let time = self.time(caller);
        let count = Count { epoch: self.calls, admitted, unconfirmed: admitted, span_us: 0, missing: 0, made_ms: 0 };
        let charge = Charge { quota: quota(), replica: "m", demand: Demand::default(), pop: "p", counts: &[count] };
        self.budgets[key].charge(time, &charge).deficit_ns.div_ceil(quota().token_ns())
    }

    /// The most seconds by which a key may have refilled.
    fn most_s(&self) -> u64 {
        // A thousandth, and what the callers' clocks drift.
        let margin_us = MARGIN_US + self.now_us / 500;
        (self.now_us + self.jumps * margin_us).div_ceil(SECOND_US)
    }

    fn look(&mut self, caller: usize, key: usize) {
        self.acquire(caller, key);
        let (given, most_s) = (self.given[key] - u64::from(BURST), self.most_s());
        assert!(given <= most_s, "{given} tokens more in {most_s} s");
        let paid = OWED - self.charge(caller, key, 0).min(OWED);
        assert!(paid <= most_s, "{paid} tokens of debt paid in {most_s} s");
    }
}

#[test]
fn a_clock_jump_keeps_the_remaining_time_of_leases() {
    let mut escrow = Escrow::default();
    let mut clock = StoreClock::new(BEGIN_US, 0);
    let acquire = |epoch, admitted, ahead| AcquireRequest {
        id: BudgetId::new("r".into(), vec![]),
        quota: quota(),
        lease_us: 8 * SECOND_US,
        refill_policy: RefillPolicy::Continuous,
        window: None,
        claims: vec![Claim::of(epoch, admitted, ahead)],
    };
    let mut at = |own_us, ahead_us| {
        let shown_us = BEGIN_US + own_us + ahead_us;
        clock.observe(own_us, own_us, shown_us);
        clock.bounds(own_us).at(shown_us).expect("the clock was observed")
    };
    assert_eq!(escrow.acquire(at(0, 0), "a", &acquire(1, 0, 70_000)).given, 70_000);
    let acquired = escrow.acquire(at(SECOND_US, HOUR_US), "b", &acquire(2, 0, 0));
    assert_eq!(acquired.outstanding, 70_000, "its lease has not ended");
    let acquired = escrow.acquire(at(2 * SECOND_US, HOUR_US), "a", &acquire(1, 60_000, 1));
    assert_eq!(acquired.leases[0].charged, 70_000, "and it can be renewed");
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Jump(i64),
    Start { caller: usize, drift_ppm: i64 },
    Look { caller: usize, key: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let span_us = prop_oneof![0..SECOND_US, 0..100 * SECOND_US, 0..HOUR_US];
    let jump_us = prop_oneof![0..20 * SECOND_US, 0..2 * HOUR_US, Just(HOUR_US)];
    prop_oneof![
        3 => span_us.prop_map(Step::Pass),
        1 => (jump_us, any::<bool>()).prop_map(|(us, back)| {
            Step::Jump(if back { -us.cast_signed() } else { us.cast_signed() })
        }),
        1 => (0..2_usize, -400..400_i64).prop_map(|(caller, drift_ppm)| Step::Start { caller, drift_ppm }),
        6 => (0..2_usize, 0..KEYS).prop_map(|(caller, key)| Step::Look { caller, key }),
    ]
}

proptest! {
    // I8
    #[test]
    fn refill_is_bounded_by_time_and_a_margin_per_jump(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Pass(us) => world.now_us += us,
                Step::Jump(us) => world.jump(us),
                // Its wall clock shows it one jump, and none before.
                Step::Start { caller, drift_ppm } if world.steps < 2 && world.ahead_us >= 0 => {
                    world.callers[caller] = Caller::start(world.now_us, drift_ppm);
                    world.look(caller, 0);
                }
                Step::Start { .. } => {}
                Step::Look { caller, key } => world.look(caller, key),
            }
        }
    }
}
