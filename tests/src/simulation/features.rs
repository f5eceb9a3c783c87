//! Features of some random worlds beside quotas: penalties, the calendar, windows that the fleet shares, and a rule
//! set that is replaced.
//!
//! They are drawn with a salt of their own, so a world that tries none of them is as if there were no such thing.

use std::collections::BTreeMap;

use fastrand::Rng;
use weir_protocol::time::SECOND_NS;

use super::account::Tally;
use super::bans::Penalty;
use super::faults::{Fault, Schedule};
use super::log::Logged;
use super::pushes::Push;
use super::scenario::{Plan, Size};
use super::setup::{RuleText, Setup};
use super::shapes::{Asking, Shape, log_uniform};
use super::traffic;
use super::windows::Windows;
use super::world::{WARM_UP_NS, World};

/// One world in this many tries one of these, and no other trial.
const ONE_IN: u32 = 8;
const SALT: u64 = 0x0049_5353_5545_3133;

/// The feature that a world tries.
#[derive(Clone, Debug)]
pub(super) enum Feature {
    /// A client earns bans.
    Penalty(Penalty),
    Turn(Turn),
    Windows(Windows),
    /// A rule set is put.
    Push(Push),
}

/// The world that it is drawn for.
#[derive(Clone, Copy, Debug)]
pub(super) struct For {
    /// Tokens per second of the first rule, ...
    pub(super) rate: f64,
    /// ... and at once.
    pub(super) burst: u32,
    /// The most that a client asks for, in requests per second.
    pub(super) most: f64,
    /// The length of traffic, in seconds.
    pub(super) seconds: u64,
    /// The last time at which something may go wrong, in nanoseconds.
    pub(super) until: u64,
}

impl Feature {
    pub(super) fn is_tried(seed: u64) -> bool {
        generator(seed).u32(0..ONE_IN) == 0
    }

    pub(super) fn draw(setup: &mut Setup, clients: &mut Vec<Asking>, faults: &mut Schedule, of: For) -> Self {
        let mut rng = generator(!setup.seed);
        let For { rate, burst, most, seconds, until } = of;
        match rng.u32(0..5) {
            0 => Self::Penalty(Penalty::draw(setup, clients, (rate, burst, most), &mut rng)),
            1 => Self::Turn(Turn::draw(setup, clients, faults, (rate, most, seconds), &mut rng)),
            2 | 3 => Self::Windows(Windows::draw(setup, clients, faults, (rate, most), &mut rng)),
            _ => Self::Push(Push::draw(setup, clients, faults, (rate, most, until), &mut rng)),
        }
    }

    /// True if admissions can be compared with an ideal limiter that has the first rules.
    pub(super) fn compares(&self) -> bool {
        matches!(self, Self::Push(_))
    }

    /// Ends the run if it differs from the rule set. `end` is when the traffic of `clients` ends, in nanoseconds.
    pub(super) fn check(&self, world: &World, faults: &Schedule, clients: &[Asking], end: u64) {
        match self {
            Self::Penalty(penalty) => penalty.check(world, faults, end),
            Self::Turn(turn) => turn.check(world, faults, end),
            Self::Windows(windows) => windows.check(world, faults, clients, end),
            Self::Push(push) => push.check(world, faults, end),
        }
    }
}

fn generator(seed: u64) -> Rng {
    Rng::with_seed(seed.rotate_left(17) ^ SALT)
}

/// Midnights that end a month, in days since 1970: February in a leap year and in none, April, and a year.
const MONTHS: [u64; 4] = [11_017, 11_382, 11_443, 11_688];
const DAY_US: u64 = 86_400_000_000;
/// The part that a POP has on hand ahead: the count divided by this, at least a token.
const AHEAD_PARTS: u64 = 1_000;
/// The demand of a window, in multiples of its count, from which it is checked for having given all.
const ASKED_FOR_TIMES: u64 = 2;
/// Time that a POP takes for its first token of a day, beside an exchange, in nanoseconds.
const OPENS_NS: u64 = SECOND_NS / 5;
/// The time of midnight in the table's row, in seconds.
const MIDNIGHT_AT: u64 = 30;
/// The tokens of a day in the table's row.
const ROW_COUNT: u32 = 20_000;

/// A quota of the calendar, and a midnight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// When, in nanoseconds from the begin of the traffic.
    at: u64,
    /// The tokens until then, and again after it.
    count: u32,
}

impl Turn {
    /// Draws one for a world's first rule, which becomes the only one.
    pub(super) fn draw(
        setup: &mut Setup,
        clients: &mut [Asking],
        faults: &mut Schedule,
        (rate, most, seconds): (f64, f64, u64),
        rng: &mut Rng,
    ) -> Self {
        let at = rng.u64(seconds / 3..2 * seconds / 3) * SECOND_NS;
        let asks = (rate * log_uniform(1.0, 10.0, rng)).min(most);
        let count = (asks * (at / SECOND_NS) as f64 * log_uniform(0.1, 0.9, rng)) as u32 + 1;
        setup.rules.truncate(1);
        let is_month = rng.bool();
        let rule = &mut setup.rules[0];
        (rule.rate, rule.burst) = (format!("{count}/{}", if is_month { "month" } else { "day" }), 0);
        rule.options = r#""algorithm": "quota", "on_sync_loss": "deny""#.into();
        setup.begins_us = midnight_us(is_month, rng) - (WARM_UP_NS + at) / 1_000;
        setup.keeps_log = true;
        clients[0].shape = Shape::for_a_count(asks, setup.pops, rng);
        for client in clients {
            (client.cost, client.is_mixed) = (1, false);
        }
        keep_the_stores_clock(faults);
        Self { at, count }
    }

