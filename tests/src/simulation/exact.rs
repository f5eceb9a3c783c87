//! Figures that a trial must reach beside what every world must: a figure of the first client, as in the table of
//! scenarios, that shows whether one mechanism works.

use weir_protocol::time::SECOND_NS;

use super::account::Tally;
use super::drawing::{AGAIN_AT, SILENCE_NS};
use super::faults::{Fault, Schedule};
use super::reference::Sample;
use super::shapes::{Asking, Shape};
use super::stretch::Span;
use super::trials::Trial;
use super::world::World;

/// The loop has settled after this many seconds.
const SETTLES_SECONDS: u64 = 4;
/// Time for which a bunch of arrivals is watched, in seconds, ...
const BUNCH_SECONDS: u64 = 5;
/// ... and the least and the most that is admitted then: in the table at 100/s, 0.985 to 1.01.
const BUNCH: [f64; 2] = [0.94, 1.03];
/// The least and the most of expensive requests at one POP that is asked for nothing else, ...
const DEAR: [f64; 2] = [0.99, 1.01];
/// ... the least if its workers report for themselves, or if an answer takes longer than an interval: some tokens are
/// taken twice, and a full budget begins to refill late (docs/budgets.md). The worst of some 30,000 worlds admitted 154
/// of 159 requests; ...
const DEAR_FAR: f64 = 0.97;
/// ... give or take this many of them.
const DEAR_REQUESTS: f64 = 3.0;
/// The least if the burst fills in a tenth of a second, ...
const SMALL: f64 = 0.96;
/// ... the same for a client that moves: what it lacks at one POP it left at another, most of all if it comes back in
/// step with reports; ...
const SMALL_MOVING: f64 = 0.8;
/// ... and the most, as a part of what refills.
const SMALL_MOST: f64 = 1.03;
/// After how long a region that is cut off goes by its share, in nanoseconds, beside what was under way, ...
const ALONE_NS: u64 = 2 * SECOND_NS;
/// ... and the part of it that it gets: least if it is small and distant, and one POP has on hand what another lacks.
const SHARE: [f64; 2] = [0.75, f64::INFINITY];
/// The most that a region flooded in pulses gets, as a part of its floor and its part of the rest: with each pulse it
/// gets what its POPs admit before news arrives.
const IN_PULSES_MOST: f64 = 1.4;
/// A few tokens either way do not count.
const FEW: f64 = 8.0;

/// The tokens admitted, the ideal, and the limits within which it must be.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name.
    pub what: &'static str,
    /// Tokens that were admitted.
    pub admitted: f64,
    /// Tokens that would ideally be admitted.
    pub ideally: f64,
    /// The least and the most, as parts of those, ...
    pub limits: [f64; 2],
    /// ... give or take this many tokens.
    pub few: f64,
}

/// Ends the run if a figure of the trial is out of its limits.
pub fn check(world: &World, trial: Trial, faults: &Schedule, clients: &[Asking]) {
    for Figure { what, admitted, ideally, limits: [least, most], few } in figures(world, trial, faults, clients) {
        if admitted < least * ideally - few || admitted > most * ideally + few {
            let what = format!(
                "{what}: admitted {admitted} of {ideally:.0}, at least {least} of it, at most {most}, but for {few:.0}"
            );
            world.label.violated("I5", end(world) * SECOND_NS, &what);
        }
    }
}

