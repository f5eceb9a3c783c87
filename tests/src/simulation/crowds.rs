//! Flash crowds: more clients above their quotas at once than POPs can report every interval.

use fastrand::Rng;
use weir_protocol::time::SECOND_NS;

use super::scenario::{Plan, Size};
use super::setup::RuleText;
use super::traffic::{Arrival, gap_ns};
use super::world::World;

/// Each client's quota, in requests per second, ...
const RATE: u32 = 2;
/// ... and its burst.
const BURST: u32 = 4;
/// Duration of a crowd, in seconds.
const SECONDS: u64 = 20;
/// POPs that a client asks at a time if it moves, and how long it stays, in nanoseconds.
const AT_ONCE: usize = 2;
const STAYS_NS: u64 = SECOND_NS;

/// `keys` clients at twice their quotas, each at all POPs.
pub fn everywhere(size: Size, keys: u32) -> Plan {
    crowd(size, keys, move |rng, _, _| rng.usize(0..size.pops))
}

/// The same, each at two POPs, and a second later at the next two.
pub fn moving(size: Size, keys: u32) -> Plan {
    crowd(size, keys, move |rng, key, at| {
        let moves = usize::try_from(at / STAYS_NS).expect("few moves");
        (key as usize + AT_ONCE * moves + rng.usize(0..AT_ONCE)) % size.pops
    })
}

fn crowd(size: Size, keys: u32, place: impl Fn(&mut Rng, u32, u64) -> usize + 'static) -> Plan {
    let (mut at, per_second) = (0, 2.0 * f64::from(RATE) * f64::from(keys));
    let traffic = Box::new(move |rng: &mut Rng| {
        at += gap_ns(rng, per_second);
        let key = rng.u32(0..keys);
        Some(Arrival { at, pop: place(rng, key, at), key, path: 0, cost: 1 })
    });
    let mut plan = Plan::of(size, SECONDS, traffic);
    plan.setup.rules = vec![RuleText { rate: format!("{RATE}/s"), burst: BURST, ..RuleText::default() }];
    // No slot has more of them than it can watch.
    (plan.setup.keys, plan.setup.slots) = (keys, (2 * keys).next_power_of_two());
    // The bound is for keys that are reported every interval.
    plan.setup.bound = |_, _, _| f64::INFINITY;
    plan
}

/// Bytes on the wire of the POP that has the most, up and down, in thousands a second.
#[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
pub fn kilobytes(world: &World) -> f64 {
    world.wire.bytes_max() as f64 / SECONDS as f64 / 1_000.0
}
