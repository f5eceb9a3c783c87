//! Windows and logs of strict rules, in the table and in random worlds, beside a naive model that sees every request of
//! all POPs at once and counts without rounding. Whatever goes wrong, no window may be above its limit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fastrand::Rng;
use weir_limiter::sync::ACQUIRES_MAX;
use weir_protocol::refill_policy::LOG_MAX;
use weir_protocol::time::SECOND_NS;

use super::faults::{self, Schedule};
use super::features;
use super::log::Logged;
use super::scenario::{Plan, Size};
use super::setup::{RuleText, Setup};
use super::shapes::{Asking, Shape, log_uniform};
use super::traffic::{self, Traffic};
use super::world::{WARM_UP_NS, World};

/// A random world's windows are at least this many exchanges long: what is drawn as one ends is lost, ...
const EXCHANGES: u64 = 10;
/// ... and at most this long, in seconds, if that is longer.
const LENGTH_S_MAX: f64 = 30.0;
/// The part of requests that are refused because a message is lost, where answers take long: two of each hundred.
const LOST: f64 = 0.02;
/// The allowance for chance beyond it, in standard deviations.
const DEVIATIONS: f64 = 4.0;
/// A request may need this many exchanges as a window ends.
const ENDING_EXCHANGES: u64 = 3;
/// A POP holds one part in this many of a fixed window's count, but at least one token.
const CHUNK_PART: u32 = 1_000;

/// Windows that the fleet shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    /// The number of requests that each lets through, ...
    limit: u32,
    /// ... how long it is, in seconds, ...
    length_s: u32,
    /// ... and what counts in it.
    kind: Kind,
    /// True if more requests may wait at a worker than it lets wait; the others are refused.
    is_crowded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Fixed,
    /// The rest of the one before, too.
    Sliding,
    /// The admissions within the length of one.
    Log,
}

/// A limiter that sees every request of a key.
struct Naive {
    windows: Windows,
    /// For how long more than its length a token of a log counts, in nanoseconds.
    more_ns: u64,
    counts: BTreeMap<u64, u64>,
    /// Of a log, when each was admitted.
    times: VecDeque<u64>,
}

impl Naive {
    fn new(windows: Windows, more_ns: u64) -> Self {
        Self { windows, more_ns, counts: BTreeMap::new(), times: VecDeque::new() }
    }

    /// Counts a request at `at`, in nanoseconds since 1970.
    fn count(&mut self, at: u64) {
        if self.windows.kind == Kind::Log {
            self.times.push_back(at);
        } else {
            *self.counts.entry(at / self.windows.length_ns()).or_default() += 1;
        }
    }

    /// By how many requests the weighed count at `at` is above the limit; below zero if there is room.
    fn above(&mut self, at: u64) -> f64 {
        let Windows { limit, kind, .. } = self.windows;
        let length_ns = self.windows.length_ns();
        if kind == Kind::Log {
            let counts_ns = length_ns + self.more_ns;
            while self.times.pop_front_if(|time| *time + counts_ns <= at).is_some() {}
            return self.times.len() as f64 - f64::from(limit);
        }
        let (window, elapsed) = (at / length_ns, at % length_ns);
        let count = |window: u64| i128::from(self.counts.get(&window).copied().unwrap_or(0));
        let before = if kind == Kind::Sliding { count(window - 1) * i128::from(length_ns - elapsed) } else { 0 };
        let above = before + (count(window) - i128::from(limit)) * i128::from(length_ns);
        above as f64 / length_ns as f64
    }
}

impl Windows {
    /// Draws them for a world's first rule, which becomes the only one.
    pub(super) fn draw(
        setup: &mut Setup,
        clients: &mut [Asking],
        faults: &mut Schedule,
        (rate, most): (f64, f64),
        rng: &mut Rng,
    ) -> Self {
        let news_ns = setup.interval_ns + setup.round_trip_ns();
        let least_s = (EXCHANGES * news_ns) as f64 / 1e9;
        let length_s = log_uniform(least_s, least_s.max(LENGTH_S_MAX), rng).ceil() as u32;
        let asks = (rate * log_uniform(1.0, 10.0, rng)).min(most);
        let limit = (asks * f64::from(length_s) * log_uniform(0.1, 0.9, rng)) as u32 + 1;
        let kind = [Kind::Fixed, Kind::Sliding, Kind::Log][rng.usize(0..3)];
        let limit = if kind == Kind::Log { limit.min(LOG_MAX) } else { limit };
        let windows = Self { limit, length_s, kind, is_crowded: false };
        setup.rules = vec![RuleText { name: setup.rules[0].name.clone(), ..windows.rule() }];
        setup.begins_us += rng.u64(0..windows.length_ns() / 1_000);
        setup.keeps_log = true;
        clients[0].shape = Shape::for_a_count(asks, setup.pops, rng);
        for client in &mut *clients {
            (client.cost, client.is_mixed) = (1, false);
        }
        features::keep_the_stores_clock(faults);
        let waiting: f64 = clients.iter().map(|asking| asking.shape.waiting(setup.round_trip_ns())).sum();
        let at_worker = waiting / setup.workers as f64;
        // Chance decides which worker a request comes to.
        Self { is_crowded: at_worker + 4.0 * at_worker.sqrt() > ACQUIRES_MAX as f64, ..windows }
    }

