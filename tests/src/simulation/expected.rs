//! I5: what a random world must have admitted, compared with an ideal limiter, while nothing was wrong in it.
//!
//! An ideal limiter that begins as deep in debt as the fleet truly is bounds what is admitted from both sides (see
//! [`super::stretch`]). Beyond that, what docs/budgets.md states is allowed: some hundredths, and once in a stretch
//! what the loop cannot know while news is under way.

use weir_budget::demand::WINDOW_NS;
use weir_protocol::quota::Quota;
use weir_protocol::time::SECOND_NS;

use super::account::{Account, Overdrawn, Tally};
use super::faults::{Fault, Schedule};
use super::ideal::Who;
use super::random::FLOOR_PERCENT;
use super::reference::Sample;
use super::setup::Setup;
use super::shapes::{Asking, Shape};
use super::stretch::{Compared, Span, target_ns};
use super::trials::{AGAIN_AT, SILENCE_NS, Trial};
use super::world::World;

/// The least part of what the ideal limiter admits, for a client that asks at one rate.
const STEADY: f64 = 0.97;
/// The most, as a part of a region's share while it is alone.
const STEADY_MOST: f64 = 1.02;
/// The least and the most, as parts of what a POP that is alone has of its own.
const ALONE: [f64; 2] = [0.99, 1.01];
/// The least for a client whose rate jumps: a ratio that was right before a jump is wrong for a while after.
const JUMPING: f64 = 0.9;
/// The least for one that bursts everywhere: its bursts are cut for what it overshot once.
const BURSTING: f64 = 0.1;
/// The least for one that moves under a burst of [`TINY`] tokens: what it lacks at a POP, it left at another.
const MOVING_TINY: f64 = 0.9;
/// The least under such a burst for one that does not move: whole tokens go in and out of a budget that has room for
/// one or two, and refill is lost while it is full. The worst of some 40,000 worlds admitted 325 of 341.
const STEADY_TINY: f64 = 0.95;
/// A burst of no more tokens is tiny.
const TINY: u32 = 2;
/// The least for a strict rule: one POP may have on hand what its client asks for at another.
const STRICT: f64 = 0.6;
/// The ratio of speeds at which a level above the target is given out and a level below it is made up.
const SURPLUS: f64 = 4.0;
/// The least that a region gets, as a part of what a bucket of its floor alone gives.
const FLOOR: f64 = 0.97;
/// A client that was lent this many bursts at once is remembered, ...
const AT_MANY: f64 = 2.0;
/// ... and when it comes again, it is lent this part of that, ...
const AGAIN: f64 = 0.5;
/// ... and this many requests at each POP.
const LUMP: f64 = 2.0;
/// A few tokens either way do not count.
const FEW: f64 = 4.0;
/// Time before its span for which a report may claim refill, in seconds (`LENIENCE_US` in weir-budget).
const LENIENCE_SECONDS: f64 = 0.25;
/// After how many seconds a POP that is not asked gets the same grant again (`AGAIN_NS` in weir-budget).
const REPEATED_SECONDS: f64 = 1.0;
/// Time between two reports of a warm key, in seconds.
const WARM_SECONDS: f64 = 2.25;
/// The most that the level may be off while the loop settles, in multiples of the refill until a grant arrives, ...
const SWINGS: f64 = 3.0;
/// ... and in standard deviations of that: clients come as a Poisson process.
const DEVIATIONS: f64 = 3.0;
/// The excess that an unknown client is charged for its requests before the first report, as a part of its
/// burst: that may have refilled since.
const UNKNOWN: f64 = 0.1;

/// Ends the run if too little or too much was admitted in a stretch.
pub(super) fn check(world: &World, clients: &[Asking]) {
    for compared in &world.compared {
        let account = world.reference.account(compared.rule, compared.key);
        let asking = clients[compared.key as usize];
        let shape = asking.shape;
        let wrong = too_little(compared, asking, account, &world.setup)
            .or_else(|| less_than_its_floor(compared, shape, account, &world.setup))
            .or_else(|| too_much(compared, asking, account, &world.setup));
        if let Some(wrong) = wrong {
            let Compared { rule, key, span: (from, to), tally, least, most, .. } = *compared;
            let what = format!(
                "client {key} under rule {rule}, from {:.1} s to {:.1} s, {asking:?}: {wrong}; asked for {}, \
                 admitted {}, ideally {least} to {most}",
                seconds(from),
                seconds(to),
                tally.offered,
                tally.admitted,
            );
            world.label.violated("I5", to, &what);
        }
    }
}

