//! What a random world must have admitted, beside an ideal limiter, while nothing was wrong in it: I5.
//!
//! An ideal limiter that begins as deep in debt as the fleet truly is bounds what is admitted from both sides (see
//! [`super::stretch`]). What is allowed beside it is what docs/budgets.md states: some hundredths, and once in a
//! stretch what the loop cannot know while news are under way.

use weir_budget::demand::WINDOW_NS;
use weir_wire::quota::Quota;

use super::account::{Account, Tally};
use super::apart::Who;
use super::overdrawn::Overdrawn;
use super::random::FLOOR_PERCENT;
use super::setup::Setup;
use super::shapes::{Asking, Shape};
use super::stretch::{Compared, target_ns};
use super::world::World;

/// The least part of what the ideal limiter admits, of a client that asks at one rate.
const STEADY: f64 = 0.97;
/// The most, of a region's share while it is alone.
const STEADY_MOST: f64 = 1.02;
/// The least and the most of what a POP alone has of its own.
const ALONE: [f64; 2] = [0.99, 1.01];
/// The least, of a client whose rate jumps: a ratio that was right before a jump is wrong for a while after.
const JUMPING: f64 = 0.9;
/// The least, of one that bursts everywhere: what it overshot once, its bursts are cut for.
const BURSTING: f64 = 0.1;
/// The least, of one that moves, of a burst of one token or two: what it does not find at a POP, it left at another.
const MOVING_TINY: f64 = 0.9;
/// So many tokens.
const TINY: u32 = 2;
/// The least, of a strict rule: what one POP has on hand, its client may look for at another.
const STRICT: f64 = 0.6;
/// How many times faster a level above what is steered for is given out than a lack is made up.
const SURPLUS: f64 = 4.0;
/// The least part of what a bucket of its floor alone gives, that a region gets.
const FLOOR: f64 = 0.97;
/// A client that was lent so many bursts at once is remembered, ...
const AT_MANY: f64 = 2.0;
/// ... is lent this part of that when it comes again, ...
const AGAIN: f64 = 0.5;
/// ... and so many requests at each POP.
const LUMP: f64 = 2.0;
/// A few tokens are no part.
const FEW: f64 = 4.0;
/// Reports may speak of so many seconds more than they do (`LENIENCE_US` in weir-budget).
const LENIENCE_SECONDS: f64 = 0.25;
/// A POP that is not asked is told of the same grant again after a second (`AGAIN_NS` in weir-budget).
const RETOLD_SECONDS: f64 = 1.0;
/// A warm key is reported so often.
const WARM_SECONDS: f64 = 2.25;
/// How many times what refills until a grant arrives the level may be off while the loop settles, ...
const SWINGS: f64 = 3.0;
/// ... and by how many standard deviations of that: clients come as a Poisson process does.
const DEVIATIONS: f64 = 3.0;
/// The part of its burst that a client which nobody knew is charged too much for what it took before that was reported: it
/// may have refilled since.
const UNKNOWN: f64 = 0.1;

