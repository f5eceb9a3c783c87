//! Rule sets that an operator puts while clients ask: every POP takes them in a stated time, unchanged rules go on as
//! if nothing had happened, and a changed rule is kept from then on.

use fastrand::Rng;
use weir_protocol::time::SECOND_NS;

use super::account::Tally;
use super::faults::{Fault, Schedule, Way};
use super::log::Took;
use super::scenario::{Plan, Size};
use super::setup::{PATHS, RuleText, Setup};
use super::shapes::{Asking, Shape, log_uniform};
use super::traffic;
use super::world::World;

/// The path that the rule counts which is put.
pub(super) const PATH: u8 = 2;
/// Time from the POPs' change to a rule set until the loop settles on it, in nanoseconds.
const SETTLES_NS: u64 = 6 * SECOND_NS;
/// The number of fetches in a row that may be lost; one in fifty is.
const LOST_FETCHES: u32 = 3;
/// Time that a fetch waits for its answer at most, in nanoseconds.
const FETCH_NS_MAX: u64 = 5 * SECOND_NS;
/// Slots of a table in which the rule's client and the others hardly share any.
const SLOTS: u32 = 256;
/// The least part of a quota that is admitted if more is asked for, ...
const LEAST: f64 = 0.93;
/// ... the same under a strict rule, ...
const LEAST_STRICT: f64 = 0.6;
/// ... and the most, ...
const MOST: f64 = 1.03;
/// ... give or take this many times what is under way, and some requests at each POP.
const UNDER_WAY_TIMES: f64 = 3.0;
/// The least burst: with a smaller one, figures depend on the burst more than on the rule set.
const BURST_MIN: u32 = 5;
/// The time at which the rule set is put in the table's rows, in seconds.
const PUT_AT: u64 = 20;

/// A rule set that is put.
#[derive(Clone, Debug)]
pub(super) struct Push {
    /// When, in nanoseconds from the begin of the traffic.
    at: u64,
    /// The client of the rule that changes.
    key: u32,
    /// That rule's tokens per minute before and after; it may not exist before.
    rates: (Option<u32>, u32),
    burst: u32,
    is_strict: bool,
}

