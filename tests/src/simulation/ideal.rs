//! What an ideal limiter would admit: a bucket for each rule, in one place, that knows of everything at once. A
//! request passes if every rule that counts it has room, and takes from all of them.
//!
//! And what a POP or a region may admit that is alone for a while: a POP is alone if it does not reach its weir-sync
//! and its leases have ended; a region, if it does not reach the store.

use weir_budget::demand::WINDOW_NS;
use weir_limiter::sync::connectivity::FALLBACK_NS;
use weir_protocol::quota::Quota;
use weir_protocol::sharing::OnSyncLoss;
use weir_protocol::time::SECOND_NS;

use super::account::{Meter, Tally};
use super::faults::{Fault, Schedule};
use super::setup::Setup;
use super::stretch::{SHORTEST_NS, Span};

/// The buckets of one client, by rule.
#[derive(Clone, Debug)]
pub(super) struct Ideal {
    buckets: Vec<Bucket>,
    /// By rule; empty if they do not matter.
    at_pops: Vec<AtPops>,
}

/// The place and time of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) pop: usize,
    /// When, in nanoseconds from the begin of the traffic.
    pub(super) now: u64,
    /// The time of the POP's latest report that was answered.
    pub(super) reported_at: u64,
    /// True if the POP refused it because the maximum number of requests waited at its worker.
    pub(super) is_crowded: bool,
}

/// After how long without a request a POP holds what POPs hold that are not asked, in nanoseconds.
const AWAY_NS: u64 = 2 * WINDOW_NS;
/// The number of requests that a POP that is not asked holds for a client that was seen at many POPs, ...
const LUMP: u32 = 2;
/// ... and how many times faster than an even part of the rate they refill.
const UNEVEN: u64 = 5;

/// The buckets that POPs have of their own for one client under one rule.
#[derive(Clone, Debug)]
pub(super) struct AtPops {
    by_pop: Vec<AtPop>,
    /// The amount that each withholds at any time, in nanoseconds of refill: a POP gives only the local burst for a key
    /// that the fleet does not know.
    withheld_ns: u64,
    /// Between two reports of a POP, and from a report to the answer to the next, in nanoseconds.
    interval_ns: u64,
    news_ns: u64,
    /// At how many POPs at once the client was seen recently.
    fan_out: u32,
    /// The deficit of a bucket that pays for everything asked for, and when it last had too little.
    asked: Meter,
    short_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct AtPop {
    missing: Meter,
    asked_at: Option<u64>,
    /// The time at which the client came, and the tokens that it has asked for since.
    came_at: u64,
    asked: u64,
    /// The POP's quota since its last grant, the time of that grant's report, ...
    granted_at: u64,
    holds: Option<Quota>,
    /// ... and what has been taken of it.
    held: Meter,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    quota: Quota,
    /// The part of the burst that is kept back, in nanoseconds of refill.
    kept_ns: u64,
    meter: Meter,
    admitted: u64,
}

impl Ideal {
    /// Buckets of these quotas that begin with these deficits, and keep back this many nanoseconds of refill.
    pub(super) fn new(buckets: impl Iterator<Item = (Quota, Meter, u64)>) -> Self {
        let bucket = |(quota, meter, kept_ns)| Bucket { quota, kept_ns, meter, admitted: 0 };
        Self { buckets: buckets.map(bucket).collect(), at_pops: Vec::new() }
    }

    /// The same, but a request passes only if its POP's own buckets (`at_pops`, by rule) have room, too.
    #[must_use]
    pub(super) fn with_buckets_at_pops(self, at_pops: Vec<AtPops>) -> Self {
        Self { at_pops, ..self }
    }

    /// Takes a request's cost under each of these rules; returns whether the request passes.
    pub(super) fn take(&mut self, costs: &[(usize, u32)], at: At) -> bool {
        let fits = costs.iter().all(|&(rule, cost)| self.has_room(rule, cost, at));
        if fits {
            for &(rule, cost) in costs {
                let bucket = &mut self.buckets[rule];
                bucket.meter.take(bucket.quota, cost, at.now);
                bucket.admitted += u64::from(cost);
                if let Some(at_pops) = self.at_pops.get_mut(rule) {
                    at_pops.take(bucket.quota, cost, at);
                }
            }
        }
        fits
    }

