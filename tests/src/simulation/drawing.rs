//! Random draws of the larger trials (most are checked by a figure, see [`super::exact`]): shapes, worlds, and faults.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "some requests and seconds"
)]

use fastrand::Rng;
use weir_protocol::time::SECOND_NS;

use super::faults::{Fault, Schedule};
use super::network::Link;
use super::setup::{RuleText, Setup};
use super::shapes::{Shape, log_uniform};

/// The trial that a world is drawn for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of {
    /// Tokens per second, ...
    pub rate: f64,
    /// ... and at once.
    pub burst: u32,
    /// The most that a client asks for, in requests per second.
    pub most: f64,
    /// A POP.
    pub pop: usize,
    /// The earliest time of a fault, ...
    pub begin: u64,
    /// ... and last, in nanoseconds.
    pub until: u64,
}

/// Time for which a POP's link is silent, in nanoseconds, ...
pub(super) const SILENCE_NS: u64 = 4 * SECOND_NS;
/// ... and how long it then works until the next time.
const AFTER_NS: u64 = 8 * SECOND_NS;
/// From when to when only the region is asked that is cut off before and after, in nanoseconds.
pub(super) const AGAIN_AT: (u64, u64) = (14 * SECOND_NS, 32 * SECOND_NS);
/// The least tokens a second of a quota that is flooded in pulses: with fewer, a floor is hardly a token.
const PULSES_RATE_MIN: f64 = 10.0;
/// Slots of a table in which three clients under three rules hardly share any.
const NESTED_SLOTS: u32 = 256;
/// A link to the next door.
const QUICK: Link = Link::perfect(SECOND_NS / 1_000);

/// Requests that cost half of the burst, at one POP.
pub(super) fn dear_at_one(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    let &Of { rate, burst, pop, .. } = of;
    setup.rules.truncate(1);
    // If a POP reports to two weir-syncs in turn, the store takes it for two POPs.
    setup.syncs_per_region = 1;
    // With a few requests a second, there is sometimes none to report.
    setup.rules[0].burst = burst.min(rate as u32).max(10);
    for shape in &mut *shapes {
        *shape = Shape::OnePop { rate: rate * log_uniform(1.5, 5.0, rng), pop };
    }
    Schedule::new()
}

/// A client asks one POP whose weir-sync is silent again and again for seconds; then all arrives at once.
pub(super) fn silent(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    let &Of { rate, burst, most, pop, until, .. } = of;
    setup.rules.truncate(1);
    setup.syncs_per_region = 1;
    // What comes in a bunch is more than the burst.
    setup.rules[0].burst = burst.min(rate as u32).max(1);
    (setup.near.jitter_ns, setup.near.loss, setup.near.duplication) = (0, 0.0, 0.0);
    for shape in &mut *shapes {
        *shape = Shape::OnePop { rate: (rate * log_uniform(1.5, 10.0, rng)).min(most), pop };
    }
    let times = (1..).map(|n| n * (SILENCE_NS + AFTER_NS)).take_while(|at| at + SILENCE_NS <= until);
    times.map(|at| (at, Fault::Silence(pop, SILENCE_NS))).collect()
}

/// A burst that fills in a tenth of a second or less.
pub(super) fn small_burst(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    let &Of { rate, most, pop, .. } = of;
    setup.rules.truncate(1);
    setup.syncs_per_region = 1;
    near_by(setup);
    setup.rules[0].burst = ((rate * log_uniform(0.01, 0.1, rng)) as u32).max(1);
    for shape in &mut *shapes {
        let rate = (rate * log_uniform(1.1, 20.0, rng)).min(most);
        // It leaves each POP before all have news of it: then most is admitted that is not charged yet.
        let dwell_ns = rng.u64(3 * SECOND_NS / 5..6 * SECOND_NS / 5);
        *shape = match rng.u8(0..4) {
            0 => Shape::OnePop { rate, pop },
            1 => Shape::Steady { rate, is_zipf: rng.bool() },
            _ => Shape::Hopping { rate, dwell_ns },
        };
    }
    Schedule::new()
}

/// A region is cut off from the store; then only it is asked; then it is cut off again.
pub(super) fn alone_again(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    let &Of { rate, most, begin, until, .. } = of;
    setup.rules.truncate(1);
    setup.syncs_per_region = 1;
    let region = rng.usize(0..setup.regions);
    for shape in &mut *shapes {
        let rate = (rate * log_uniform(1.5, 10.0, rng)).min(most);
        *shape = Shape::Visiting { rate, region, regions: setup.regions, span: AGAIN_AT };
    }
    let (heals, again) = AGAIN_AT;
    vec![
        (begin, Fault::CutRegion(region, true)),
        (heals, Fault::CutRegion(region, false)),
        (again, Fault::CutRegion(region, true)),
        (until, Fault::CutRegion(region, false)),
    ]
}