/// The figures of a trial.
pub fn figures(world: &World, trial: Trial, faults: &Schedule, clients: &[Asking]) -> Vec<Figure> {
    let burst = world.setup().rules[0].burst;
    let beside_ideal = |what, limits, few| {
        let (admitted, ideally) = (whole(world, |sample| sample.tally.admitted), whole(world, |sample| sample.ideally));
        Figure { what, admitted, ideally, limits, few }
    };
    match trial {
        Trial::Silent => vec![after_silences(world, faults)],
        Trial::DearAtOne => {
            let setup = world.setup();
            let is_far = setup.round_trip_ns() > setup.interval_ns || setup.workers > 1 && setup.reporters == 0;
            let limits = [if is_far { DEAR_FAR } else { DEAR[0] }, DEAR[1]];
            vec![beside_ideal("dear requests at one POP", limits, DEAR_REQUESTS * f64::from(burst / 2))]
        }
        Trial::SmallBurst => {
            let least = match clients[0].shape {
                Shape::Hopping { .. } => SMALL_MOVING,
                _ => SMALL,
            };
            let least = beside_ideal("a small burst", [least, f64::INFINITY], FEW);
            // Together POPs hold more than an ideal bucket can, but they admit no more than refills.
            let ideally = refills(world, (SETTLES_SECONDS * SECOND_NS, end(world) * SECOND_NS));
            let most = Figure { what: "beside what refills", ideally, limits: [0.0, SMALL_MOST], ..least.clone() };
            vec![least, most]
        }
        Trial::Pulses => vec![floor_in_pulses(world)],
        Trial::AloneAgain => vec![share(world, faults)],
        _ => Vec::new(),
    }
}

/// The time at which the traffic has ended and all messages have arrived, in seconds.
fn end(world: &World) -> u64 {
    world.reference.samples().len() as u64 / 10
}

/// The growth of a figure once the loop has settled.
fn whole(world: &World, figure: impl Fn(&Sample) -> u64) -> f64 {
    world.reference.between(SETTLES_SECONDS, end(world), figure)
}

/// The refill of the first client's quota.
fn refills(world: &World, (from, to): Span) -> f64 {
    world.reference.account(0, 0).rate() * (to - from) as f64 / SECOND_NS as f64
}

/// The tokens admitted in the seconds after silences, all of them together.
fn after_silences(world: &World, faults: &Schedule) -> Figure {
    let after = |figure: fn(&Sample) -> u64| {
        let begins = faults.iter().map(|(at, _)| (at + SILENCE_NS) / SECOND_NS);
        begins.map(|from| world.reference.between(from, from + BUNCH_SECONDS, figure)).sum()
    };
    let (admitted, ideally) = (after(|sample| sample.tally.admitted), after(|sample| sample.ideally));
    Figure { what: "after silences", admitted, ideally, limits: BUNCH, few: FEW }
}

/// The tokens that a region admits when it is cut off for the second time, as a part of its share.
fn share(world: &World, faults: &Schedule) -> Figure {
    let what = "of its share, cut off again";
    let Some((until, Fault::CutRegion(region, _))) = faults.last() else {
        unreachable!("a trial's last fault is that the region is back")
    };
    let (pops, regions) = (world.setup().pops, world.setup().regions);
    let span @ (from, to) = (AGAIN_AT.1 + ALONE_NS + world.setup().recovery_ns(), *until);
    let here = (*region..pops).step_by(regions).count() as f64 / pops as f64;
    let of = |figure: fn(Tally) -> u64| {
        world.reference.between(from.div_ceil(SECOND_NS), to / SECOND_NS, |sample| figure(sample.regions[*region]))
    };
    let ideally = (refills(world, span) * here).min(of(|tally| tally.offered));
    Figure { what, admitted: of(|tally| tally.admitted), ideally, limits: SHARE, few: FEW + pops as f64 }
}

/// Admissions of a region with a floor while flooded in pulses, as a part of its floor and its part of the rest.
fn floor_in_pulses(world: &World) -> Figure {
    let own = whole(world, |sample| sample.by_floor);
    let here = whole(world, |sample| sample.regions[0].offered);
    let everywhere = whole(world, |sample| sample.tally.offered);
    let rest = refills(world, (SETTLES_SECONDS * SECOND_NS, end(world) * SECOND_NS)) - own;
    let ideally = own + rest * (here - own).max(0.0) / (everywhere - own).max(1.0);
    let admitted = whole(world, |sample| sample.regions[0].admitted);
    Figure { what: "of its floor", admitted, ideally, limits: [0.0, IN_PULSES_MOST], few: FEW }
}