    fn has_room(&mut self, rule: usize, cost: u32, at: At) -> bool {
        let bucket = &mut self.buckets[rule];
        let price_ns = bucket.quota.token_ns() * u64::from(cost);
        let at_pops = self.at_pops.get_mut(rule);
        let has_room_there = at_pops.is_none_or(|at_pops| at_pops.has_room(bucket.quota, cost, at));
        bucket.has_room(price_ns, at.now) && has_room_there
    }

    /// Notes at how many POPs at once the client was seen recently, by rule.
    pub(super) fn remember(&mut self, fan_outs: impl Iterator<Item = u32>) {
        self.at_pops.iter_mut().zip(fan_outs).for_each(|(at_pops, fan_out)| at_pops.fan_out = fan_out);
    }

    /// The deficit of the bucket of `rule` at `now`, in nanoseconds of refill.
    pub(super) fn deficit_ns(&self, rule: usize, now: u64) -> u64 {
        let mut meter = self.buckets[rule].meter;
        meter.deficit_ns(now)
    }

    /// Tokens that passed under `rule`.
    pub(super) fn admitted(&self, rule: usize) -> u64 {
        self.buckets[rule].admitted
    }
}

impl AtPops {
    /// Buckets that lack `missing`, by POP, and withhold `withheld_ns` at any time. POPs report after each interval,
    /// and the answer to the next report arrives `news_ns` after a report.
    pub(super) fn new(missing: Vec<Meter>, withheld_ns: u64, (interval_ns, news_ns): (u64, u64)) -> Self {
        let by_pop = missing.into_iter().map(|missing| AtPop { missing, ..AtPop::default() }).collect();
        let (fan_out, asked, short_at) = (0, Meter::default(), None);
        Self { by_pop, withheld_ns, interval_ns, news_ns, fan_out, asked, short_at }
    }

    fn has_room(&mut self, quota: Quota, cost: u32, at: At) -> bool {
        let At { pop, now, .. } = at;
        if !self.asked.take_if_there(quota, cost, now) {
            self.short_at = Some(now);
        }
        self.come(at, cost);
        let mut least_ns = self.withheld_ns;
        if let Some(holds) = self.holds(quota, cost, at) {
            let holds_ns = holds.fill_ns().saturating_sub(self.by_pop[pop].held.deficit_ns(now));
            // In nanoseconds of the whole rate: what it holds refills more slowly.
            let holds_ns = holds_ns / (holds.token_ns() / quota.token_ns());
            least_ns = least_ns.max(quota.fill_ns().saturating_sub(holds_ns));
        }
        let at_pop = &mut self.by_pop[pop];
        let missing_ns = at_pop.missing.deficit_ns(now).max(least_ns);
        at_pop.missing.set(missing_ns, now);
        missing_ns + quota.token_ns() * u64::from(cost) <= quota.fill_ns()
    }

    /// A request comes to a POP, which may not have been asked recently.
    fn come(&mut self, At { pop, now, reported_at, .. }: At, cost: u32) {
        // A POP counts as away after `AWAY_NS`; if requests are cut, as soon as a report that does not name the client
        // is answered.
        let is_cut = self.short_at.is_some_and(|at| at + AWAY_NS > now);
        let at_pop = &mut self.by_pop[pop];
        let is_away = |asked_at| asked_at + AWAY_NS < now || is_cut && asked_at + self.interval_ns < reported_at;
        if at_pop.asked_at.is_none_or(is_away) {
            *at_pop = AtPop { missing: at_pop.missing, came_at: now, ..AtPop::default() };
        }
        at_pop.asked_at = Some(now);
        at_pop.asked += u64::from(cost);
    }

