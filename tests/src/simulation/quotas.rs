//! The scenarios of the table that try the quota itself: local bursts, small bursts, nested rules.

use weir_protocol::time::SECOND_NS;

use super::account::Account;
use super::scenario::{Plan, Size};
use super::setup::RuleText;
use super::traffic;
use super::world::World;

/// Time for which a key is new, in seconds.
const NEW_SECONDS: u64 = 5;
/// Time that a client stays at a POP if it moves before all have news of it, in nanoseconds.
const MOVES_NS: u64 = 7 * SECOND_NS / 10;
/// Time for which a fleet goes on without traffic, in seconds: then all admissions must be charged.
const DRAIN_SECONDS: u64 = 15;

/// A burst of which a POP gives a part before the fleet knows a key.
pub fn local_burst(size: Size, [local_burst, burst]: [u32; 2], seconds: u64, per_second: f64) -> Plan {
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

/// The same burst, and a client that moves before all have news of it.
pub fn small_burst_moving(size: Size) -> Plan {
    let plan = small_burst(size);
    Plan { traffic: traffic::hopping(300.0, size.pops, MOVES_NS), ..plan }
}

/// Six clients in two networks, each at `times` the rate, counted alone, by network, and all together.
pub fn nested(size: Size, times: f64, of_network: u32, of_all: u32) -> Plan {
    let clients = [0, 1, 2, 256, 257, 258];
    let asking = clients.map(|key| traffic::of(key, 0, traffic::even(100.0 * times, size.pops)));
    let mut plan = Plan::of(size, 60, traffic::merged(asking.into()));
    let wider = |name: &str, bits: u8, rate: u32| RuleText {
        name: name.into(),
        rate: format!("{rate}/s"),
        burst: rate,
        bits,
        ..RuleText::default()
    };
    plan.setup.rules = vec![RuleText::default(), wider("network", 24, of_network), wider("all", 0, of_all)];
    (plan.setup.keys, plan.setup.slots) = (259, 256);
    plan
}

/// Admissions of all clients together, as a part of those of ideal buckets.
pub fn of_all(world: &World) -> f64 {
    let account = |(rule, _, account)| (rule == 0).then_some(account);
    let sums = world.reference.accounts().filter_map(account).fold((0, 0), |(admitted, ideally), account: &Account| {
        (admitted + account.tally.admitted, ideally + account.ideally)
    });
    sums.0 as f64 / sums.1 as f64
}

/// Admissions while the key was new, as a part of the ideal bucket's.
pub fn while_new(world: &World) -> f64 {
    let admitted = world.reference.between(0, NEW_SECONDS, |sample| sample.tally.admitted);
    admitted / world.reference.between(0, NEW_SECONDS, |sample| sample.ideally)
}