/// A region that has a floor is flooded in pulses.
pub(super) fn pulses(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    let &Of { rate, most, .. } = of;
    // One POP in each region, and as many requests beyond the quota as a world may have.
    (setup.pops, setup.regions, setup.syncs_per_region) = (3, 3, 1);
    near_by(setup);
    let rate = rate.min(most / 25.0).max(PULSES_RATE_MIN).ceil();
    let rule = &mut setup.rules[0];
    (rule.rate, rule.burst) = (format!("{rate}/s"), (rate * log_uniform(1.0, 2.0, rng)) as u32 + 1);
    for shape in &mut *shapes {
        let asks = rate * log_uniform(3.0, 5.0, rng);
        let flood = rate * log_uniform(15.0, 20.0, rng);
        *shape = Shape::Pulses { asks, flood, regions: setup.regions };
    }
    Schedule::new()
}

/// A POP is cut off with tokens that it leased ahead, and every POP is asked for a burst once its lease has ended.
pub(super) fn leases_end(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    let &Of { rate, burst, most, pop, until, .. } = of;
    // With slow links, what refills on the way to the others would hide as many tokens.
    (setup.near, setup.far) = (QUICK, QUICK);
    setup.interval_ns = SECOND_NS / 2;
    setup.terms.interval_ns = setup.interval_ns + setup.round_trip_ns();
    // So that no report comes at the moment at which the lease ends.
    setup.terms.strict_lease_ns = 2 * SECOND_NS + SECOND_NS / 20;
    let each = (burst as usize).min(400);
    let leaves = rng.u64(2 * SECOND_NS..3 * SECOND_NS);
    let (comes, round) = (leaves + 2 * SECOND_NS + rng.u64(0..SECOND_NS / 2), leaves + 4 * SECOND_NS);
    for shape in &mut *shapes {
        let rate = (rate * 0.9).min(most / 2.0);
        *shape = Shape::Returning { rate, pop, round, leaves, comes, each };
    }
    let rounds = (0..).map(|n| n * round).take_while(|at| at + round <= until);
    let cut = |at| [(at + leaves, true), (at + round - SECOND_NS / 2, false)];
    rounds.flat_map(cut).map(|(at, is_cut)| (at, Fault::CutPop(pop, is_cut))).collect()
}

/// Everything starts while clients ask: POPs, weir-syncs and an empty store. Or only weir-syncs do, and the store comes
/// later: POPs remember how many there are.
pub(super) fn cold(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    let mut faults = Schedule::new();
    let begins = |rng: &mut Rng| rng.u64(SECOND_NS / 100..3 * SECOND_NS);
    for sync in 0..setup.regions * setup.syncs_per_region {
        faults.extend([(0, Fault::SyncCrash(sync)), (begins(rng), Fault::SyncStart(sync))]);
    }
    if rng.bool() {
        let back = rng.u64(3 * SECOND_NS..of.until.min(15 * SECOND_NS));
        faults.extend([(0, Fault::StoreUp(false)), (back, Fault::StoreUp(true))]);
    } else {
        // What a POP gives before it knows how many POPs there are is not reported (docs/budgets.md). Clients that ask
        // at one rate would seem to be admitted too much.
        for shape in &mut *shapes {
            let high = (of.rate * log_uniform(0.3, 20.0, rng)).min(of.most);
            let half_ns = rng.u64(SECOND_NS / 5..4 * SECOND_NS);
            *shape = Shape::Jumping { low: high / 20.0, high, half_ns };
        }
        faults.push((0, Fault::StoreFlushed));
        for pop in 0..setup.pops {
            faults.extend([(0, Fault::PopCrash(pop)), (begins(rng), Fault::PopStart(pop))]);
        }
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}

/// Two wider rules around the first, each with the same burst.
pub(super) fn nested(setup: &mut Setup, of: &Of, rng: &mut Rng) -> Schedule {
    // So that no slot has to watch all clients under all rules.
    setup.slots = NESTED_SLOTS;
    let mut wider = of.rate;
    for name in ["r1", "r2"] {
        wider = (wider * log_uniform(1.0, 3.0, rng)).ceil();
        let rule = RuleText { name: name.into(), rate: format!("{wider}/s"), ..setup.rules[0].clone() };
        setup.rules.push(rule);
    }
    Schedule::new()
}

/// Two weir-syncs a region, and clients that do not move: one that moves is still counted where it was.
pub(super) fn replicas(setup: &mut Setup, shapes: &mut [Shape], of: &Of, rng: &mut Rng) -> Schedule {
    setup.syncs_per_region = 2;
    for shape in &mut *shapes {
        let rate = (of.rate * log_uniform(0.3, 20.0, rng)).min(of.most);
        *shape = match rng.u8(0..4) {
            0 => Shape::OnePop { rate, pop: of.pop },
            two => Shape::Steady { rate, is_zipf: two == 1 },
        };
    }
    Schedule::new()
}

/// The links and the interval of the design.
fn near_by(setup: &mut Setup) {
    let Setup { near, far, interval_ns, .. } = Setup::default();
    (setup.near, setup.far, setup.interval_ns) = (near, far, interval_ns);
    setup.terms.interval_ns = interval_ns + setup.round_trip_ns();
}
