//! What a random world must have admitted, beside an ideal limiter, while nothing was wrong in it: I5.
//!
//! An ideal limiter that begins as deep in debt as the fleet truly is bounds what is admitted from both sides (see
//! [`super::stretch`]). What is allowed beside it is what docs/budgets.md states: some hundredths, and once in a
//! stretch what the loop cannot know while news are under way.

use super::account::{Account, Tally};
use super::random::FLOOR_PERCENT;
use super::setup::Setup;
use super::shapes::Shape;
use super::stretch::Compared;
use super::world::World;

/// The least part of what the ideal limiter admits, of a client that asks at one rate; and the most.
const STEADY: [f64; 2] = [0.97, 1.02];
/// The least, of a client whose rate jumps: a ratio that was right before a jump is wrong for a while after.
const JUMPING: f64 = 0.8;
/// The least, of one that bursts everywhere: what it overshot once, its bursts are cut for.
const BURSTING: f64 = 0.2;
/// The least, of a strict rule.
const STRICT: f64 = 0.4;
/// The least of its floor that a region gets, or of what it asks for.
const FLOOR: f64 = 0.95;
/// A few tokens are no part.
const FEW: f64 = 4.0;
/// What was overdrawn is paid back within so many seconds, ...
const SETTLES_SECONDS: f64 = 5.0;
/// ... and what is left then, at this part of the rate.
const PAID_BACK: f64 = 0.8;
/// Reports may speak of so many seconds more than they do (`LENIENCE_US` in weir-budget).
const LENIENCE_SECONDS: f64 = 0.25;
/// How many times what refills until a grant arrives the level may be off while the loop settles.
const SWINGS: f64 = 3.0;

/// Ends the run where what was admitted in a stretch is too little or too much.
pub fn judge(world: &World, shapes: &[Shape]) {
    for compared in &world.compared {
        let account = world.reference.account(compared.rule, compared.key);
        let shape = shapes[compared.key as usize];
        // What lost data and clocks that jumped gave may be found out of later.
        let overdrawn = overdrawn(world, compared) + account.forgiven;
        let wrong = too_little(compared, shape, account, world.setup())
            .or_else(|| less_than_its_floor(compared, shape, account))
            .or_else(|| too_much(compared, shape, account, world.setup(), overdrawn))
            .or_else(|| not_paid_back(compared, shape, account, world.setup()));
        if let Some(wrong) = wrong {
            let Compared { rule, key, span: (from, to), tally, least, most, .. } = *compared;
            let what = format!(
                "client {key} under rule {rule}, from {:.1} s to {:.1} s, {shape:?}: {wrong}; asked for {}, \
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

fn too_little(compared: &Compared, shape: Shape, account: &Account, setup: &Setup) -> Option<String> {
    let part = match shape {
        // A strict rule's requests wait for what others hold: how long says no ideal.
        _ if account.sharing.strict => STRICT,
        Shape::Bursts { .. } => BURSTING,
        // Each POP that a hopping client comes to may hold a part of the burst for it, where it has overshot.
        Shape::Jumping { .. } | Shape::Hopping { .. } => JUMPING,
        _ => STEADY[0],
    };
    // No more than a burst of a strict rule is leased at a time, and a lease takes a round trip.
    let news = seconds(setup.interval_ns + setup.round_trip_ns());
    let leased = f64::from(account.quota.burst()) / news * seconds(compared.span.1 - compared.span.0);
    let most = if account.sharing.strict { leased } else { f64::INFINITY };
    let least = part * tokens(compared.least).min(most) - FEW;
    (tokens(compared.tally.admitted) < least).then(|| format!("too little, at least {least:.0}"))
}

/// Region 0 gets what it asks for, up to its floor.
fn less_than_its_floor(compared: &Compared, shape: Shape, account: &Account) -> Option<String> {
    let Shape::Floor { .. } = shape else { return None };
    let Tally { offered, admitted } = compared.region_0;
    let time = seconds(compared.span.1 - compared.span.0) - 1.0;
    let floor = account.rate() * f64::from(FLOOR_PERCENT) / 100.0 * time;
    let least = FLOOR * tokens(offered).min(floor) - FEW - 0.1 * account.rate();
    let wrong = format!("{admitted} of {offered} in region 0, at least {least:.0}");
    (tokens(admitted) < least).then_some(wrong)
}

fn too_much(
    compared: &Compared,
    shape: Shape,
    account: &Account,
    setup: &Setup,
    overdrawn: f64,
) -> Option<String> {
    if !shape.is_steady() || account.sharing.strict {
        return None;
    }
    let late = account.rate() * (seconds(setup.interval_ns) + LENIENCE_SECONDS);
    let most = STEADY[1] * tokens(compared.most) + overdrawn + late + FEW;
    (tokens(compared.tally.admitted) > most).then(|| format!("too much, at most {most:.0}"))
}

/// A client that asks at one rate goes on to ask while it is in debt.
fn not_paid_back(compared: &Compared, shape: Shape, account: &Account, setup: &Setup) -> Option<String> {
    let [_, end, most] = compared.overdrawn;
    let news = seconds(setup.interval_ns + setup.round_trip_ns());
    let swing = account.rate() * SWINGS * news + tokens(setup.pops as u64) + FEW;
    let time = (seconds(compared.span.1 - compared.span.0) - SETTLES_SECONDS - SWINGS * news).max(0.0);
    let left = account.forgiven + swing.max(most - PAID_BACK * account.rate() * time);
    (shape.is_steady() && !account.sharing.strict && end > left)
        .then(|| format!("overdrawn by {most:.0} and {end:.0} at the end, at most {left:.0}"))
}

/// What the most overdrawn of the rules that count the client's requests owes at the end.
fn overdrawn(world: &World, of: &Compared) -> f64 {
    let same = world.compared.iter().filter(|other| other.key == of.key && other.span == of.span);
    same.map(|other| other.overdrawn[1]).fold(0.0, f64::max)
}

#[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
fn tokens(count: u64) -> f64 {
    count as f64
}