    /// Ends the run if more is let through than the naive model would let through at any moment, or clearly less in
    /// all.
    pub(super) fn check(self, world: &World, faults: &Schedule, clients: &[Asking], end: u64) {
        for (key, asking) in (0..world.setup.keys).zip(clients) {
            let above = self.above(world, key);
            if above > 0.0 {
                let what = format!("client {key}: {above} admitted above {} in a window", self.limit);
                world.label.violated("windows", end, &what);
            }
            let (admitted, ideally) = self.figures(world, key);
            let lost = LOST * ideally + DEVIATIONS * (LOST * ideally).sqrt();
            let late = self.refused_as_windows_end(world, key, asking.shape);
            let least = ideally - lost - late - self.on_hand(world, key, asking.shape, end);
            if faults.is_empty() && !self.is_crowded && admitted < least.floor() {
                let what = format!("client {key}: {admitted} admitted of {ideally}");
                world.label.violated("windows", end, &what);
            }
        }
    }

    /// Requests refused because a window ended while they waited (docs/budgets.md). Tokens acquired in the last
    /// exchange of a window come too late. Their requests ask for tokens of the next, perhaps too early, and then ask
    /// again. If three exchanges take longer than the time-out, those asked for in one exchange are refused, until the
    /// time-out after the window's end.
    fn refused_as_windows_end(self, world: &World, key: u32, shape: Shape) -> f64 {
        let (length_ns, setup) = (self.length_ns(), &world.setup);
        if self.kind == Kind::Log || ENDING_EXCHANGES * setup.round_trip_ns() <= setup.timeout_ns {
            return 0.0;
        }
        let mut refused = BTreeMap::<u64, f64>::new();
        for (at, _) in logged(world, key).filter(|(_, logged)| !logged.passed) {
            if at % length_ns <= setup.timeout_ns {
                *refused.entry(at / length_ns).or_default() += 1.0;
            }
        }
        let most = shape.waiting(setup.round_trip_ns());
        refused.values().map(|refused| refused.min(most)).sum()
    }

    /// The most that POPs have on hand as windows end (docs/budgets.md). Of a sliding window it counts in the next:
    /// what they were asked for between two reports. Of a log, the POP that a client has just left holds as much, until
    /// its next two reports have given it back.
    fn on_hand(self, world: &World, key: u32, shape: Shape, end: u64) -> f64 {
        let (length_ns, setup) = (self.length_ns(), &world.setup);
        let last_ns = setup.interval_ns + setup.round_trip_ns();
        match (self.kind, shape) {
            (Kind::Fixed, _) => {
                let windows: BTreeSet<_> = logged(world, key).map(|(at, _)| at / length_ns).collect();
                let chunk = (self.limit / CHUNK_PART).max(1) as usize;
                (chunk * setup.pops * windows.len()) as f64
            }
            (Kind::Sliding, _) => {
                logged(world, key).filter(|(at, _)| length_ns - at % length_ns <= last_ns).count() as f64
            }
            (Kind::Log, Shape::Hopping { dwell_ns, .. }) if setup.pops > 1 => {
                let left_at = end / dwell_ns * dwell_ns;
                let asked = left_at.saturating_sub(last_ns)..left_at;
                let is_held = end - left_at < setup.interval_ns + last_ns;
                logged(world, key).filter(|(_, logged)| is_held && asked.contains(&logged.at)).count() as f64
            }
            (Kind::Log, _) => 0.0,
        }
    }

