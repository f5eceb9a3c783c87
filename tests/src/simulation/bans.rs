//! Penalties in random worlds: which client is banned, where, when and for how long, checked by every request's
//! outcome.

use fastrand::Rng;
use weir_protocol::time::SECOND_NS;

use super::account::Meter;
use super::faults::{self, Fault, Schedule, Way};
use super::log::Logged;
use super::setup::Setup;
use super::shapes::{Asking, Shape, log_uniform};
use super::stretch;
use super::world::World;

/// Longer than any world, so a key's window ends at most once in it.
const WITHIN: &str = "10m";
/// The length of a ban, in seconds.
const DENY_SECONDS: [f64; 2] = [3.0, 15.0];
/// The difference of drifting clocks in that time, and of rounding, in nanoseconds.
const SLACK_NS: u64 = SECOND_NS / 20;
/// A POP with a ban gets no other that ends less than a second later; nor does a region's weir-sync.
const LONGER_NS: u64 = 2 * SECOND_NS;
/// A ban that ends less than this later than the one on the list is no news (`LONGER_US` in weir-budget).
const NEWS_NS: u64 = SECOND_NS;
/// Time after a ban until a client that has half of its burst is let through, in nanoseconds, beside the time of news.
const AGAIN_NS: u64 = 3 * SECOND_NS;
/// The number of messages in a row with a ban that may be lost; each times out, and the next one has it again.
const LOST: u64 = 2;
/// One in this many requests of a strict rule may be refused because a message was lost, which earns no ban.
const LOST_PARTS: usize = 10;

#[derive(Clone, Copy, Debug)]
pub(super) struct Penalty {
    after: usize,
    deny_ns: u64,
    is_strict: bool,
}

/// A ban: where it was made, when, and when it ends there.
#[derive(Clone, Copy, Debug)]
struct Ban {
    pop: usize,
    key: u32,
    from: u64,
    until: u64,
}