    /// A POP's quota for the client until its demand has been answered: a window after the client came.
    fn holds(&mut self, quota: Quota, cost: u32, At { pop, now, reported_at, .. }: At) -> Option<Quota> {
        let at_pop = self.by_pop[pop];
        if self.fan_out <= 1 || reported_at >= at_pop.came_at + WINDOW_NS {
            return None;
        }
        let has_grant = reported_at >= at_pop.came_at;
        if at_pop.holds.is_none() || has_grant && reported_at > at_pop.granted_at {
            let holds = if has_grant {
                let askers = self.by_pop.iter().filter(|other| other.asked_at.is_some_and(|at| at + AWAY_NS > now));
                let pops = self.fan_out.min(u32::try_from(askers.count()).unwrap_or(u32::MAX));
                // The part of what was asked for since it came that came before that report.
                let since_ns = (now - at_pop.came_at).max(1);
                let reported =
                    u128::from(at_pop.asked) * u128::from(reported_at - at_pop.came_at) / u128::from(since_ns);
                self.part(quota, cost, pops, u64::try_from(reported).unwrap_or(u64::MAX))
            } else {
                self.part(quota, cost, self.fan_out, 0)
            };
            let at_pop = &mut self.by_pop[pop];
            (at_pop.holds, at_pop.granted_at, at_pop.held) = (Some(holds), reported_at, Meter::default());
        }
        self.by_pop[pop].holds
    }

    fn take(&mut self, quota: Quota, cost: u32, At { pop, now, .. }: At) {
        let at_pop = &mut self.by_pop[pop];
        at_pop.missing.take(quota, cost, now);
        if let Some(holds) = at_pop.holds {
            at_pop.held.take(holds, cost, now);
        }
    }

    /// A POP's quota for a client that was seen at `pops` at once, if the POP's demand was `reported` tokens in a
    /// window.
    fn part(&self, quota: Quota, cost: u32, pops: u32, reported: u64) -> Quota {
        let most = u32::try_from((quota.fill_ns() - self.withheld_ns) / quota.token_ns()).unwrap_or(u32::MAX);
        let (rate, lump) = (likely(reported, SECOND_NS, 3), likely(reported, self.news_ns, 2));
        let lump = u32::try_from(lump).unwrap_or(u32::MAX).max(LUMP.min(quota.burst() / 4).max(1) * cost).min(most);
        let quickest = SECOND_NS / rate.saturating_mul(quota.token_ns()).max(1);
        let slowest = (self.news_ns / quota.token_ns()).max(1);
        let parts = (u64::from(pops) / UNEVEN).min(quickest).clamp(1, slowest);
        // A token is charged as many times as there are parts; for the last token, one must be there.
        let in_parts = u32::try_from(parts).unwrap_or(u32::MAX);
        let burst = ((most / pops.max(1)).saturating_sub(1) / in_parts + 1).max(lump).max(1);
        let token_ns = quota.token_ns() * parts;
        Quota::from_token_ns(token_ns, burst).unwrap_or(quota)
    }
}

/// The expected number in `ns` if `reported` came in a window, plus `deviations` standard deviations.
fn likely(reported: u64, ns: u64, deviations: u8) -> u64 {
    let mean = reported as f64 * ns as f64 / WINDOW_NS as f64;
    (mean + f64::from(deviations) * mean.sqrt()) as u64
}

impl Bucket {
    fn has_room(&mut self, price_ns: u64, now: u64) -> bool {
        let most_ns = self.quota.fill_ns().saturating_sub(self.kept_ns);
        // A request that costs more than the rest passes if nothing is missing but what is kept back.
        self.meter.deficit_ns(now) + price_ns <= most_ns.max(price_ns).min(self.quota.fill_ns())
    }
}

/// Time after the store is out of reach until a region goes by its share, in nanoseconds, beside messages under way.
const ALONE_NS: u64 = 2 * SECOND_NS;

/// The part that is alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Pop(usize),
    /// All POPs of a region, which its weir-sync still answers.
    Region(usize),
}

/// A POP or a region that is alone, with the clients of the one rule.
#[derive(Clone, Debug)]
pub(super) struct Apart {
    pub(super) who: Who,
    /// From when to when it goes by its own state.
    pub(super) span: Span,
    /// By client; empty until the first request.
    pub(super) own: Vec<Own>,
}

