//! Windows and logs that the fleet shares, under loss, crashes and partitions, beside naive models that see every
//! admission of all POPs at once and count without rounding. Not one may be above its limit.

use std::collections::BTreeMap;

use fastrand::Rng;
use weir_protocol::time::SECOND_NS;

use super::faults;
use super::network::Link;
use super::scenario::{Plan, Size};
use super::setup::RuleText;
use super::traffic::{self, Traffic};
use super::world::{WARM_UP_NS, World};

/// The length of the windows, in seconds, ...
const LENGTH_S: u64 = 5;
/// ... how many requests each lets through, ...
const LIMIT: u64 = 500;
/// ... how many are asked for each second, ...
const ASKED: f64 = 400.0;
/// ... and for how many seconds.
pub(super) const SECONDS: u64 = 60;

/// The time at which all of them come to one POP, in the rows that try that.
pub(super) const ALL_AT_ONE_NS: u64 = (SECONDS - LENGTH_S) * SECOND_NS;

const LENGTH_NS: u64 = LENGTH_S * SECOND_NS;
const LENGTH_US: u64 = LENGTH_NS / 1_000;

fn by(size: Size, algorithm: &str, traffic: Traffic) -> Plan {
    let options = format!(r#""algorithm": "{algorithm}", "strict": true"#);
    let rate = format!("{LIMIT}/{LENGTH_S}s");
    trouble(size, RuleText { rate, burst: 0, options, ..RuleText::default() }, traffic)
}

/// A minute of `traffic` for one rule, in which everything fails at some time.
pub(super) fn trouble(size: Size, rule: RuleText, traffic: Traffic) -> Plan {
    let mut plan = Plan::of(size, SECONDS, traffic);
    // The first of the windows begins with the traffic.
    plan.setup.begins_us -= plan.setup.begins_us % LENGTH_US + WARM_UP_NS / 1_000 % LENGTH_US;
    plan.setup.rules = vec![rule];
    plan.setup.keeps_log = true;
    plan.setup.near = Link { loss: 0.05, duplication: 0.05, ..plan.setup.near };
    plan.faults = faults::one_after_the_other(plan.setup.near, [41, 48]);
    plan
}

/// A window of five seconds. Every other one is asked for only shortly before it ends: so POPs hold tokens of it
/// when the next one begins, all of whose tokens are asked for.
pub fn fixed(size: Size) -> Plan {
    let is_asked = |at| at % (2 * LENGTH_NS) >= LENGTH_NS * 9 / 10;
    by(size, "fixed_window", traffic::when(traffic::even(ASKED, size.pops), is_asked))
}

/// The same, which slides.
pub fn sliding(size: Size) -> Plan {
    by(size, "sliding_window", traffic::even(ASKED, size.pops))
}

/// A log of five seconds. At last all requests come to one POP: it is to get what all get otherwise.
pub fn log(size: Size) -> Plan {
    by(size, "sliding_log", at_one_in_the_end(size))
}

/// A third of what windows of a second let through, so that some of it comes as each of them ends.
pub fn below(size: Size, algorithm: &str) -> Plan {
    let mut plan = Plan::of(size, 22, traffic::between(0, 20 * SECOND_NS, traffic::even(300.0, size.pops)));
    let options = format!(r#""algorithm": "{algorithm}", "strict": true"#);
    plan.setup.rules = vec![RuleText { rate: "1000/s".into(), burst: 0, options, ..RuleText::default() }];
    plan.setup.near.loss = 0.0;
    plan
}

pub(super) fn at_one_in_the_end(size: Size) -> Traffic {
    let place = |rng: &mut Rng, at, pops| if at < ALL_AT_ONE_NS { rng.usize(0..pops) } else { 1 };
    traffic::poisson(ASKED, move |rng, at| place(rng, at, size.pops))
}

/// The time of the store's clock at the begin of the traffic, in nanoseconds since 1970.
fn begins_ns(world: &World) -> u128 {
    u128::from(world.setup().begins_us) * 1_000 + u128::from(WARM_UP_NS)
}

/// The windows and moments of all admissions: a window's number, and how much of it is over.
fn admissions(world: &World) -> impl Iterator<Item = (u128, u128)> {
    let (begins, length) = (begins_ns(world), u128::from(LENGTH_NS));
    let passed = world.log.iter().filter(|logged| logged.passed);
    passed.map(move |logged| begins + u128::from(logged.at)).map(move |at| (at / length, at % length))
}

/// By how many requests the fullest window is above the limit.
pub fn above_fixed(world: &World) -> f64 {
    let mut counts = BTreeMap::<u128, u64>::new();
    for (window, _) in admissions(world) {
        *counts.entry(window).or_default() += 1;
    }
    counts.values().map(|count| count.saturating_sub(LIMIT)).max().unwrap_or(0) as f64
}

/// By how many requests the weighed count is above the limit, at the worst admission.
pub fn above_sliding(world: &World) -> f64 {
    let (mut counts, mut above) = (BTreeMap::<u128, u128>::new(), 0_u128);
    let length = u128::from(LENGTH_NS);
    for (window, elapsed) in admissions(world) {
        *counts.entry(window).or_default() += 1;
        let count = |window: u128| counts.get(&window).copied().unwrap_or(0);
        let weighed = count(window - 1) * (length - elapsed) + count(window) * length;
        above = above.max(weighed.saturating_sub(u128::from(LIMIT) * length));
    }
    above as f64 / length as f64
}

/// By how many requests the fullest span of a log's length is above the limit.
pub fn above_log(world: &World) -> f64 {
    let mut times: Vec<_> = world.log.iter().filter(|logged| logged.passed).map(|logged| logged.at).collect();
    times.sort_unstable();
    let first_within = |at: u64| times.partition_point(|time| time + LENGTH_NS <= at);
    let fullest = times.iter().zip(1..).map(|(at, up_to)| up_to - first_within(*at)).max().unwrap_or(0);
    fullest.saturating_sub(usize::try_from(LIMIT).unwrap_or(0)) as f64
}

/// Admissions in the length before all requests come to one POP, as a part of the limit.
pub fn used_by_all(world: &World) -> f64 {
    used_until(world, ALL_AT_ONE_NS)
}

/// The same when they do.
pub fn used_by_one(world: &World) -> f64 {
    used_until(world, SECONDS * SECOND_NS)
}

fn used_until(world: &World, end: u64) -> f64 {
    let is_then = |at: u64| (end - LENGTH_NS..end).contains(&at);
    world.log.iter().filter(|logged| logged.passed && is_then(logged.at)).count() as f64 / LIMIT as f64
}

/// Admissions of the last window, which is without trouble, as a part of the limit.
pub fn used(world: &World) -> f64 {
    let end = (begins_ns(world) + u128::from(SECONDS * SECOND_NS)) / u128::from(LENGTH_NS);
    let quiet = admissions(world).filter(|(window, _)| *window == end - 1).count();
    quiet as f64 / LIMIT as f64
}
