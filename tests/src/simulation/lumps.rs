//! The scenarios of the table whose requests come in lumps: bursts everywhere before an honest client's
//! traffic, and requests that cost half of the burst.

use weir_protocol::time::SECOND_NS;

use super::scenario::{Plan, Size};
use super::setup::{BY_COST, RuleText};
use super::traffic::{self, Traffic};
use super::world::World;

/// Time for which an honest client is watched, in seconds.
const HONEST_SECONDS: u64 = 100;
/// Long enough that one expensive request hardly counts, in seconds.
const DEAR_SECONDS: u64 = 300;
/// The cost of an expensive request: half of the burst.
const DEAR: u32 = 50;

/// The burst that every POP of a fleet is asked for: smaller if POPs are few, so that each holds few tokens of what
/// is left to it.
fn burst_of(pops: usize) -> u32 {
    if pops > 100 { 100 } else { 20 }
}

/// The time at which the debt of a burst at every POP is paid, and a little later, in seconds.
fn paid_at(pops: usize) -> u64 {
    u64::from(burst_of(pops)) * pops as u64 / 100 + 10
}

/// One burst at every POP; once it is paid, what an honest client asks for.
pub fn burst_then(size: Size, honest: Traffic) -> Plan {
    let (burst, paid) = (burst_of(size.pops), paid_at(size.pops));
    let end = paid + HONEST_SECONDS;
    let each = usize::try_from(burst).expect("a few tokens");
    let burst_everywhere = traffic::between(0, SECOND_NS, traffic::bursts(each, size.pops, end * SECOND_NS));
    let honest = traffic::between(paid * SECOND_NS, end * SECOND_NS, honest);
    let mut plan = Plan::of(size, end, traffic::merged(vec![burst_everywhere, honest]));
    plan.setup.rules = vec![RuleText { burst, ..RuleText::default() }];
    plan
}

/// The part of the honest client's requests that passed.
pub fn passed_honest(world: &World) -> f64 {
    let begin = paid_at(world.setup().pops);
    let end = begin + HONEST_SECONDS;
    let of = |figure: fn(&super::reference::Sample) -> u64| world.reference.between(begin, end, figure);
    of(|sample| sample.tally.admitted) / of(|sample| sample.tally.offered)
}

/// Nine tenths of the rate, and five requests more at every POP at once every half minute.
pub fn small_bursts(size: Size) -> Plan {
    let bursts = traffic::bursts(5, size.pops, 30 * SECOND_NS);
    Plan::of(size, 240, traffic::merged(vec![traffic::even(90.0, size.pops), bursts]))
}

fn by_cost(size: Size, traffic: Traffic) -> Plan {
    let mut plan = Plan::of(size, DEAR_SECONDS, traffic);
    plan.setup.rules = vec![RuleText::with(BY_COST)];
    plan
}

fn dear(tokens_per_second: f64, pops: usize) -> Traffic {
    traffic::costing(DEAR, traffic::even(tokens_per_second / f64::from(DEAR), pops))
}

/// Requests that each cost half of the burst, for `tokens_per_second` in all, at a number of POPs.
pub fn dear_requests(size: Size, tokens_per_second: f64, pops: usize) -> Plan {
    by_cost(size, dear(tokens_per_second, pops))
}

/// Somewhat more than the rate; half of the tokens go to requests that cost one, half to expensive ones.
pub fn mixed(size: Size, pops: usize) -> Plan {
    by_cost(size, traffic::merged(vec![traffic::even(55.0, pops), dear(55.0, pops)]))
}
