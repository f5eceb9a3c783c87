//! Turns of a queue that the fleet keeps, beside naive models: one of the store, which sees every turn that was
//! given, and one of the upstream, which sees when requests arrive there.

use std::collections::VecDeque;

use weir_budget::escrow::{AcquireRequest, AcquireResult};
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::time::SECOND_NS;

use super::scenario::{Plan, Size};
use super::setup::{Link, RuleText};
use super::traffic;
use super::windows::{ALL_AT_ONE_NS, SECONDS, at_one_in_the_end, trouble};
use super::world::{WARM_UP_NS, World};

/// The number of turns in a second, ...
const RATE: u64 = 100;
/// ... and how many requests may wait for theirs.
const QUEUE: u64 = 50;
/// The demand in the row without trouble, as a multiple of the supply.
const ASKED: f64 = 3.0;
/// For how long the figures are taken at the end, and before all requests come to one POP.
const LOOK_NS: u64 = 5 * SECOND_NS;

const TURN_NS: u64 = SECOND_NS / RATE;
const PLACES_NS: u64 = (QUEUE + 1) * TURN_NS;
/// The delay that a POP adds: times are rounded to whole milliseconds, and it looks every 10 ms whose turn has come.
const POP_NS: u64 = 11_000_000;
/// The delay that clocks that drift add within the longest wait.
const DRIFT_NS: u64 = SECOND_NS / 1_000;

/// A turn that a store gave, in nanoseconds of its clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    drawn_at: u64,
    begins: u64,
    ends: u64,
}

impl Turn {
    /// Those of one draw, if it is by such a law.
    pub(super) fn given(draw: &AcquireRequest, drawn: &AcquireResult) -> Vec<Self> {
        if draw.refill_policy != RefillPolicy::Queue {
            return Vec::new();
        }
        let drawn_at = drawn.now_us * 1_000;
        let mut ends = drawn_at + drawn.deficit_ns;
        let given = drawn.leases.iter().rev().filter(|lease| lease.charged > 0);
        let mut turns: Vec<_> = given
            .map(|lease| {
                let begins = ends - lease.charged * draw.quota.token_ns();
                Self { drawn_at, begins, ends: std::mem::replace(&mut ends, begins) }
            })
            .collect();
        turns.reverse();
        turns
    }
}

fn rule() -> RuleText {
    let options = format!(r#""algorithm": "leaky_bucket", "queue": {QUEUE}, "strict": true"#);
    RuleText { rate: format!("{RATE}/s"), burst: 0, options, ..RuleText::default() }
}

/// Requests at all POPs, three times what there is, and links that only differ in how long they take.
pub(super) fn plain(size: Size) -> Plan {
    let mut plan = Plan::of(size, SECONDS, traffic::even(ASKED * RATE as f64, size.pops));
    plan.setup.rules = vec![rule()];
    plan.setup.keeps_log = true;
    plan.setup.near = Link { loss: 0.0, duplication: 0.0, ..plan.setup.near };
    plan
}

/// Everything fails at some time. At last all requests come to one POP: it is to get what all get otherwise.
pub(super) fn in_trouble(size: Size) -> Plan {
    trouble(size, rule(), at_one_in_the_end(size))
}

/// By how much turns overlap that the store gave, or begin later than the queue has places, in turns.
pub(super) fn above_at_the_store(world: &World) -> f64 {
    let (mut over, mut above) = (0_u64, 0_u64);
    for turn in &world.store.turns {
        above = above.max(over.saturating_sub(turn.begins)).max((turn.ends - turn.drawn_at).saturating_sub(PLACES_NS));
        over = turn.ends;
    }
    turns_in(above)
}

/// By how many turns a request reaches the upstream before its turn at the store, at most: of as many as went on by
/// then, as many turns had begun.
pub(super) fn before_its_turn(world: &World) -> f64 {
    let went_on = went_on(world);
    let begins = world.store.turns.iter().map(|turn| turn.begins - world.setup.begins_us * 1_000);
    turns_in(begins.zip(went_on).map(|(begins, at)| begins.saturating_sub(at)).max().unwrap_or(0))
}

/// By how many turns requests reach the upstream closer to one another than answers that take longer than others
/// explain.
pub(super) fn above_at_the_upstream(world: &World) -> f64 {
    let setup = &world.setup;
    turns_in(closer_ns(world).saturating_sub(setup.near.jitter_ns + setup.far.jitter_ns + POP_NS + DRIFT_NS))
}

/// The same, where an answer may take as long as a request waits for it.
pub(super) fn above_in_trouble(world: &World) -> f64 {
    turns_in(closer_ns(world).saturating_sub(world.setup.timeout_ns + POP_NS + DRIFT_NS))
}

/// Requests at the upstream, as a part of those of a queue that sees each request as it comes.
pub(super) fn beside_a_queue(world: &World) -> f64 {
    let mut ends = VecDeque::new();
    let mut naive = 0_u64;
    for logged in &world.log {
        ends.retain(|end: &u64| *end > logged.at);
        let begins = ends.back().copied().unwrap_or(logged.at);
        if begins + TURN_NS <= logged.at + PLACES_NS {
            ends.push_back(begins + TURN_NS);
            naive += 1;
        }
    }
    part(went_on(world).len(), naive)
}

/// Requests at the upstream before all come to one POP, as a part of the turns there were.
pub(super) fn used_by_all(world: &World) -> f64 {
    used_until(world, ALL_AT_ONE_NS)
}

/// The same when they do.
pub(super) fn used_by_one(world: &World) -> f64 {
    used_until(world, SECONDS * SECOND_NS)
}

fn used_until(world: &World, end: u64) -> f64 {
    let is_then = |at: &&u64| (end - LOOK_NS..end).contains(&(**at - WARM_UP_NS));
    part(went_on(world).iter().filter(is_then).count(), LOOK_NS / TURN_NS)
}

/// The times at which requests reached the upstream.
fn went_on(world: &World) -> Vec<u64> {
    let mut times: Vec<_> = world.pops.iter().flat_map(|pop| pop.went_on.iter().copied()).collect();
    times.sort_unstable();
    times
}

/// The least time for which it holds that in any time t no more than 1 + (t + this) / turn requests reached the
/// upstream.
fn closer_ns(world: &World) -> u64 {
    let (mut first, mut closer) = (i128::MAX, 0);
    for (turns, at) in (0_i128..).zip(went_on(world)) {
        let ahead = turns * i128::from(TURN_NS) - i128::from(at);
        first = first.min(ahead);
        closer = closer.max(ahead - first);
    }
    u64::try_from(closer).unwrap_or(u64::MAX)
}

fn turns_in(ns: u64) -> f64 {
    ns as f64 / TURN_NS as f64
}

fn part(part: usize, whole: u64) -> f64 {
    part as f64 / whole as f64
}
