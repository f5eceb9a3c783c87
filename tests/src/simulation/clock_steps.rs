//! The scenarios of the table in which the store's clock steps, as at a fail-over to a host whose clock is behind or
//! ahead.
//!
//! Tests of I8.

use weir_protocol::time::SECOND_NS;

use super::faults::Fault;
use super::reference::Sample;
use super::scenario::{Plan, Size};
use super::setup::RuleText;
use super::traffic;
use super::world::World;

/// The time at which the clock steps, in seconds.
const STEP_AT: u64 = 25;
/// The time at which a client that kept below its limit begins to exceed it, in seconds.
const RISES_AT: u64 = 30;
/// The length of it all, in seconds.
const SECONDS: u64 = 100;
/// The time at which the clock steps while there is a debt, in seconds.
const IN_DEBT_AT: u64 = 2;

fn steps(at: u64, seconds: i64) -> (u64, Fault) {
    (at * SECOND_NS, Fault::StoreClock(seconds * 1_000_000))
}

/// Nine tenths of the rate, and later three times the rate; the clock steps in between.
pub fn below_then_above(size: Size, seconds: i64) -> Plan {
    let rises = RISES_AT * SECOND_NS;
    let below = traffic::between(0, rises, traffic::even(90.0, size.pops));
    let above = traffic::between(rises, u64::MAX, traffic::even(300.0, size.pops));
    let plan = Plan::of(size, SECONDS, traffic::merged(vec![below, above]));
    Plan { faults: vec![steps(STEP_AT, seconds)], drain_seconds: 15, ..plan }
}

/// Three times the rate all the time; the clock steps, and steps back later.
pub fn to_and_fro(size: Size, seconds: i64) -> Plan {
    let plan = Plan::of(size, SECONDS, traffic::even(300.0, size.pops));
    Plan { faults: vec![steps(STEP_AT, seconds), steps(2 * STEP_AT, -seconds)], drain_seconds: 15, ..plan }
}

/// A burst at every POP, and three times the rate; the clock steps before the burst is paid back.
pub fn in_debt(size: Size, seconds: i64) -> Plan {
    let bursts = traffic::between(0, SECOND_NS, traffic::bursts(100, size.pops, 10 * SECOND_NS));
    // Until the debt is paid, and a while longer.
    let seconds_long = size.pops as u64 + SECONDS;
    let plan = Plan::of(size, seconds_long, traffic::merged(vec![bursts, traffic::even(300.0, size.pops)]));
    Plan { faults: vec![steps(IN_DEBT_AT, seconds)], ..plan }
}

/// This many requests a second; the clocks of half of the POPs step back by 5 minutes, as where virtual machines
/// are moved.
pub fn of_half_of_the_pops(size: Size, per_second: f64) -> Plan {
    let mut plan = Plan::of(size, SECONDS, traffic::even(per_second, size.pops));
    let back = |pop| (STEP_AT * SECOND_NS, Fault::PopClock(pop, -300 * SECOND_NS.cast_signed()));
    plan.faults = (0..size.pops).step_by(2).map(back).collect();
    plan
}

/// A strict rule at three times its rate.
pub fn strict(size: Size, seconds: i64) -> Plan {
    let mut plan = to_and_fro(size, seconds);
    plan.setup.rules = vec![RuleText::with(r#""strict": true"#)];
    plan
}

/// A strict rule whose burst takes ten minutes to refill and is spent when the clock steps by as much.
pub fn slow_strict(size: Size) -> Plan {
    let mut plan = Plan::of(size, SECONDS, traffic::even(60.0, size.pops));
    plan.faults = vec![steps(STEP_AT, 600)];
    plan.setup.rules = vec![RuleText { rate: "1/s".into(), burst: 600, ..RuleText::with(r#""strict": true"#) }];
    plan
}

/// Admissions from the step on beyond those of the ideal bucket, in bursts.
pub fn bursts_beyond(world: &World) -> f64 {
    let of = |figure: fn(&Sample) -> u64| world.reference.between(STEP_AT, SECONDS, figure);
    let beyond = of(|sample| sample.tally.admitted) - of(|sample| sample.ideally);
    beyond / f64::from(world.reference.account(0, 0).quota.burst())
}

/// Admissions beyond burst + rate x t in any span, in bursts.
pub fn overshoot_bursts(world: &World) -> f64 {
    let account = world.reference.account(0, 0);
    account.overshoot_max / f64::from(account.quota.burst())
}