    /// Ends the run if a window admits more or less than its count, or begins late.
    pub(super) fn check(&self, world: &World, faults: &Schedule, end: u64) {
        for key in 0..world.setup.keys {
            let log: Vec<_> = world.log.iter().filter(|logged| logged.key == key).copied().collect();
            for span in [(0, self.at), (self.at, end)] {
                let Tally { admitted, .. } = tally(&log, span);
                if admitted > u64::from(self.count) {
                    let what = format!("client {key}: {admitted} admitted in one window of {}", self.count);
                    world.label.violated("quota", span.1, &what);
                }
                if faults.is_empty() {
                    self.gives_all(world, &log, span);
                }
            }
            if faults.is_empty() {
                self.opens(world, &log);
            }
        }
    }

    /// All that is asked for often enough is given, except what is on hand at POPs that are no longer asked.
    fn gives_all(&self, world: &World, log: &[Logged], span: (u64, u64)) {
        let Tally { offered, admitted } = tally(log, span);
        let count = u64::from(self.count);
        let on_hand = on_hand(&world.setup, log, span, count);
        if offered >= ASKED_FOR_TIMES * count + on_hand && admitted + on_hand < count {
            let what = format!("client {}: {admitted} admitted of {count}, asked for {offered}", log[0].key);
            world.label.violated("quota", span.1, &what);
        }
    }

    /// After midnight, a request is let through in time.
    fn opens(&self, world: &World, log: &[Logged]) {
        let setup = &world.setup;
        // One draw in fifty is lost, and now and then the next one, too.
        let takes_ns = 2 * (setup.timeout_ns + setup.interval_ns) + 2 * setup.round_trip_ns() + OPENS_NS;
        let mut after = log.iter().filter(|logged| logged.at >= self.at);
        let Some(first) = after.clone().next() else { return };
        let by = first.at.max(self.at) + takes_ns;
        let asked_later = after.clone().any(|logged| logged.at > by - setup.interval_ns);
        let tries = after.clone().filter(|logged| logged.at <= by).count();
        if asked_later && tries > 2 && !after.any(|logged| logged.passed && logged.at <= by) {
            let what = format!("client {} is let through nowhere by then, after {} ms", first.key, self.at / 1_000_000);
            world.label.violated("quota", by, &what);
        }
    }
}

/// Takes the faults out under which a window has no exact count: if the store's clock steps, it ends at another
/// time, and what the store loses is given again.
pub(super) fn keep_the_stores_clock(faults: &mut Schedule) {
    let moves = |fault: &Fault| matches!(fault, Fault::StoreClock(_) | Fault::StoreLoses(_) | Fault::StoreFlushed);
    faults.retain(|(_, fault)| !moves(fault));
}

/// The tokens that POPs may have on hand for a client that has left: a part of the count, and the demand
/// between a report and the answer to the next.
fn on_hand(setup: &Setup, log: &[Logged], (from, to): (u64, u64), count: u64) -> u64 {
    let news_ns = setup.interval_ns + setup.round_trip_ns();
    let mut asked = BTreeMap::<(usize, u64), u64>::new();
    for logged in log.iter().filter(|logged| (from..to).contains(&logged.at)) {
        *asked.entry((logged.pop, logged.at / news_ns)).or_default() += 1;
    }
    let most = |pop: usize| asked.range((pop, 0)..=(pop, u64::MAX)).map(|(_, asked)| *asked).max().unwrap_or(0);
    (0..setup.pops).map(|pop| 2 * most(pop) + 2 * (count / AHEAD_PARTS).max(1)).sum()
}

fn midnight_us(is_month: bool, rng: &mut Rng) -> u64 {
    let day = if is_month { MONTHS[rng.usize(0..MONTHS.len())] } else { MONTHS[0] + rng.u64(0..1_000) };
    day * DAY_US
}

fn tally(log: &[Logged], (from, to): (u64, u64)) -> Tally {
    let there = log.iter().filter(|logged| (from..to).contains(&logged.at));
    there.fold(Tally::default(), |sum, logged| Tally {
        offered: sum.offered + 1,
        admitted: sum.admitted + u64::from(logged.passed),
    })
}

/// A client that asks for more than a day has, before midnight and after.
pub(super) fn midnight(size: Size) -> Plan {
    let mut plan = Plan::of(size, 2 * MIDNIGHT_AT, traffic::even(2_000.0, size.pops));
    let options = r#""algorithm": "quota""#.into();
    plan.setup.rules = vec![RuleText { rate: format!("{ROW_COUNT}/day"), burst: 0, options, ..RuleText::default() }];
    plan.setup.begins_us = MONTHS[0] * DAY_US - (WARM_UP_NS / 1_000 + MIDNIGHT_AT * 1_000_000);
    plan.setup.keeps_log = true;
    plan
}

fn of_count(world: &World, span: (u64, u64)) -> f64 {
    tally(&world.log, span).admitted as f64 / f64::from(ROW_COUNT)
}

/// The tokens admitted before midnight, as a part of the day's.
pub(super) fn before(world: &World) -> f64 {
    of_count(world, (0, MIDNIGHT_AT * SECOND_NS))
}

pub(super) fn after(world: &World) -> f64 {
    of_count(world, (MIDNIGHT_AT * SECOND_NS, u64::MAX))
}

/// Time from midnight until the first request passes, in milliseconds.
pub(super) fn opens_ms(world: &World) -> f64 {
    let at = MIDNIGHT_AT * SECOND_NS;
    let first = world.log.iter().find(|logged| logged.passed && logged.at >= at);
    first.map_or(f64::INFINITY, |logged| (logged.at - at) as f64 / 1e6)
}