/// One client's tally there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) quota: Quota,
    /// The tokens that a bucket of its own would have admitted.
    pub(super) ideally: u64,
    /// The tokens asked for and admitted.
    pub(super) tally: Tally,
    meter: Meter,
    withheld_ns: u64,
    /// The price of a token in tokens; `None` if nothing passes.
    price: Option<u64>,
}

impl Own {
    /// At a POP, one of `pops`, whose bucket for the client lacks `meter` and withholds `withheld_ns`.
    pub(super) fn of_pop(quota: Quota, meter: Meter, withheld_ns: u64, when: OnSyncLoss, pops: usize) -> Self {
        let price = match when {
            OnSyncLoss::Local => Some(1),
            OnSyncLoss::Share => Some(pops as u64),
            OnSyncLoss::Deny => None,
        };
        Self { quota, ideally: 0, tally: Tally::default(), meter, withheld_ns, price }
    }

    pub(super) fn of_region(quota: Quota, here: u32, pops: u32) -> Self {
        let token_ns = quota.token_ns() * u64::from(pops) / u64::from(here);
        let burst = (quota.burst() * here / pops).max(1);
        let quota = Quota::from_token_ns(token_ns, burst).expect("a part of a good quota");
        let (tally, meter) = (Tally::default(), Meter::default());
        Self { quota, ideally: 0, tally, meter, withheld_ns: 0, price: Some(1) }
    }

    pub(super) fn offer(&mut self, cost: u32, now: u64) {
        self.tally.offered += u64::from(cost);
        let Some(price) = self.price else { return };
        let price_ns = self.quota.token_ns() * u64::from(cost) * price;
        let missing_ns = self.meter.deficit_ns(now).max(self.withheld_ns);
        if missing_ns + price_ns <= self.quota.fill_ns().max(price_ns) {
            self.meter.set(missing_ns + price_ns, now);
            self.ideally += u64::from(cost);
        }
    }
}

impl Apart {
    /// True if a request at `pop` and `now` comes to the POP or region that is alone.
    pub(super) fn counts(&self, pop: usize, regions: usize, now: u64) -> bool {
        let is_there = match self.who {
            Who::Pop(alone) => pop == alone,
            Who::Region(region) => pop % regions == region,
        };
        is_there && (self.span.0..self.span.1).contains(&now)
    }
}

/// The parts that are alone, with their times, as far as that can be predicted.
pub(super) fn foreseen(schedule: &Schedule, setup: &Setup) -> Vec<Apart> {
    let [_] = setup.rules.as_slice() else { return Vec::new() };
    let cut = |(i, (at, fault)): (usize, &(u64, Fault))| {
        let later = &schedule[i + 1..];
        let (who, is_end): (Who, fn(&Fault) -> bool) = match *fault {
            Fault::CutPop(pop, true) => (Who::Pop(pop), |fault| matches!(fault, Fault::CutPop(..))),
            Fault::CutRegion(region, true) => (Who::Region(region), |fault| matches!(fault, Fault::CutRegion(..))),
            _ => return None,
        };
        let (until, _) = later.iter().find(|(_, fault)| is_end(fault))?;
        let (alone_ns, mut from) = match who {
            Who::Pop(_) => (FALLBACK_NS + setup.terms.lease_max_ns, *at),
            Who::Region(_) => (ALONE_NS, *at),
        };
        // A weir-sync's crash delays the begin, and other cuts of the same kind do not matter; all else rules it out.
        for (at, fault) in schedule.iter().take_while(|(at, _)| at < until) {
            match (fault, who) {
                (Fault::SyncCrash(_) | Fault::SyncStart(_), _) => from = from.max(*at),
                (Fault::CutPop(..), Who::Pop(_)) | (Fault::CutRegion(..), Who::Region(_)) => {}
                _ => return None,
            }
        }
        let from = from + alone_ns + setup.recovery_ns();
        (from + SHORTEST_NS <= *until).then_some(Apart { who, span: (from, *until), own: Vec::new() })
    };
    schedule.iter().enumerate().filter_map(cut).collect()
}
