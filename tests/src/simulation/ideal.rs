//! What one ideal limiter would have admitted: a bucket for each rule, at one place, that hears of
//! everything at once. A request passes where every rule that counts it has room, and takes from all.

use weir_budget::demand::WINDOW_NS;
use weir_limiter::quota::Quota;

use super::account::Meter;

/// The buckets of one client, by rule.
#[derive(Clone, Debug)]
pub struct Ideal {
    buckets: Vec<Bucket>,
    /// By rule; empty where they do not matter.
    at_pops: Vec<AtPops>,
}

/// Where and when a request comes.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Which POP.
    pub pop: usize,
    /// When, in nanoseconds from the begin of the traffic.
    pub now: u64,
    /// When the POP made the report whose answer it heard last.
    pub heard_at: u64,
}

/// A POP that was not asked for so long holds what those do that are not asked, in nanoseconds.
const AWAY_NS: u64 = 2 * WINDOW_NS;
/// Of a client that was seen at many POPs, a POP that is not asked holds so many requests, ...
const LUMP: u32 = 2;
/// ... which refill so many times faster than an even part of the rate.
const UNEVEN: u64 = 5;

/// The buckets that POPs have of their own for one client under one rule.
#[derive(Clone, Debug)]
pub struct AtPops {
    by_pop: Vec<AtPop>,
    /// What each withholds at any time, in nanoseconds of refill: a POP gives the local burst of a key that the fleet
    /// has not heard of.
    withheld_ns: u64,
    /// At how many POPs at once the client was seen of late.
    spread: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct AtPop {
    /// What its bucket misses.
    missing: Meter,
    asked_at: Option<u64>,
    /// When the client came, and what misses since of what the POP holds until it hears more.
    came_at: u64,
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
    /// Buckets of these quotas that begin with these deficits, and keep back so many nanoseconds of refill.
    pub fn new(buckets: impl Iterator<Item = (Quota, Meter, u64)>) -> Self {
        let bucket = |(quota, meter, kept_ns)| Bucket { quota, kept_ns, meter, admitted: 0 };
        Self { buckets: buckets.map(bucket).collect(), at_pops: Vec::new() }
    }

    /// The same where a request passes only if its POP's own buckets have room, too: these, by rule.
    #[must_use]
    pub fn with_buckets_at_pops(self, at_pops: Vec<AtPops>) -> Self {
        Self { at_pops, ..self }
    }

    /// A request that costs so many tokens under each of these rules; whether it passes.
    pub fn take(&mut self, costs: &[(usize, u32)], at: At) -> bool {
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

    /// At how many POPs at once the client was seen of late, by rule.
    pub fn remember(&mut self, spreads: impl Iterator<Item = u32>) {
        self.at_pops.iter_mut().zip(spreads).for_each(|(at_pops, spread)| at_pops.spread = spread);
    }

    /// What the bucket of `rule` misses at `now`, in nanoseconds of refill.
    pub fn deficit_ns(&self, rule: usize, now: u64) -> u64 {
        let mut meter = self.buckets[rule].meter;
        meter.deficit_ns(now)
    }

    /// Tokens that passed under `rule`.
    pub fn admitted(&self, rule: usize) -> u64 {
        self.buckets[rule].admitted
    }
}

impl AtPops {
    /// Buckets that miss this, by POP, and withhold that at any time.
    pub fn new(missing: Vec<Meter>, withheld_ns: u64) -> Self {
        let by_pop = missing.into_iter().map(|missing| AtPop { missing, ..AtPop::default() }).collect();
        Self { by_pop, withheld_ns, spread: 0 }
    }

    fn has_room(&mut self, quota: Quota, cost: u32, At { pop, now, heard_at }: At) -> bool {
        let held = self.held(quota, cost);
        let at_pop = &mut self.by_pop[pop];
        if at_pop.asked_at.is_none_or(|asked_at| asked_at + AWAY_NS < now) {
            (at_pop.came_at, at_pop.held) = (now, Meter::default());
        }
        at_pop.asked_at = Some(now);
        let mut least_ns = self.withheld_ns;
        if self.spread > 1 && heard_at < at_pop.came_at {
            let holds_ns = held.fill_ns().saturating_sub(at_pop.held.deficit_ns(now));
            // In nanoseconds of the whole rate: what it holds refills more slowly.
            let holds_ns = holds_ns / (held.token_ns() / quota.token_ns());
            least_ns = least_ns.max(quota.fill_ns().saturating_sub(holds_ns));
        }
        let missing_ns = at_pop.missing.deficit_ns(now).max(least_ns);
        at_pop.missing.set(missing_ns, now);
        missing_ns + quota.token_ns() * u64::from(cost) <= quota.fill_ns()
    }

    fn take(&mut self, quota: Quota, cost: u32, At { pop, now, .. }: At) {
        let held = self.held(quota, cost);
        let at_pop = &mut self.by_pop[pop];
        at_pop.missing.take(quota, cost, now);
        at_pop.held.take(held, cost, now);
    }

    /// What a POP holds for the client until it hears more.
    fn held(&self, quota: Quota, cost: u32) -> Quota {
        let spread = self.spread.max(1);
        let most = u32::try_from((quota.fill_ns() - self.withheld_ns) / quota.token_ns()).unwrap_or(u32::MAX);
        let burst = (most / spread).max(LUMP.min(quota.burst() / 4).max(1) * cost).max(1);
        let token_ns = quota.token_ns() * (u64::from(spread) / UNEVEN).max(1);
        Quota::from_token_ns(token_ns, burst).unwrap_or(quota)
    }
}

impl Bucket {
    fn has_room(&mut self, price_ns: u64, now: u64) -> bool {
        let most_ns = self.quota.fill_ns().saturating_sub(self.kept_ns);
        // What costs more than is not kept back passes where nothing is missing but that.
        self.meter.deficit_ns(now) + price_ns <= most_ns.max(price_ns).min(self.quota.fill_ns())
    }
}