/// Ends the run if a POP or region that was alone admitted more or less than its own.
pub(super) fn check_apart(world: &World, clients: &[Asking]) {
    for apart in &world.apart {
        for (own, (key, &Asking { shape, cost, .. })) in apart.own.iter().zip((0..).zip(clients)) {
            let account = world.reference.account(0, key);
            let ideally = tokens(own.ideally);
            let [least, most] = match apart.who {
                _ if account.sharing.strict => continue,
                Who::Pop(_) => [ALONE[0] * ideally - FEW * f64::from(cost), ALONE[1] * ideally + FEW * f64::from(cost)],
                Who::Region(_) if !shape.is_steady() => continue,
                Who::Region(_) => {
                    let time = seconds(apart.span.1 - apart.span.0);
                    let most = time / seconds(own.quota.token_ns()) + f64::from(own.quota.burst());
                    [0.0, STEADY_MOST * most + swing(own.quota, cost, &world.setup)]
                }
            };
            let Tally { offered, admitted } = own.tally;
            if tokens(admitted) < least || tokens(admitted) > most {
                let (from, to) = apart.span;
                let what = format!(
                    "client {key} at {:?} alone, from {:.1} s to {:.1} s, {shape:?}: asked for {offered}, admitted \
                     {admitted}, at least {least:.0}, at most {most:.0}",
                    apart.who,
                    seconds(from),
                    seconds(to),
                );
                world.label.violated("I5", to, &what);
            }
        }
    }
}

/// The most that a steady client may overdraw its budget at any time, in tokens.
fn swing(quota: Quota, cost: u32, setup: &Setup) -> f64 {
    let news = seconds(setup.interval_ns + setup.round_trip_ns()) / seconds(quota.token_ns());
    let lenience = LENIENCE_SECONDS / seconds(quota.token_ns());
    SWINGS * news
        + DEVIATIONS * (news * f64::from(cost)).sqrt()
        + lenience
        + (tokens(setup.pops as u64) + FEW) * f64::from(cost)
}

/// The part of the quota for a client that stays `dwell_ns` at each POP: it is still counted where it was, until the
/// demand measured there fades. A level above the target makes up for that, if the burst has room for one.
fn counted_twice(dwell_ns: u64, quota: Quota, setup: &Setup) -> f64 {
    let fill_ns = quota.fill_ns();
    let above_ns = fill_ns - target_ns(quota).min(fill_ns);
    let given = 0.5 * (1.0 + SURPLUS * seconds(above_ns));
    let lasts_ns = WINDOW_NS + setup.interval_ns + setup.round_trip_ns();
    let part = (seconds(lasts_ns) / seconds(dwell_ns)).min(1.0);
    1.0 - part * (1.0 - given.min(1.0))
}

/// The part of a client's time at a POP that is left once the first acquire for it there is answered.
fn after_a_acquire(dwell_ns: u64, setup: &Setup) -> f64 {
    seconds(dwell_ns.saturating_sub(setup.round_trip_ns())) / seconds(dwell_ns)
}

/// Tokens that a client asks for within a span, of `most` a second: what a rate that jumps asks for at one time, it
/// does not ask for at another.
fn asked_up_to(most: f64, shape: Shape, (from, to): Span) -> f64 {
    let Shape::Jumping { low, high, half_ns } = shape else { return most * seconds(to - from) };
    let high_until = |at: u64| at / (2 * half_ns) * half_ns + (at % (2 * half_ns)).saturating_sub(half_ns);
    let high_ns = high_until(to) - high_until(from);
    high.min(most) * seconds(high_ns) + low.min(most) * seconds(to - from - high_ns)
}

/// Tokens that were admitted and will never be reported, as far as that is stated: for a cold key, half of an even
/// share at each POP. That is half a burst at once, and half the rate until POPs that used up theirs report the key.
fn unreported(compared: &Compared, account: &Account, setup: &Setup) -> f64 {
    let known_after = seconds(setup.reach_ns()) + WARM_SECONDS;
    let stated = 0.5 * (f64::from(account.quota.burst()) + account.rate() * known_after);
    tokens(compared.unreported).min(stated)
}

