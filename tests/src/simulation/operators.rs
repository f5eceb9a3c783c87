//! The rows of the table in which a key is banned by a penalty, or reset by an operator.

use weir_protocol::time::SECOND_NS;

use super::account::Tally;
use super::scenario::{Plan, Size};
use super::setup::RuleText;
use super::sync::Question;
use super::traffic;
use super::world::World;

/// The time at which the key is reset, in nanoseconds, and the time for which the client goes on asking, in seconds.
const RESET_NS: u64 = 30 * SECOND_NS;
const ASKS_S: u64 = 90;

impl World {
    pub(super) fn operator_resets(&mut self, now: u64) {
        let id = self.reference.id(0, 0);
        self.ask_store(now, 0, Question::Forget(id));
    }
}

/// A client asks for three times its rate, and is reset.
pub fn reset(size: Size) -> Plan {
    let plan = Plan::of(size, ASKS_S, traffic::even(300.0, size.pops));
    plan.with(|setup| setup.reset_at = Some(RESET_NS))
}

/// The effect of the reset: admissions beyond burst + rate x t, in bursts.
pub fn given(world: &World) -> f64 {
    let account = world.reference.account(0, 0);
    let burst = f64::from(account.quota.burst());
    (account.tally.admitted as f64 - account.rate() * ASKS_S as f64 - burst) / burst
}

/// The part of its requests that the other POPs let through while it is banned.
pub fn while_banned(world: &World) -> f64 {
    let pops = &world.reference.account(0, 0).pops;
    passed(pops.iter().take(pops.len() - 1).skip(1).map(|pop| pop.tally))
}

/// For how long the client floods the first POP, which bans it within the first second, in nanoseconds.
const FLOOD_NS: u64 = 2 * SECOND_NS;
/// From when to when it asks the others, which have the ban by then, in nanoseconds.
const EARNED_NS: [u64; 2] = [3 * SECOND_NS, 25 * SECOND_NS];
/// From when on it asks the last POP: the ban is over then.
const FREE_NS: u64 = 35 * SECOND_NS;

/// A client floods one POP, goes on at the others at half of the rate, and is back when its ban is over.
pub fn earned_ban(size: Size) -> Plan {
    let last = size.pops - 1;
    let flood = traffic::between(0, FLOOD_NS, traffic::at_pops(1_000.0, size.pops, |pop| pop == 0));
    let [from, until] = EARNED_NS;
    let others = traffic::at_pops(50.0, size.pops, move |pop| (1..last).contains(&pop));
    let free = traffic::at_pops(50.0, size.pops, move |pop| pop == last);
    let asks = vec![flood, traffic::between(from, until, others), traffic::between(FREE_NS, u64::MAX, free)];
    let penalty = r#""penalty": {"after": 50, "within": "1m", "deny_for": "30s"}"#;
    Plan::of(size, 60, traffic::merged(asks)).under(RuleText::with(penalty)).drained()
}

/// The part that is let through after the ban that it earned.
pub fn after_the_ban(world: &World) -> f64 {
    passed(world.reference.account(0, 0).pops.last().map(|pop| pop.tally).into_iter())
}

fn passed(tallies: impl Iterator<Item = Tally>) -> f64 {
    let Tally { offered, admitted } = tallies.sum();
    admitted as f64 / offered as f64
}
