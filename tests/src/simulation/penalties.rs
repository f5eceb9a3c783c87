//! The scenario of the table in which one POP bans a client, and so every other POP does.

use weir_protocol::time::SECOND_NS;

use super::account::Tally;
use super::scenario::{Plan, Size};
use super::setup::RuleText;
use super::traffic;
use super::world::World;

/// For how long the client floods the first POP, which bans it within the first second, in nanoseconds.
const FLOOD_NS: u64 = 2 * SECOND_NS;
/// From when to when it asks the others, which have the ban by then, in nanoseconds.
const BANNED_NS: [u64; 2] = [3 * SECOND_NS, 25 * SECOND_NS];
/// From when on it asks the last POP: the ban is over then.
const FREE_NS: u64 = 35 * SECOND_NS;

/// A client floods one POP, goes on at the others at half of the rate, and is back when its ban is over.
pub fn banned(size: Size) -> Plan {
    let last = size.pops - 1;
    let flood = traffic::between(0, FLOOD_NS, traffic::at_pops(1_000.0, size.pops, |pop| pop == 0));
    let [from, until] = BANNED_NS;
    let others = traffic::at_pops(50.0, size.pops, move |pop| (1..last).contains(&pop));
    let free = traffic::at_pops(50.0, size.pops, move |pop| pop == last);
    let asks = vec![flood, traffic::between(from, until, others), traffic::between(FREE_NS, u64::MAX, free)];
    let mut plan = Plan::of(size, 60, traffic::merged(asks));
    let penalty = r#""penalty": {"after": 50, "within": "1m", "deny_for": "30s"}"#;
    plan.setup.rules = vec![RuleText::with(penalty)];
    Plan { drain_seconds: 15, ..plan }
}

/// The part of its requests that the other POPs let through while it is banned.
pub fn while_banned(world: &World) -> f64 {
    let pops = &world.reference.account(0, 0).pops;
    passed(pops.iter().take(pops.len() - 1).skip(1).map(|pop| pop.tally))
}

/// The part that is let through after that.
pub fn after_the_ban(world: &World) -> f64 {
    passed(world.reference.account(0, 0).pops.last().map(|pop| pop.tally).into_iter())
}

fn passed(tallies: impl Iterator<Item = Tally>) -> f64 {
    let sum = |(offered, admitted): (u64, u64), tally: Tally| (offered + tally.offered, admitted + tally.admitted);
    let (offered, admitted) = tallies.fold((0, 0), sum);
    admitted as f64 / offered as f64
}
