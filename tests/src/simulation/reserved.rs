//! Requests that reserve an estimate and state their cost at the end, under loss, crashes and partitions,
//! beside naive models that see all of them at once. Not one may be let through too many, and what is given back
//! can be used again.

use weir_protocol::time::SECOND_NS;

use super::faults::{self, Fault};
use super::network::Link;
use super::pop::{Decision, GoingOn};
use super::scenario::{Plan, Size};
use super::setup::{Ends, RuleText};
use super::traffic;
use super::world::{Event, WARM_UP_NS, World};

/// The refill of a second, and the burst: room for requests in flight.
const RATE: u32 = 1_000;
const BURST: u32 = 4_000;
/// The reservation of each request.
const RESERVE: u32 = 40;
/// The longest time that a request lasts.
const LASTS_NS: u64 = 2 * SECOND_NS;
/// Requests of each second: three times the rate, if they cost half of their reservation,
/// and more than it has if they cost all of it.
const ASKED: f64 = 150.0;
/// For how many seconds, and how many of these, at the end, are without trouble.
const SECONDS: u64 = 100;
const QUIET_SECONDS: u64 = 20;

/// A request that was let through.
pub struct Lasting {
    going_on: Option<GoingOn>,
    pop: usize,
    /// From when to when, in nanoseconds from the begin of the traffic.
    pub span: (u64, u64),
    /// Its cost.
    pub cost: u32,
}

impl World {
    /// A request that has just been let through at `pop` goes on for a while. Ends the run if no event is going to
    /// end it, as the models would not count it.
    pub(super) fn go_on(&mut self, at: u64, pop: usize, decision: &Decision) {
        let Some(Ends { lasts_ns, cost }) = self.setup.ends else { return };
        let begun = self.pops[pop].going_on.len();
        if begun != usize::from(*decision == Decision::Admitted) {
            self.label.violated("ends", at, &format!("{decision:?}, and {begun} requests go on"));
        }
        for going_on in std::mem::take(&mut self.pops[pop].going_on) {
            let (until, cost) = (at + self.rng.u64(0..=lasts_ns), self.rng.u32(0..=cost));
            self.queue.push(WARM_UP_NS + until, Event::Ends(self.lasting.len()));
            let going_on = Some(going_on);
            self.lasting.push(Lasting { going_on, pop, span: (at, until), cost });
        }
    }

    /// One of them ends.
    pub(super) fn end_lasting(&mut self, now: u64, which: usize) {
        let Lasting { going_on, pop, cost, .. } = &mut self.lasting[which];
        if let Some(going_on) = going_on.take() {
            self.pops[*pop].end_request(going_on, *cost, now);
        }
    }

    /// All that go on at a POP end with it, and none of that is reported.
    pub(super) fn end_all_at(&mut self, at: u64, pop: usize) {
        for lasting in self.lasting.iter_mut().filter(|one| one.pop == pop && one.going_on.is_some()) {
            (lasting.going_on, lasting.span.1) = (None, at);
        }
    }
}

fn plan(size: Size, cost: u32) -> Plan {
    let mut plan = Plan::of(size, SECONDS, traffic::even(ASKED, size.pops));
    let options = format!(r#""strict": true, "cost": {{"after": {{"header": "x-tokens"}}, "reserve": {RESERVE}}}"#);
    plan.setup.rules = vec![RuleText { rate: format!("{RATE}/s"), burst: BURST, options, ..RuleText::default() }];
    plan.setup.ends = Some(Ends { lasts_ns: LASTS_NS, cost });
    // What comes back may be taken again: the accounts know of no such thing.
    plan.setup.is_accounted = false;
    plan.setup.near = Link { loss: 0.05, duplication: 0.05, ..plan.setup.near };
    plan
}

/// No request costs more than it reserved.
pub fn given_back(size: Size) -> Plan {
    let mut plan = plan(size, RESERVE);
    plan.faults = faults::one_after_the_other(plan.setup.near, [45, 52]);
    plan.faults.extend([(41 * SECOND_NS, Fault::StoreClock(-1_500_000)), (43 * SECOND_NS, Fault::Reload(0))]);
    plan
}

/// Requests cost up to three times what they reserved, and messages are lost, but none for long.
pub fn debts(size: Size) -> Plan {
    plan(size, 3 * RESERVE)
}

/// By how many tokens an ideal bucket would have been overdrawn at the worst request, if it knew when each begins
/// what it is going to cost.
#[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
pub fn above(world: &World) -> f64 {
    // In thousand-millionths of a token, of which a nanosecond refills RATE.
    let (mut deficit, mut at, mut worst) = (0_u64, 0, 0);
    for Lasting { span: (now, _), cost, .. } in &world.lasting {
        deficit = deficit.saturating_sub((now - at) * u64::from(RATE)) + u64::from(*cost) * SECOND_NS;
        at = *now;
        worst = worst.max(deficit.saturating_sub(u64::from(BURST) * SECOND_NS));
    }
    worst as f64 / SECOND_NS as f64
}

/// The tokens used in the last seconds, which are without trouble, as a part of their refill.
#[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
pub fn used(world: &World) -> f64 {
    let since = (SECONDS - QUIET_SECONDS) * SECOND_NS;
    let costs = world.lasting.iter().filter(|one| one.span.0 >= since).map(|one| u64::from(one.cost));
    costs.sum::<u64>() as f64 / (QUIET_SECONDS * u64::from(RATE)) as f64
}

/// The same over the whole run, in which a burst was there at the beginning.
#[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
pub fn used_in_all(world: &World) -> f64 {
    let costs = world.lasting.iter().map(|one| u64::from(one.cost)).sum::<u64>();
    costs as f64 / (SECONDS * u64::from(RATE) + u64::from(BURST)) as f64
}