impl Penalty {
    /// Draws a penalty for a world's first rule, which becomes the only one; its first client earns it.
    pub(super) fn draw(
        setup: &mut Setup,
        clients: &mut [Asking],
        (rate, burst, most): (f64, u32, f64),
        rng: &mut Rng,
    ) -> Self {
        setup.rules.truncate(1);
        // So that the world's clients may ask for several times as much.
        let rate = rate.min(most / 4.0).max(1.0).floor();
        setup.rules[0].rate = format!("{rate}/s");
        let after = rng.u32(1..=40);
        let seconds = log_uniform(DENY_SECONDS[0], DENY_SECONDS[1], rng) as u64;
        let options = &mut setup.rules[0].options;
        let penalty = format!(r#"{{"after": {after}, "within": "{WITHIN}", "deny_for": "{seconds}s"}}"#);
        *options = format!(r#"{options}, "penalty": {penalty}"#);
        let is_strict = options.contains(r#""strict""#);
        setup.keeps_log = true;
        let floods = (rate * log_uniform(3.0, 20.0, rng)).min(most);
        clients[0].shape = match rng.u8(0..4) {
            0 => Shape::OnePop { rate: floods, pop: rng.usize(0..setup.pops) },
            1 => Shape::Hopping { rate: floods, dwell_ns: rng.u64(SECOND_NS / 2..4 * SECOND_NS) },
            2 => Shape::Bursts { each: (burst as usize).min(400), period_ns: rng.u64(2..6) * SECOND_NS },
            _ => Shape::Steady { rate: floods, is_zipf: rng.bool() },
        };
        Self { after: after as usize, deny_ns: seconds * SECOND_NS, is_strict }
    }

    /// Ends the run if a ban differs from the rule.
    pub(super) fn check(&self, world: &World, faults: &Schedule, end: u64) {
        for key in 0..world.setup.keys {
            let log: Vec<_> = world.log.iter().filter(|logged| logged.key == key).copied().collect();
            let bans = self.bans(key, &log);
            self.are_earned(world, &log, &bans);
            self.are_not_late(world, faults, &log, &bans, end);
            hold(world, faults, &log, &bans, end);
            are_over(world, faults, &log, &bans, end);
        }
    }

    fn bans(&self, key: u32, log: &[Logged]) -> Vec<Ban> {
        let made = log.iter().filter(|logged| logged.bans);
        made.map(|made| Ban { pop: made.pop, key, from: made.at, until: made.at + self.deny_ns }).collect()
    }

    /// A POP bans only after as many refusals as the rule has, counted since its last ban.
    fn are_earned(&self, world: &World, log: &[Logged], bans: &[Ban]) {
        for ban in bans {
            let before = log.iter().rev().skip_while(|logged| logged.at > ban.from);
            let here = before.filter(|logged| logged.pop == ban.pop);
            let mut is_this = true;
            let since = here.take_while(|logged| std::mem::take(&mut is_this) || !logged.bans);
            let refused = since.filter(|logged| !logged.passed).count();
            if refused < self.after {
                let what = format!("{ban:?} for {refused} refusals of {}", self.after);
                world.label.violated("penalty", ban.from, &what);
            }
        }
    }

    /// While nothing is wrong, no POP refuses for long without a ban.
    fn are_not_late(&self, world: &World, faults: &Schedule, log: &[Logged], bans: &[Ban], end: u64) {
        let setup = &world.setup;
        let spans = stretch::clean(faults, setup, end);
        for pop in 0..setup.pops {
            let mut refused = 0;
            for logged in log.iter().filter(|logged| logged.pop == pop) {
                let is_clean = spans.iter().any(|(from, to)| (*from..*to).contains(&logged.at));
                let may_be_banned =
                    bans.iter().any(|ban| ban.from <= logged.at && logged.at < ban.until + late_ns(faults, setup));
                if logged.bans || !is_clean || may_be_banned {
                    refused = 0;
                } else if !logged.passed {
                    refused += 1;
                }
                let lost = if self.is_strict { 5 + log.len() / LOST_PARTS } else { 0 };
                if refused > 2 * self.after + lost {
                    let what = format!("POP {pop} refused {refused} times without a ban, {} earn one", self.after);
                    world.label.violated("penalty", logged.at, &what);
                }
            }
        }
    }
}

/// A banned client is refused: at the POP that banned it at once, and at the others when the news has arrived.
fn hold(world: &World, faults: &Schedule, log: &[Logged], bans: &[Ban], end: u64) {
    let setup = &world.setup;
    for ban in bans {
        for pop in 0..setup.pops {
            let until = ban.until - SLACK_NS - if pop == ban.pop { 0 } else { LONGER_NS };
            let passed = log.iter().filter(|logged| logged.pop == pop && logged.passed);
            let passed = passed
                .filter(|logged| {
                    let until = until.saturating_sub(early_ns(faults, bans, ban, logged.at));
                    ban.from < logged.at && logged.at < until.min(end)
                })
                .find(|logged| {
                    known_at(ban, pop, (faults, setup), end).is_some_and(|at| at < logged.at)
                        && !has_crashed(faults, pop, ban.from, logged.at)
                });
            if let Some(passed) = passed {
                let what = format!("client {} passes at POP {pop}: {ban:?}", ban.key);
                world.label.violated("penalty", passed.at, &what);
            }
        }
    }
}

/// A client that has tokens is let through once no ban is left.
fn are_over(world: &World, faults: &Schedule, log: &[Logged], bans: &[Ban], end: u64) {
    let setup = &world.setup;
    let quota = world.reference.account(0, 0).quota;
    let spans = stretch::clean(faults, setup, end);
    let over = |ban: &Ban| ban.until + late_ns(faults, setup);
    let again_ns = AGAIN_NS + 2 * setup.reach_ns();
    let mut debt = Meter::default();
    for (i, logged) in log.iter().enumerate() {
        let until = bans.iter().filter(|ban| ban.from <= logged.at).map(over).max().unwrap_or(0);
        let next = bans.iter().map(|ban| ban.from).find(|from| *from > logged.at).unwrap_or(end);
        let is_clean = |at: u64, until: u64| spans.iter().any(|(from, to)| *from <= at && until <= *to);
        let by = logged.at + again_ns;
        let has_tokens = debt.deficit_ns(logged.at) <= quota.fill_ns() / 2;
        if until > 0
            && until <= logged.at
            && by < next
            && is_clean(logged.at, by)
            && has_tokens
            && asks_in_vain(&log[i..], by - again_ns / 2, by)
        {
            let what = format!(
                "client {} is refused for {} ms after its last ban, which ended at {} ms",
                logged.key,
                again_ns / 1_000_000,
                until / 1_000_000
            );
            world.label.violated("penalty", by, &what);
        }
        if logged.passed {
            debt.take(quota, world.reference.cost(0, logged.cost), logged.at);
        }
    }
}

/// True if all of these are refused up to `by`, and some of them come after `late`.
fn asks_in_vain(log: &[Logged], late: u64, by: u64) -> bool {
    let until_then = log.iter().take_while(|logged| logged.at <= by);
    !until_then.clone().any(|logged| logged.passed) && until_then.last().is_some_and(|logged| logged.at > late)
}

/// The latest time at which a POP knows of a ban; `None` if it need not.
fn known_at(ban: &Ban, pop: usize, (faults, setup): (&Schedule, &Setup), end: u64) -> Option<u64> {
    if pop == ban.pop {
        return Some(ban.from);
    }
    // What knows of it may crash before the news reaches the others.
    let is_lost = |at: u64| {
        let forgets = |fault: &Fault| match *fault {
            Fault::SyncCrash(sync) => sync / setup.syncs_per_region == ban.pop % setup.regions,
            Fault::PopCrash(which) => which == ban.pop,
            Fault::StoreLoses(_) | Fault::StoreFlushed => true,
            _ => false,
        };
        faults.iter().any(|(then, fault)| ban.from <= *then && *then <= at && forgets(fault))
    };
    let is_near = pop % setup.regions == ban.pop % setup.regions && setup.syncs_per_region == 1;
    let way = if is_near { Way::Within(ban.pop, pop) } else { Way::Between(ban.pop, pop) };
    let lost_ns = LOST * (setup.timeout_ns + setup.interval_ns * setup.syncs_per_region as u64);
    way.known_at((faults, setup), (ban.from, end), lost_ns, is_lost)
}

fn has_crashed(faults: &Schedule, pop: usize, from: u64, until: u64) -> bool {
    let is_one = |fault: &Fault| matches!(fault, Fault::PopCrash(which) if *which == pop);
    faults.iter().any(|(at, fault)| (from..until).contains(at) && is_one(fault))
}

/// Time by which a ban may end earlier: if Redis's clock jumps ahead meanwhile, "bans end early" (docs/redis.md). Then
/// all end with the first on its list, which has no other that ends less than [`NEWS_NS`] later.
fn early_ns(faults: &Schedule, bans: &[Ban], ban: &Ban, to: u64) -> u64 {
    let by = |(at, fault): &(u64, Fault)| match fault {
        Fault::StoreClock(by_us) if (ban.from..to).contains(at) => u64::try_from(*by_us).unwrap_or(0) * 1_000,
        _ => 0,
    };
    let by_ns: u64 = faults.iter().map(by).sum();
    let before = bans.iter().map(|listed| ban.until.saturating_sub(listed.until));
    let listed_ns = before.filter(|ns| *ns < NEWS_NS).max().unwrap_or(0);
    if by_ns > 0 { by_ns + listed_ns } else { 0 }
}

/// Time by which a ban may end later than at the POP that made it, in nanoseconds: a message has the time that it
/// lasts, so the time under way is added, and a region may pass on another's ban.
fn late_ns(faults: &Schedule, setup: &Setup) -> u64 {
    let by = |fault: &Fault| match *fault {
        Fault::Near(link) | Fault::Far(link) => 2 * (link.delay_ns + link.jitter_ns),
        Fault::Silence(_, ns) | Fault::StoreSlow(ns) => ns,
        Fault::PopClock(_, by_ns) => faults::lost_by_jump_ns(by_ns, setup),
        Fault::StoreClock(by_us) => by_us.unsigned_abs() * 1_000,
        _ => 0,
    };
    SLACK_NS + 2 * setup.round_trip_ns() + faults.iter().map(|(_, fault)| by(fault)).sum::<u64>()
}
