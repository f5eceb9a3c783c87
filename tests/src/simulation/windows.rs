//! Windows that the fleet shares, under loss, crashes and partitions, beside naive models that see every admission of
//! all POPs at once and count without rounding. Not one may be above its limit.

use std::collections::BTreeMap;

use weir_wire::time::SECOND_NS;

use super::faults::Fault;
use super::network::Link;
use super::scenario::{Plan, Size};
use super::setup::RuleText;
use super::traffic;
use super::world::{WARM_UP_NS, World};

/// How long the windows are, in seconds, ...
const LENGTH_S: u64 = 5;
/// ... how many requests each lets through, ...
const LIMIT: u64 = 500;
/// ... how many are asked for each second, ...
const ASKED: f64 = 400.0;
/// ... and for how many seconds.
const SECONDS: u64 = 60;

const LENGTH_NS: u64 = LENGTH_S * SECOND_NS;

fn trouble(size: Size, algorithm: &str) -> Plan {
    let mut plan = Plan::of(size, SECONDS, traffic::even(ASKED, size.pops));
    let options = format!(r#""algorithm": "{algorithm}", "strict": true"#);
    let rate = format!("{LIMIT}/{LENGTH_S}s");
    plan.setup.rules = vec![RuleText { rate, burst: 0, options, ..RuleText::default() }];
    plan.setup.keeps_log = true;
    plan.setup.near = Link { loss: 0.05, duplication: 0.05, ..plan.setup.near };
    let at = |seconds: u64| seconds * SECOND_NS;
    plan.faults = vec![
        (at(7), Fault::CutPop(0, true)),
        (at(13), Fault::CutPop(0, false)),
        (at(16), Fault::PopCrash(1)),
        (at(18), Fault::PopStart(1)),
        (at(21), Fault::Silence(2, 3 * SECOND_NS)),
        (at(26), Fault::CutRegion(0, true)),
        (at(33), Fault::CutRegion(0, false)),
        (at(36), Fault::SyncCrash(0)),
        (at(38), Fault::SyncStart(0)),
        (
            at(41),
            Fault::Near(Link { loss: 0.4, duplication: 0.3, jitter_ns: SECOND_NS / 2, ..plan.setup.near }),
        ),
        (at(48), Fault::Near(plan.setup.near)),
    ];
    plan
}

/// A window of five seconds.
pub fn fixed(size: Size) -> Plan {
    trouble(size, "fixed_window")
}

/// The same, which slides.
pub fn sliding(size: Size) -> Plan {
    trouble(size, "sliding_window")
}

/// When the store's clock showed what it does at the begin of the traffic, in nanoseconds since 1970.
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
#[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
pub fn above_fixed(world: &World) -> f64 {
    let mut counts = BTreeMap::<u128, u64>::new();
    for (window, _) in admissions(world) {
        *counts.entry(window).or_default() += 1;
    }
    counts.values().map(|count| count.saturating_sub(LIMIT)).max().unwrap_or(0) as f64
}

/// By how many requests the weighed count is above the limit, at the worst admission.
#[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
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

/// What whole windows without trouble admit, as a part of the limit: the last ones.
#[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
pub fn used(world: &World) -> f64 {
    let length = u128::from(LENGTH_NS);
    let end = (begins_ns(world) + u128::from(SECONDS * SECOND_NS)) / length;
    let quiet = admissions(world).filter(|(window, _)| (end - 2..end).contains(window)).count();
    quiet as f64 / (2 * LIMIT) as f64
}