fn too_little(compared: &Compared, asking: Asking, account: &Account, setup: &Setup) -> Option<String> {
    let part = match asking.shape {
        // A strict rule's requests wait for what others hold; an ideal limiter does not know how long.
        Shape::Hopping { dwell_ns, .. } if account.sharing.strict => STRICT * after_a_acquire(dwell_ns, setup),
        _ if account.sharing.strict => STRICT,
        Shape::Bursts { .. } => BURSTING,
        Shape::Jumping { .. } => JUMPING,
        Shape::Hopping { .. } if account.quota.burst() <= TINY => MOVING_TINY,
        Shape::Hopping { dwell_ns, .. } => STEADY * counted_twice(dwell_ns, account.quota, setup),
        _ if account.quota.burst() <= TINY => STEADY_TINY,
        _ => STEADY,
    };
    // Under a strict rule at most a burst is leased at a time, and a lease takes a round trip.
    let news = seconds(setup.interval_ns + setup.round_trip_ns());
    let leased = f64::from(account.quota.burst()) / news;
    let most = if account.sharing.strict { asked_up_to(leased, asking.shape, compared.span) } else { f64::INFINITY };
    let cost = f64::from(asking.cost);
    let chance = match asking.shape {
        // When a rate has jumped down, its last cut is not made good by the end.
        Shape::Jumping { low, .. } => low.min(account.rate()) * cost * news,
        // Chance decides whether a request comes before the POP has a grant for its client.
        Shape::Hopping { .. } => (tokens(compared.least) * cost).sqrt(),
        _ => 0.0,
    };
    let unknown = if compared.was_known { 0.0 } else { UNKNOWN * f64::from(account.quota.burst()) };
    let least = part * tokens(compared.least).min(most) - FEW * cost - chance - unknown;
    // The level swings about the target by what is under way: what it saved up is not lost.
    let saved = compared.saved.min(account.rate() * news);
    (tokens(compared.tally.admitted) + saved < least).then(|| format!("too little, at least {least:.0}"))
}

/// Region 0 gets what a bucket of its floor alone would give it.
fn less_than_its_floor(compared: &Compared, shape: Shape, account: &Account, setup: &Setup) -> Option<String> {
    let Shape::Floor { .. } = shape else { return None };
    let Tally { offered, admitted } = compared.region_0;
    // Until the loop has settled, a region is cut like any other.
    let late = account.rate() * f64::from(FLOOR_PERCENT) / 100.0 * seconds(setup.reach_ns());
    let least = FLOOR * tokens(compared.by_floor) - late - FEW;
    let wrong = format!("{admitted} of {offered} in region 0, at least {least:.0}");
    (tokens(admitted) < least).then_some(wrong)
}

/// A client that asks at one rate, and goes on while in debt, is lent no more than what is under way.
fn too_much(compared: &Compared, asking: Asking, account: &Account, setup: &Setup) -> Option<String> {
    let Overdrawn { early, late, late_at, .. } = compared.overdrawn;
    let (shape, cost) = (asking.shape, asking.cost);
    let most = match shape {
        _ if account.sharing.strict => return None,
        // What it overdrew once at many POPs, it cannot overdraw again.
        Shape::Bursts { .. } if early > AT_MANY * f64::from(account.quota.burst()) => {
            let (burst, pops) = (f64::from(account.quota.burst()), tokens(setup.pops as u64));
            // If POPs gave parts of a burst, its part may be no smaller now.
            let parts = pops * burst * burst / (early + burst) - burst;
            parts.max(AGAIN * early) + LUMP * f64::from(cost) * pops + swing(account.quota, cost, setup)
        }
        // The POP it comes to next got the level a while ago, and has refilled since.
        Shape::Hopping { .. } => swing(account.quota, cost, setup) + account.rate() * REPEATED_SECONDS,
        _ if shape.is_steady() => swing(account.quota, cost, setup),
        _ => return None,
    };
    let most = most + unreported(compared, account, setup);
    (late > most).then(|| {
        format!(
            "too much: overdrawn by {early:.0} at first, by {late:.1} beyond what of it is not paid back at {:.1} s, \
             at most {most:.0}",
            seconds(late_at)
        )
    })
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn tokens(count: u64) -> f64 {
    count as f64
}

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
const FEW_OF_A_TRIAL: f64 = 8.0;

/// The tokens admitted, the ideal, and the limits within which it must be.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) what: &'static str,
    pub(super) admitted: f64,
    /// Tokens that would ideally be admitted.
    pub(super) ideally: f64,
    /// The least and the most, as parts of those, ...
    pub(super) limits: [f64; 2],
    /// ... give or take this many tokens.
    pub(super) few: f64,
}