/// Ends the run where what was admitted in a stretch is too little or too much.
pub fn judge(world: &World, clients: &[Asking]) {
    for compared in &world.compared {
        let account = world.reference.account(compared.rule, compared.key);
        let asking = clients[compared.key as usize];
        let shape = asking.shape;
        let wrong = too_little(compared, asking, account, world.setup())
            .or_else(|| less_than_its_floor(compared, shape, account, world.setup()))
            .or_else(|| too_much(compared, asking, account, world.setup()));
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

/// Ends the run where one that was alone admitted something else than its own.
pub fn judge_apart(world: &World, clients: &[Asking]) {
    for apart in &world.apart {
        for (own, (key, &Asking { shape, cost, .. })) in apart.own.iter().zip((0..).zip(clients)) {
            let account = world.reference.account(0, key);
            let ideally = tokens(own.ideally);
            let [least, most] = match apart.who {
                _ if account.sharing.strict => continue,
                Who::Pop(_) => {
                    [ALONE[0] * ideally - FEW * f64::from(cost), ALONE[1] * ideally + FEW * f64::from(cost)]
                }
                Who::Region(_) if !shape.is_steady() => continue,
                Who::Region(_) => {
                    let time = seconds(apart.span.1 - apart.span.0);
                    let most = time / seconds(own.quota.token_ns()) + f64::from(own.quota.burst());
                    [0.0, STEADY_MOST * most + swing(own.quota, cost, world.setup())]
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

/// How far a steady client may overdraw its budget at any time, in tokens.
fn swing(quota: Quota, cost: u32, setup: &Setup) -> f64 {
    let news = seconds(setup.interval_ns + setup.round_trip_ns()) / seconds(quota.token_ns());
    let lenience = LENIENCE_SECONDS / seconds(quota.token_ns());
    SWINGS * news
        + DEVIATIONS * (news * f64::from(cost)).sqrt()
        + lenience
        + (tokens(setup.pops as u64) + FEW) * f64::from(cost)
}

/// The part of the quota that a client gets that is at each POP for so long: where it was it is counted, too, until what was
/// said of it fades. A level above the target makes up for that, where the burst has room for one.
fn counted_twice(dwell_ns: u64, quota: Quota, setup: &Setup) -> f64 {
    let fill_ns = quota.fill_ns();
    let above_ns = fill_ns - target_ns(quota).min(fill_ns);
    let given = 0.5 * (1.0 + SURPLUS * seconds(above_ns));
    let lasts_ns = WINDOW_NS + setup.interval_ns + setup.round_trip_ns();
    let part = (seconds(lasts_ns) / seconds(dwell_ns)).min(1.0);
    1.0 - part * (1.0 - given.min(1.0))
}

/// The part of its time at a POP that is left to a client once the first draw for it there is answered.
fn after_a_draw(dwell_ns: u64, setup: &Setup) -> f64 {
    seconds(dwell_ns.saturating_sub(setup.round_trip_ns())) / seconds(dwell_ns)
}

/// Tokens that were admitted and that nobody will hear of, as far as that is stated: of a cold key half of an even share at
/// each POP. So half a burst at once, and half the rate until POPs whose share is used up have told that it is hot.
fn unsaid(compared: &Compared, account: &Account, setup: &Setup) -> f64 {
    let known_after = seconds(setup.reach_ns()) + WARM_SECONDS;
    let stated = 0.5 * (f64::from(account.quota.burst()) + account.rate() * known_after);
    tokens(compared.unsaid).min(stated)
}

fn too_little(compared: &Compared, asking: Asking, account: &Account, setup: &Setup) -> Option<String> {
    let part = match asking.shape {
        // A strict rule's requests wait for what others hold: how long says no ideal.
        Shape::Hopping { dwell_ns, .. } if account.sharing.strict => STRICT * after_a_draw(dwell_ns, setup),
        _ if account.sharing.strict => STRICT,
        Shape::Bursts { .. } => BURSTING,
        Shape::Jumping { .. } => JUMPING,
        Shape::Hopping { .. } if account.quota.burst() <= TINY => MOVING_TINY,
        Shape::Hopping { dwell_ns, .. } => STEADY * counted_twice(dwell_ns, account.quota, setup),
        _ => STEADY,
    };
    // No more than a burst of a strict rule is leased at a time, and a lease takes a round trip.
    let news = seconds(setup.interval_ns + setup.round_trip_ns());
    let leased = f64::from(account.quota.burst()) / news * seconds(compared.span.1 - compared.span.0);
    let most = if account.sharing.strict { leased } else { f64::INFINITY };
    let cost = f64::from(asking.cost);
    let chance = match asking.shape {
        // What a rate that jumps down was cut for last is not made good by the end.
        Shape::Jumping { low, .. } => low.min(account.rate()) * cost * news,
        // Whether a request comes before the POP has heard that its client did, as far as that is chance.
        Shape::Hopping { .. } => (tokens(compared.least) * cost).sqrt(),
        _ => 0.0,
    };
    let unknown = if compared.was_known { 0.0 } else { UNKNOWN * f64::from(account.quota.burst()) };
    let least = part * tokens(compared.least).min(most) - FEW * cost - chance - unknown;
    // The level goes up and down about what is steered for by what is under way: what it saved up is not lost.
    let saved = compared.saved.min(account.rate() * news);
    (tokens(compared.tally.admitted) + saved < least).then(|| format!("too little, at least {least:.0}"))
}

/// Region 0 gets what a bucket of its floor alone would give it.
fn less_than_its_floor(
    compared: &Compared,
    shape: Shape,
    account: &Account,
    setup: &Setup,
) -> Option<String> {
    let Shape::Floor { .. } = shape else { return None };
    let Tally { offered, admitted } = compared.region_0;
    // Until the loop has settled a region is cut as any other.
    let late = account.rate() * f64::from(FLOOR_PERCENT) / 100.0 * seconds(setup.reach_ns());
    let least = FLOOR * tokens(compared.by_floor) - late - FEW;
    let wrong = format!("{admitted} of {offered} in region 0, at least {least:.0}");
    (tokens(admitted) < least).then_some(wrong)
}

/// A client that asks at one rate is lent no more than what is under way, and goes on to ask while it is in debt.
fn too_much(compared: &Compared, asking: Asking, account: &Account, setup: &Setup) -> Option<String> {
    let Overdrawn { early, late, late_at, .. } = compared.overdrawn;
    let (shape, cost) = (asking.shape, asking.cost);
    let most = match shape {
        _ if account.sharing.strict => return None,
        // What it did once at many POPs, it does not do again.
        Shape::Bursts { .. } if early > AT_MANY * f64::from(account.quota.burst()) => {
            let (burst, pops) = (f64::from(account.quota.burst()), tokens(setup.pops as u64));
            // Where POPs gave parts of a burst, its part may be no smaller.
            let parts = pops * burst * burst / (early + burst) - burst;
            parts.max(AGAIN * early) + LUMP * f64::from(cost) * pops + swing(account.quota, cost, setup)
        }
        // The POP it comes to next was told of the level a while ago, and has refilled since.
        Shape::Hopping { .. } => swing(account.quota, cost, setup) + account.rate() * RETOLD_SECONDS,
        _ if shape.is_steady() => swing(account.quota, cost, setup),
        _ => return None,
    };
    let most = most + unsaid(compared, account, setup);
    (late > most).then(|| {
        format!(
            "too much: overdrawn by {early:.0} at first, by {late:.1} beyond what of it is not paid back at {:.1} s, \
             at most {most:.0}",
            seconds(late_at)
        )
    })
}

#[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
fn tokens(count: u64) -> f64 {
    count as f64
}
