//! The rows of the table in which a key is banned, by a penalty or by an operator, or reset.

use weir_protocol::time::SECOND_NS;

use super::account::Tally;
use super::scenario::{Plan, Size};
use super::setup::RuleText;
use super::sync::Question;
use super::traffic;
use super::world::World;

/// An operator's action on the first client under the first rule, at the first weir-sync.
#[derive(Clone, Copy, Debug)]
pub enum OperatorAction {
    /// It is banned for this number of milliseconds.
    Ban(u32),
    /// It is reset; a ban is lifted by that, too.
    Reset,
}

/// The time at which the key is reset, in nanoseconds, and the time for which the client goes on asking, in seconds.
const RESET_NS: u64 = 30 * SECOND_NS;
const ASKS_S: u64 = 90;
/// The times at which the operator bans and lifts, in nanoseconds.
const BANNED_NS: [u64; 2] = [5 * SECOND_NS, 25 * SECOND_NS];
/// Time until it is in force at POPs: an interval until their weir-sync asks the store, one until they report,
/// and both trips, 0.6 s in all. If a message is lost, its report first times out after a second, and the next goes
/// an interval later.
const IN_FORCE_NS: u64 = 2 * SECOND_NS;
/// Longer than the run, in milliseconds.
const BAN_MS: u32 = 600_000;

impl World {
    pub(super) fn operator_acts(&mut self, now: u64, which: usize) {
        let (_, action) = self.setup.operator_actions[which];
        let id = self.reference.id(0, 0);
        match action {
            OperatorAction::Ban(for_ms) => {
                let (hub, time) = self.syncs[0].hub(now);
                hub.ban(time, id, for_ms);
                self.share_bans(now, 0);
            }
            OperatorAction::Reset => self.ask_store(now, 0, Question::Forget(id)),
        }
    }
}

/// A client asks for three times its rate, and is reset.
pub fn reset(size: Size) -> Plan {
    let plan = Plan::of(size, ASKS_S, traffic::even(300.0, size.pops));
    plan.with(|setup| setup.operator_actions = vec![(RESET_NS, OperatorAction::Reset)])
}

/// A client asks for half its rate at every POP in turn, is banned, and the ban is lifted.
pub fn banned(size: Size) -> Plan {
    let last = size.pops - 1;
    let [banned, lifted] = BANNED_NS;
    let asks = |is_there: fn(usize, usize) -> bool| traffic::at_pops(50.0, size.pops, move |pop| is_there(pop, last));
    let first = traffic::between(0, banned, asks(|pop, _| pop == 0));
    let others = traffic::between(banned + IN_FORCE_NS, lifted, asks(|pop, last| pop != 0 && pop != last));
    let free = traffic::between(lifted + IN_FORCE_NS, u64::MAX, asks(|pop, last| pop == last));
    let actions = vec![(banned, OperatorAction::Ban(BAN_MS)), (lifted, OperatorAction::Reset)];
    let plan = Plan::of(size, 60, traffic::merged(vec![first, others, free]));
    plan.with(|setup| setup.operator_actions = actions).drained()
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

/// The part that is let through before it, and once it is lifted.
pub fn before_and_after(world: &World) -> f64 {
    let pops = &world.reference.account(0, 0).pops;
    passed(pops.first().into_iter().chain(pops.last()).map(|pop| pop.tally))
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
