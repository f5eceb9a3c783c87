//! The scenarios of the table in which the quota itself is the trial: a burst of which a POP gives a part.

use super::scenario::{Plan, Size};
use super::setup::RuleText;
use super::traffic;
use super::world::World;

/// How long a key is new, in seconds.
const NEW_SECONDS: u64 = 5;
/// How long a fleet goes on without traffic, in seconds: then all that was admitted must be charged.
const DRAIN_SECONDS: u64 = 15;

/// A burst of ten seconds of which a POP gives a hundredth unheard, at three times the rate.
pub fn small_local_burst(size: Size) -> Plan {
    local_burst(size, 1_000, 10, 240, 300.0)
}

/// A quarter of the burst at each POP, below the limit.
pub fn local_burst_below(size: Size) -> Plan {
    local_burst(size, 100, 25, 60, 90.0)
}

fn local_burst(size: Size, burst: u32, local_burst: u32, seconds: u64, per_second: f64) -> Plan {
    let mut plan = Plan::of(size, seconds, traffic::even(per_second, size.pops));
    let rule = RuleText::with(&format!(r#""local_burst": {local_burst}"#));
    plan.setup.rules = vec![RuleText { burst, ..rule }];
    Plan { drain_seconds: DRAIN_SECONDS, ..plan }
}

/// A burst that fills in less than an interval.
pub fn small_burst(size: Size) -> Plan {
    let mut plan = Plan::of(size, 60, traffic::even(150.0, size.pops));
    plan.setup.rules = vec![RuleText { burst: 5, ..RuleText::default() }];
    plan
}

/// What was admitted while the key was new, as a part of what the ideal bucket would have.
pub fn while_new(world: &World) -> f64 {
    let admitted = world.reference.between(0, NEW_SECONDS, |sample| sample.tally.admitted);
    admitted / world.reference.between(0, NEW_SECONDS, |sample| sample.ideally)
}