impl Push {
    /// Draws one for a world whose first rule gives `rate` tokens a second; its client asks for more than it gets.
    pub(super) fn draw(
        setup: &mut Setup,
        clients: &mut Vec<Asking>,
        faults: &mut Schedule,
        (rate, most, until): (f64, f64, u64),
        rng: &mut Rng,
    ) -> Self {
        let at = rng.u64(5 * SECOND_NS..until / 2);
        // Well below the first rule's rate, since that counts the same requests.
        let high = (rate.min(most) * 60.0 / 3.0) as u32;
        let low = (high / rng.u32(3..6)).max(1);
        let (before, after) = if rng.bool() { (low, high) } else { (high, low) };
        let before = (rng.u8(0..3) > 0).then_some(before);
        let burst = (low / 30).clamp(BURST_MIN, setup.rules[0].burst.max(BURST_MIN));
        let is_strict = setup.rules[0].options.contains(r#""strict""#);
        let of = |rate: u32| RuleText {
            name: "put".into(),
            path: Some(PATHS[usize::from(PATH)]),
            rate: format!("{rate}/m"),
            burst,
            ..RuleText::default()
        };
        let rules = [setup.rules.clone(), vec![of(after)]].concat();
        setup.rules.extend(before.map(of));
        setup.puts = vec![(at, rules)];
        (setup.slots, setup.keeps_log) = (SLOTS, true);
        let asks = (f64::from(high) / 60.0 * log_uniform(1.5, 3.0, rng)).min(most);
        let shape = Shape::Steady { rate: asks, is_zipf: rng.bool() };
        clients.push(Asking { shape, cost: 1, is_mixed: false });
        match rng.u8(0..4) {
            0 => {}
            which => {
                let begin = at - rng.u64(SECOND_NS..4 * SECOND_NS);
                let end = (at + rng.u64(SECOND_NS..6 * SECOND_NS)).min(until);
                let (pop, region) = (rng.usize(0..setup.pops), rng.usize(0..setup.regions));
                let cut = |is_cut| match which {
                    1 | 2 => Fault::CutPop(pop, is_cut),
                    _ => Fault::CutRegion(region, is_cut),
                };
                *faults = vec![(begin, cut(true)), (end, cut(false))];
            }
        }
        Self { at, key: setup.keys, rates: (before, after), burst, is_strict }
    }

    /// The longest until a POP that is in touch runs it, in nanoseconds.
    fn takes_ns(pop: usize, setup: &Setup) -> u64 {
        let way = Way::FromStore(pop);
        // The first two wait for two intervals or answers, each after them twice as long; then an interval passes. One
        // without the store takes longest.
        let answer_ns = setup.store_timeout_ns + 2 * (setup.near.delay_ns + setup.near.jitter_ns);
        let first_ns = 2 * setup.interval_ns.max(answer_ns);
        let lost =
            (0..LOST_FETCHES).map(|n| (first_ns << n.saturating_sub(1)).min(FETCH_NS_MAX) + 2 * setup.interval_ns);
        way.takes_ns(setup) + 2 * setup.interval_ns + lost.sum::<u64>()
    }

    /// Ends the run if a POP takes it late, or the fleet does not keep the quota before or after.
    pub(super) fn check(&self, world: &World, faults: &Schedule, end: u64) {
        self.check_times(world, faults, end);
        let setup = &world.setup;
        let takes_ns = (0..setup.pops).map(|pop| Self::takes_ns(pop, setup)).max().unwrap_or(0);
        let last = faults.iter().map(|(at, _)| *at + setup.recovery_ns()).max().unwrap_or(0);
        let first = faults.first().map_or(self.at, |(at, _)| self.at.min(*at));
        let (before, after) = self.rates;
        if let Some(before) = before {
            self.check_quota(world, before, (SETTLES_NS, first));
        }
        self.check_quota(world, after, (last.max(self.at + takes_ns) + SETTLES_NS, end));
    }

    fn check_times(&self, world: &World, faults: &Schedule, end: u64) {
        let setup = &world.setup;
        for pop in 0..setup.pops {
            for (from, to) in Way::FromStore(pop).whole(faults, setup, end) {
                let due = from.max(self.at) + Self::takes_ns(pop, setup);
                let took = world.took.iter().rev().find(|took| took.pop == pop && took.at <= due);
                if due <= to && took.is_none_or(|took| took.version == 0) {
                    let what = format!("POP {pop} does not run the rule set of {} ms", self.at / 1_000_000);
                    world.label.violated("rule set", due, &what);
                }
            }
        }
    }

    /// The tokens asked for and admitted under the rule in a span of time.
    fn tally(&self, world: &World, (from, to): (u64, u64)) -> Tally {
        let mine = world.log.iter().filter(|logged| logged.path == PATH && logged.key == self.key);
        let mine = mine.filter(|logged| (from..to).contains(&logged.at));
        mine.fold(Tally::default(), |sum, logged| Tally {
            offered: sum.offered + 1,
            admitted: sum.admitted + u64::from(logged.passed),
        })
    }

    /// By how many tokens its client is overdrawn at `now`; a change of the rule leaves as many missing as before.
    fn owes(&self, world: &World, now: u64) -> f64 {
        let (before, after) = (f64::from(self.rates.0.unwrap_or(0)) / 60.0, f64::from(self.rates.1) / 60.0);
        let refilled = |from: u64, to: u64| {
            let of_before = self.at.clamp(from, to) - from;
            (before * of_before as f64 + after * (to - from - of_before) as f64) / 1e9
        };
        let (mut missing, mut at) = (0.0_f64, 0);
        let mine = world.log.iter().filter(|logged| logged.path == PATH && logged.passed);
        for logged in mine.take_while(|logged| logged.at < now) {
            missing = (missing - refilled(at, logged.at)).max(0.0);
            missing += if self.rates.0.is_some() || logged.at >= self.at { 1.0 } else { 0.0 };
            at = logged.at;
        }
        (missing - refilled(at, now) - f64::from(self.burst)).max(0.0)
    }

    fn check_quota(&self, world: &World, rate: u32, (from, to): (u64, u64)) {
        if to < from + 4 * SECOND_NS {
            return;
        }
        let setup = &world.setup;
        let rate = f64::from(rate) / 60.0;
        let seconds = (to - from) as f64 / 1e9;
        let news = (setup.interval_ns + setup.round_trip_ns()) as f64 / 1e9;
        let swing = UNDER_WAY_TIMES * news * rate + f64::from(self.burst) + 2.0 * setup.pops as f64;
        let Tally { offered, admitted } = self.tally(world, (from, to));
        let ideally = (rate * seconds).min(offered as f64);
        let part = if self.is_strict { LEAST_STRICT } else { LEAST };
        // It pays back what it was lent before.
        let ideally = (ideally - self.owes(world, from)).max(0.0);
        let (least, most) = (part * ideally - swing, MOST * rate * seconds + swing);
        let admitted = admitted as f64;
        if admitted < least || admitted > most {
            let what = format!(
                "{rate}/s from {:.1} s on: admitted {admitted} of {offered}, at least {least:.0}, at most {most:.0}, \
                 {self:?}",
                from as f64 / 1e9
            );
            world.label.violated("rule set", to, &what);
        }
    }
}

/// One client asks for five times its rate; another's rule changes from 50/s to 10/s.
pub(super) fn put(size: Size) -> Plan {
    changed(size, [50, 10], [20; 2], 80.0)
}

/// The same from 10/s to 50/s, with two weir-syncs a region.
pub(super) fn raised(size: Size) -> Plan {
    let plan = changed(size, [10, 50], [20; 2], 80.0);
    Plan { setup: Setup { syncs_per_region: 2, ..plan.setup }, ..plan }
}

/// A client that asks for three times the larger rate, and so has hardly anything left, when its quota changes by a
/// factor of ten, burst and all.
pub(super) fn by_ten(size: Size, rates: [u32; 2]) -> Plan {
    changed(size, rates, rates, 300.0)
}

fn changed(size: Size, rates: [u32; 2], bursts: [u32; 2], per_second: f64) -> Plan {
    let contended = traffic::of(0, 0, traffic::even(500.0, size.pops));
    let other = traffic::of(1, PATH, traffic::even(per_second, size.pops));
    let mut plan = Plan::of(size, 90, traffic::merged(vec![contended, other]));
    let [before, after] = [0, 1].map(|of| RuleText {
        name: "put".into(),
        path: Some(PATHS[usize::from(PATH)]),
        rate: format!("{}/s", rates[of]),
        burst: bursts[of],
        ..RuleText::default()
    });
    plan.setup.rules = vec![RuleText::default(), before];
    plan.setup.puts = vec![(PUT_AT * SECOND_NS, vec![RuleText::default(), after])];
    (plan.setup.slots, plan.setup.keeps_log) = (SLOTS, true);
    plan.drained()
}

/// The time from the put until the last POP ran it, in milliseconds.
pub(super) fn taken_ms(world: &World) -> f64 {
    if world.took.len() < world.setup.pops {
        return f64::INFINITY;
    }
    let last = world.took.iter().map(|Took { at, .. }| *at).max().unwrap_or(u64::MAX);
    (last - PUT_AT * SECOND_NS) as f64 / 1e6
}

/// Admissions of its client between two times, in seconds, as a part of `rate`.
fn of_rate(world: &World, rate: f64, (from, to): (u64, u64)) -> f64 {
    let push = Push { at: 0, key: 1, rates: (None, 0), burst: 0, is_strict: false };
    let Tally { admitted, .. } = push.tally(world, (from * SECOND_NS, to * SECOND_NS));
    let (admitted, seconds) = (admitted as f64, (to - from) as f64);
    admitted / (rate * seconds)
}

/// Admissions of its client, as a part of 50/s, before.
pub(super) fn before(world: &World) -> f64 {
    of_rate(world, 50.0, (5, PUT_AT))
}

pub(super) fn after(world: &World) -> f64 {
    of_rate(world, 10.0, (PUT_AT + 10, 90))
}

/// Admissions of its client, as a part of `rate`, in these seconds after the set was put.
pub(super) fn of_new_rate(world: &World, rate: f64, (from, to): (u64, u64)) -> f64 {
    of_rate(world, rate, (PUT_AT + from, PUT_AT + to))
}

/// The same of 50/s, once what it owed at 10/s is paid.
pub(super) fn after_it_is_raised(world: &World) -> f64 {
    of_rate(world, 50.0, (PUT_AT + 20, 90))
}
