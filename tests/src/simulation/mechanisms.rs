//! The scenarios of the table that need one certain mechanism: each fails if that is taken out
//! (ablations.tsv has the list).

use weir_protocol::time::SECOND_NS;

use super::faults::Fault;
use super::network::Link;
use super::reference::Sample;
use super::scenario::{Plan, Size};
use super::setup::{RuleText, Setup};
use super::traffic;
use super::world::World;

/// The time at which a POP is cut off from its weir-sync, in seconds.
const CUT_AT: u64 = 20;
/// The time at which a POP's link falls silent, ...
const SILENT_AT: [u64; 3] = [10, 25, 40];
/// ... for how long, ...
const SILENT_SECONDS: u64 = 4;
/// ... and how long what comes then is watched, in seconds.
const BUNCH_SECONDS: u64 = 5;
/// The number of times that a POP is cut off with tokens that it leased.
const ROUNDS: u64 = 8;
/// Keys of a crowded slot.
const CROWDED: u32 = 12;
/// Time for which a crowd is watched, in seconds.
const QUIET_SECONDS: u64 = 10;
/// The number of bursts of its own that a POP is asked for, ...
const OWN_BURSTS: u64 = 4;
/// ... and how far apart, in seconds.
const APART: u64 = 10;

/// Five times the rate, over links on which reports overtake each other and arrive again after later ones.
pub fn overtaking(size: Size) -> Plan {
    let mut plan = Plan::of(size, 60, traffic::even(500.0, size.pops));
    plan.setup.near = Link { jitter_ns: 3 * SECOND_NS / 10, duplication: 0.3, ..plan.setup.near };
    Plan { drain_seconds: 15, ..plan }
}

/// Five times the rate everywhere; then the client goes to POP 0, which at that moment loses its
/// weir-sync, with a grant that lets a fifth through.
pub fn lease_ends(size: Size) -> Plan {
    let moves = CUT_AT * SECOND_NS;
    let before = traffic::between(0, moves, traffic::even(500.0, size.pops));
    let after = traffic::between(moves, 60 * SECOND_NS, traffic::even(300.0, 1));
    let plan = Plan::of(size, 50, traffic::merged(vec![before, after]));
    Plan { faults: vec![(moves, Fault::CutPop(0, true))], ..plan }
}

/// Admissions once the lease was over, as a part of the rate.
pub fn own_quota(world: &World) -> f64 {
    let admitted = world.reference.between(30, 50, |sample| sample.tally.admitted);
    admitted / (world.reference.account(0, 0).rate() * 20.0)
}

/// Three times the rate at POP 0 alone, whose link falls silent and then delivers all at once, in order.
pub fn silent_then_a_bunch(size: Size) -> Plan {
    let mut plan = Plan::of(size, 60, traffic::even(300.0, 1));
    plan.setup.near = Link { jitter_ns: 0, loss: 0.0, duplication: 0.0, ..plan.setup.near };
    let silences = SILENT_AT.map(|at| (at * SECOND_NS, Fault::Silence(0, SILENT_SECONDS * SECOND_NS)));
    Plan { faults: silences.to_vec(), ..plan }
}

/// Admissions in the seconds after a silence, as a part of the ideal bucket's; the least of all.
pub fn after_a_bunch(world: &World) -> f64 {
    let after = |at: u64| {
        let of = |figure: fn(&Sample) -> u64| {
            world.reference.between(at + SILENT_SECONDS, at + SILENT_SECONDS + BUNCH_SECONDS, figure)
        };
        of(|sample| sample.tally.admitted) / of(|sample| sample.ideally)
    };
    SILENT_AT.map(after).into_iter().fold(f64::INFINITY, f64::min)
}

/// A burst at every POP; then POP 0 loses its weir-sync, with a grant of a part of the burst, and is asked for
/// bursts of its own when its lease is over.
pub fn lease_ends_after_a_burst(size: Size) -> Plan {
    let (begin, end) = own_bursts_span(size.pops);
    let burst = traffic::between(0, SECOND_NS, traffic::bursts(100, size.pops, end * SECOND_NS));
    let own = traffic::bursts(100, 1, APART * SECOND_NS);
    let own = traffic::between(begin * SECOND_NS, end * SECOND_NS, own);
    let plan = Plan::of(size, end, traffic::merged(vec![burst, own]));
    Plan { faults: vec![(CUT_AT * SECOND_NS, Fault::CutPop(0, true))], ..plan }
}