    fn rule(self) -> RuleText {
        let Self { limit, length_s, kind, .. } = self;
        let algorithm = match kind {
            Kind::Fixed => "fixed_window",
            Kind::Sliding => "sliding_window",
            Kind::Log => "sliding_log",
        };
        let options = format!(r#""algorithm": "{algorithm}", "strict": true"#);
        RuleText { rate: format!("{limit}/{length_s}s"), burst: 0, options, ..RuleText::default() }
    }

    fn length_ns(self) -> u64 {
        u64::from(self.length_s) * SECOND_NS
    }

    /// By how many requests the weighed count of client `key` is above the limit, at the worst admission.
    fn above(self, world: &World, key: u32) -> f64 {
        let mut naive = Naive::new(self, 0);
        let admitted = logged(world, key).filter(|(_, logged)| logged.passed);
        let above = admitted.map(|(at, _)| {
            naive.count(at);
            naive.above(at)
        });
        above.fold(0.0, f64::max)
    }

    /// Requests of client `key` that were admitted, and those that the naive model would admit. In a log, a token
    /// counts for longer than it must, by the time from its request to its report (docs/budgets.md).
    fn figures(self, world: &World, key: u32) -> (f64, f64) {
        let Setup { interval_ns, .. } = world.setup;
        let (mut naive, mut admitted, mut ideally) =
            (Naive::new(self, interval_ns + world.setup.round_trip_ns()), 0, 0);
        for (at, logged) in logged(world, key) {
            admitted += u32::from(logged.passed);
            if naive.above(at) <= -1.0 {
                naive.count(at);
                ideally += 1;
            }
        }
        (f64::from(admitted), f64::from(ideally))
    }
}

/// The outcomes of client `key`'s requests, and their times by the store's clock, in nanoseconds since 1970.
fn logged(world: &World, key: u32) -> impl Iterator<Item = (u64, &Logged)> {
    let begins = world.setup.begins_us * 1_000 + WARM_UP_NS;
    world.log.iter().filter(move |logged| logged.key == key).map(move |logged| (begins + logged.at, logged))
}

/// The number of requests that are asked for each second in the table's rows, and for how many seconds.
const ASKED: f64 = 400.0;
pub(super) const SECONDS: u64 = 60;
/// The time at which all of them come to one POP, in the rows that try that.
pub(super) const ALL_AT_ONE_NS: u64 = SECONDS * SECOND_NS - LENGTH_NS;
/// The length of the rows' windows.
const LENGTH_NS: u64 = 5 * SECOND_NS;

const fn of_row(kind: Kind) -> Windows {
    Windows { limit: 500, length_s: (LENGTH_NS / SECOND_NS) as u32, kind, is_crowded: false }
}

/// A minute of `traffic` for one rule, in which everything fails at some time.
pub(super) fn trouble(size: Size, rule: RuleText, traffic: Traffic) -> Plan {
    let plan = Plan::of(size, SECONDS, traffic).under(rule).with(|setup| {
        // The first of the windows begins with the traffic.
        let length_us = LENGTH_NS / 1_000;
        setup.begins_us -= setup.begins_us % length_us + WARM_UP_NS / 1_000 % length_us;
        setup.keeps_log = true;
        (setup.near.loss, setup.near.duplication) = (0.05, 0.05);
    });
    let faults = faults::one_after_the_other(plan.setup.near, [41, 48]);
    plan.hurt(faults)
}

/// A window of five seconds. Every other one is asked for only shortly before it ends: so POPs hold tokens of it
/// when the next one begins, all of whose tokens are asked for.
pub(super) fn fixed(size: Size) -> Plan {
    let is_asked = |at| at % (2 * LENGTH_NS) >= LENGTH_NS * 9 / 10;
    trouble(size, of_row(Kind::Fixed).rule(), traffic::when(traffic::even(ASKED, size.pops), is_asked))
}

pub(super) fn sliding(size: Size) -> Plan {
    trouble(size, of_row(Kind::Sliding).rule(), traffic::even(ASKED, size.pops))
}

/// A log of five seconds. At last all requests come to one POP: it is to get what all get otherwise.
pub(super) fn log(size: Size) -> Plan {
    trouble(size, of_row(Kind::Log).rule(), at_one_in_the_end(size))
}

/// A third of what windows of a second let through, so that some of it comes as each of them ends.
pub(super) fn below(size: Size, kind: Kind) -> Plan {
    let windows = Windows { limit: 1_000, length_s: 1, ..of_row(kind) };
    let plan = Plan::of(size, 22, traffic::between(0, 20 * SECOND_NS, traffic::even(300.0, size.pops)));
    plan.under(windows.rule()).with(|setup| setup.near.loss = 0.0)
}

pub(super) fn at_one_in_the_end(size: Size) -> Traffic {
    let place = |rng: &mut Rng, at, pops| if at < ALL_AT_ONE_NS { rng.usize(0..pops) } else { 1 };
    traffic::poisson(ASKED, move |rng, at| place(rng, at, size.pops))
}

/// By how many requests the fullest window of a row is above the limit, at the worst admission.
pub(super) fn above(world: &World, kind: Kind) -> f64 {
    of_row(kind).above(world, 0)
}

/// Admissions in the length before `end`, as a part of the limit.
fn used_until(world: &World, end: u64) -> f64 {
    let is_then = |at: u64| (end - LENGTH_NS..end).contains(&at);
    let admitted = world.log.iter().filter(|logged| logged.passed && is_then(logged.at)).count();
    admitted as f64 / f64::from(of_row(Kind::Log).limit)
}

/// Admissions before all requests come to one POP, as a part of the limit.
pub(super) fn used_by_all(world: &World) -> f64 {
    used_until(world, ALL_AT_ONE_NS)
}

/// The same when they do; also of the last window, which is without trouble.
pub(super) fn used(world: &World) -> f64 {
    used_until(world, SECONDS * SECOND_NS)
}