/// Ends the run if a figure of the trial is out of its limits.
pub(super) fn check_trial(world: &World, trial: Trial, faults: &Schedule, clients: &[Asking]) {
    for Figure { what, admitted, ideally, limits: [least, most], few } in figures(world, trial, faults, clients) {
        if admitted < least * ideally - few || admitted > most * ideally + few {
            let what = format!(
                "{what}: admitted {admitted} of {ideally:.0}, at least {least} of it, at most {most}, but for {few:.0}"
            );
            world.label.violated("I5", end_s(world) * SECOND_NS, &what);
        }
    }
}

pub(super) fn figures(world: &World, trial: Trial, faults: &Schedule, clients: &[Asking]) -> Vec<Figure> {
    let burst = world.setup.rules[0].burst;
    let beside_ideal = |what, limits, few| {
        let (admitted, ideally) = (whole(world, |sample| sample.tally.admitted), whole(world, |sample| sample.ideally));
        Figure { what, admitted, ideally, limits, few }
    };
    match trial {
        Trial::Silent => vec![after_silences(world, faults)],
        Trial::DearAtOne => {
            let setup = &world.setup;
            let is_far = setup.round_trip_ns() > setup.interval_ns || setup.workers > 1 && setup.reporters == 0;
            let limits = [if is_far { DEAR_FAR } else { DEAR[0] }, DEAR[1]];
            vec![beside_ideal("dear requests at one POP", limits, DEAR_REQUESTS * f64::from(burst / 2))]
        }
        Trial::SmallBurst => {
            let least = match clients[0].shape {
                Shape::Hopping { .. } => SMALL_MOVING,
                _ => SMALL,
            };
            let least = beside_ideal("a small burst", [least, f64::INFINITY], FEW_OF_A_TRIAL);
            // Together POPs hold more than an ideal bucket can, but they admit no more than refills.
            let ideally = refills(world, (SETTLES_SECONDS * SECOND_NS, end_s(world) * SECOND_NS));
            let most = Figure { what: "beside what refills", ideally, limits: [0.0, SMALL_MOST], ..least.clone() };
            vec![least, most]
        }
        Trial::Pulses => vec![floor_in_pulses(world)],
        Trial::AloneAgain => vec![share(world, faults)],
        _ => Vec::new(),
    }
}

/// The time at which the traffic has ended and all messages have arrived, in seconds.
fn end_s(world: &World) -> u64 {
    world.reference.samples.len() as u64 / 10
}

/// The growth of a figure once the loop has settled.
fn whole(world: &World, figure: impl Fn(&Sample) -> u64) -> f64 {
    world.reference.between(SETTLES_SECONDS, end_s(world), figure)
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
    Figure { what: "after silences", admitted, ideally, limits: BUNCH, few: FEW_OF_A_TRIAL }
}

/// The tokens that a region admits when it is cut off for the second time, as a part of its share.
fn share(world: &World, faults: &Schedule) -> Figure {
    let what = "of its share, cut off again";
    let Some((until, Fault::CutRegion(region, _))) = faults.last() else {
        unreachable!("a trial's last fault is that the region is back")
    };
    let (pops, regions) = (world.setup.pops, world.setup.regions);
    let span @ (from, to) = (AGAIN_AT.1 + ALONE_NS + world.setup.recovery_ns(), *until);
    let here = (*region..pops).step_by(regions).count() as f64 / pops as f64;
    let of = |figure: fn(Tally) -> u64| {
        world.reference.between(from.div_ceil(SECOND_NS), to / SECOND_NS, |sample| figure(sample.regions[*region]))
    };
    let ideally = (refills(world, span) * here).min(of(|tally| tally.offered));
    Figure { what, admitted: of(|tally| tally.admitted), ideally, limits: SHARE, few: FEW_OF_A_TRIAL + pops as f64 }
}

/// Admissions of a region with a floor while flooded in pulses, as a part of its floor and its part of the rest.
fn floor_in_pulses(world: &World) -> Figure {
    let own = whole(world, |sample| sample.by_floor);
    let here = whole(world, |sample| sample.regions[0].offered);
    let everywhere = whole(world, |sample| sample.tally.offered);
    let rest = refills(world, (SETTLES_SECONDS * SECOND_NS, end_s(world) * SECOND_NS)) - own;
    let ideally = own + rest * (here - own).max(0.0) / (everywhere - own).max(1.0);
    let admitted = whole(world, |sample| sample.regions[0].admitted);
    Figure { what: "of its floor", admitted, ideally, limits: [0.0, IN_PULSES_MOST], few: FEW_OF_A_TRIAL }
}