/// From when to when they are asked for, in seconds: once the debt is paid, and the longest lease is over.
fn own_bursts_span(pops: usize) -> (u64, u64) {
    let begin = pops as u64 + 150;
    (begin, begin + OWN_BURSTS * APART)
}

/// The part of the POP's own bursts that was admitted.
pub fn own_bursts(world: &World) -> f64 {
    let (begin, end) = own_bursts_span(world.setup().pops);
    let of = |figure: fn(&Sample) -> u64| world.reference.between(begin, end, figure);
    of(|sample| sample.tally.admitted) / of(|sample| sample.tally.offered)
}

/// A strict rule. Again and again POP 0 is cut off, at times with tokens on hand that it leased ahead. It is not
/// asked for them until their lease is over; then every POP is asked for a burst.
pub fn strict_lease_ends(size: Size) -> Plan {
    // The burst comes later than any lease ends, and sooner than the POP falls back on the rule.
    let [round, cut, burst, healed] = [15, 8, 12, 13].map(|s| s * SECOND_NS);
    let steady = traffic::when(traffic::even(90.0, 1), move |at| at % round < cut);
    let end = ROUNDS * round;
    let bursts = traffic::between(burst, end, traffic::bursts(100, size.pops, round));
    let mut plan = Plan::of(size, end / SECOND_NS, traffic::merged(vec![steady, bursts]));
    plan.setup.rules = vec![RuleText::with(r#""strict": true"#)];
    let (near, far) = (plan.setup.near, plan.setup.far);
    // With slow links, what refills on the way to the others would hide as many tokens.
    let quick = Link { delay_ns: 1_000_000, jitter_ns: 0, loss: 0.0, duplication: 0.0 };
    let links =
        |at, is_cut, near, far| [Fault::CutPop(0, is_cut), Fault::Near(near), Fault::Far(far)].map(|fault| (at, fault));
    let rounds = (0..ROUNDS)
        .map(|n| n * round)
        .flat_map(|begin| [links(begin + cut, true, quick, quick), links(begin + healed, false, near, far)].concat());
    Plan { faults: rounds.collect(), ..plan }
}

/// More keys than a slot has places for, each of which asks for more than its burst when it comes. Their POP reaches no
/// weir-sync, so all that they get comes from its table.
pub fn crowded_slot(size: Size) -> Plan {
    let asking = (0..CROWDED).map(|key| {
        let at = u64::from(key) * SECOND_NS / 5;
        let bursts = traffic::bursts(30, 1, u64::from(CROWDED) * SECOND_NS / 5);
        traffic::of(key, 0, traffic::between(at, u64::MAX, bursts))
    });
    let mut plan = Plan::of(size, 30, traffic::merged(asking.collect()));
    plan.setup.rules = vec![RuleText { rate: "1/s".into(), burst: 20, ..RuleText::default() }];
    (plan.setup.keys, plan.setup.slots) = (CROWDED, 1);
    plan.faults = vec![(0, Fault::CutPop(0, true))];
    plan
}

/// Clients that stay within their fair share at every POP: they need not be reported.
pub fn quiet_crowd(size: Size) -> Plan {
    let (keys, mut rank) = (10_000, 0);
    let mut requests = traffic::even(3_000.0, size.pops);
    // Each in turn, so that none asks for more than the others.
    let traffic: traffic::Traffic = Box::new(move |rng| {
        rank = (rank + 1) % keys;
        requests(rng).map(|next| traffic::Arrival { key: rank, ..next })
    });
    let plan = Plan::of(size, QUIET_SECONDS, traffic);
    let setup = Setup { keys, is_accounted: false, slots: 1_024, ..plan.setup };
    Plan { setup, ..plan }
}

/// Bytes on the wire of the POP that has the most, in thousands a second.
pub fn kilobytes(world: &World) -> f64 {
    world.wire.bytes_max() as f64 / QUIET_SECONDS as f64 / 1_000.0
}
