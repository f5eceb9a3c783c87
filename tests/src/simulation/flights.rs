//! Requests in flight that the fleet counts, and requests that reserve an estimate and state their cost at the end,
//! under loss, crashes and partitions, beside naive models that see all POPs at once.

use weir_protocol::time::SECOND_NS;

use super::faults::{self, Fault};
use super::pop::{Decision, GoingOn};
use super::scenario::{Plan, Size};
use super::setup::{Ends, RuleText};
use super::traffic;
use super::windows::{self, ALL_AT_ONE_NS, at_one_in_the_end, trouble};
use super::world::{Event, WARM_UP_NS, World};

/// The limit of requests in flight. Of 400 that come each second, some 400 would be.
const LIMIT: i32 = 100;
/// The longest time that a request takes.
const LASTS_NS_MAX: u64 = 2 * SECOND_NS;
/// For how long the figures are taken.
const LOOK_NS: u64 = 3 * SECOND_NS;

/// At last all requests come to one POP: it is to get what all get otherwise.
pub(super) fn concurrency(size: Size) -> Plan {
    let options = format!(
        r#""algorithm": "concurrency", "limit": {LIMIT}, "expires_after_s": {}, "strict": true"#,
        LASTS_NS_MAX / SECOND_NS + 1
    );
    let rule = RuleText { rate: String::new(), burst: 0, options, ..RuleText::default() };
    let plan = trouble(size, rule, at_one_in_the_end(size));
    plan.with(|setup| setup.ends = Some(Ends { lasts_ns: LASTS_NS_MAX, cost: 0 }))
}

/// By how many the most that were in flight at once are above the limit.
pub(super) fn above_limit(world: &World) -> f64 {
    let ends = |Lasting { span: (from, to), .. }: &Lasting| [(*from, 1), (*to, -1)];
    let mut changes: Vec<_> = world.lasting.iter().flat_map(ends).collect();
    changes.sort_unstable();
    let in_flight = changes.iter().scan(0_i32, |in_flight, (_, change)| {
        *in_flight += change;
        Some(*in_flight)
    });
    f64::from((in_flight.max().unwrap_or(0) - LIMIT).max(0))
}

/// The number in flight before all requests come to one POP, as a part of the limit.
pub(super) fn used_by_all(world: &World) -> f64 {
    used_until(world, ALL_AT_ONE_NS)
}

/// The same when they do.
pub(super) fn used_by_one(world: &World) -> f64 {
    used_until(world, windows::SECONDS * SECOND_NS)
}

fn used_until(world: &World, end: u64) -> f64 {
    let begin = end - LOOK_NS;
    let within = |Lasting { span: (from, to), .. }: &Lasting| (*to).min(end).saturating_sub((*from).max(begin));
    let sum: u64 = world.lasting.iter().map(within).sum();
    sum as f64 / LOOK_NS as f64 / f64::from(LIMIT)
}

/// The refill of a second, and the burst: room for requests in flight.
const RATE: u32 = 1_000;
const BURST: u32 = 4_000;
/// The reservation of each request.
const RESERVE: u32 = 40;
/// Requests of each second: three times the rate, if they cost half of their reservation,
/// and more than it has if they cost all of it.
const ASKED: f64 = 150.0;
/// For how many seconds, and how many of these, at the end, are without trouble.
const RESERVED_SECONDS: u64 = 100;
const QUIET_SECONDS: u64 = 20;

/// A request that was let through.
pub(super) struct Lasting {
    going_on: Option<GoingOn>,
    pop: usize,
    /// From when to when, in nanoseconds from the begin of the traffic.
    pub(super) span: (u64, u64),
    pub(super) cost: u32,
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
            self.due(WARM_UP_NS + until, Event::Ends(self.lasting.len()));
            let going_on = Some(going_on);
            self.lasting.push(Lasting { going_on, pop, span: (at, until), cost });
        }
    }

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

fn reserving(size: Size, cost: u32) -> Plan {
    let options = format!(r#""strict": true, "cost": {{"after": {{"header": "x-tokens"}}, "reserve": {RESERVE}}}"#);
    let rule = RuleText { rate: format!("{RATE}/s"), burst: BURST, options, ..RuleText::default() };
    Plan::of(size, RESERVED_SECONDS, traffic::even(ASKED, size.pops)).under(rule).with(|setup| {
        setup.ends = Some(Ends { lasts_ns: LASTS_NS_MAX, cost });
        // What comes back may be taken again: the accounts know of no such thing.
        setup.is_accounted = false;
        (setup.near.loss, setup.near.duplication) = (0.05, 0.05);
    })
}

/// No request costs more than it reserved.
pub(super) fn given_back(size: Size) -> Plan {
    let mut plan = reserving(size, RESERVE);
    plan.faults = faults::one_after_the_other(plan.setup.near, [45, 52]);
    plan.faults.extend([(41 * SECOND_NS, Fault::StoreClock(-1_500_000)), (43 * SECOND_NS, Fault::Reload(0))]);
    plan
}

/// Requests cost up to three times what they reserved, and messages are lost, but none for long.
pub(super) fn debts(size: Size) -> Plan {
    reserving(size, 3 * RESERVE)
}

/// By how many tokens an ideal bucket would have been overdrawn at the worst request, if it knew when each begins
/// what it is going to cost.
pub(super) fn overdrawn(world: &World) -> f64 {
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
pub(super) fn used(world: &World) -> f64 {
    let since = (RESERVED_SECONDS - QUIET_SECONDS) * SECOND_NS;
    let costs = world.lasting.iter().filter(|one| one.span.0 >= since).map(|one| u64::from(one.cost));
    costs.sum::<u64>() as f64 / (QUIET_SECONDS * u64::from(RATE)) as f64
}

/// The same over the whole run, in which a burst was there at the beginning.
pub(super) fn used_in_all(world: &World) -> f64 {
    let costs = world.lasting.iter().map(|one| u64::from(one.cost)).sum::<u64>();
    costs as f64 / (RESERVED_SECONDS * u64::from(RATE) + u64::from(BURST)) as f64
}
