//! What one ideal limiter would have admitted: a bucket for each rule, at one place, that hears of
//! everything at once. A request passes where every rule that counts it has room, and takes from all.

use weir_limiter::quota::Quota;

use super::account::Meter;

/// The buckets of one client, by rule.
#[derive(Clone, Debug)]
pub struct Ideal {
    buckets: Vec<Bucket>,
    /// By rule; empty where they do not matter.
    at_pops: Vec<AtPops>,
}

/// The buckets that POPs have of their own for one client under one rule.
#[derive(Clone, Debug)]
pub struct AtPops {
    /// What each misses, by POP.
    pub missing: Vec<Meter>,
    /// What each withholds at any time, in nanoseconds of refill: a POP gives the local burst of a key that the fleet
    /// has not heard of.
    pub withheld_ns: u64,
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

    /// A request at `pop` and `now` that costs so many tokens under each of these rules; whether it passes.
    pub fn take(&mut self, costs: &[(usize, u32)], pop: usize, now: u64) -> bool {
        let fits = costs.iter().all(|&(rule, cost)| self.has_room(rule, cost, pop, now));
        if fits {
            for &(rule, cost) in costs {
                let bucket = &mut self.buckets[rule];
                bucket.meter.take(bucket.quota, cost, now);
                bucket.admitted += u64::from(cost);
                if let Some(at_pops) = self.at_pops.get_mut(rule) {
                    at_pops.missing_ns(pop, now);
                    at_pops.missing[pop].take(bucket.quota, cost, now);
                }
            }
        }
        fits
    }

    fn has_room(&mut self, rule: usize, cost: u32, pop: usize, now: u64) -> bool {
        let bucket = &mut self.buckets[rule];
        let price_ns = bucket.quota.token_ns() * u64::from(cost);
        let at_pops = self.at_pops.get_mut(rule);
        bucket.has_room(price_ns, now)
            && at_pops.is_none_or(|at| at.missing_ns(pop, now) + price_ns <= bucket.quota.fill_ns())
    }

    /// Tokens that passed under `rule`.
    pub fn admitted(&self, rule: usize) -> u64 {
        self.buckets[rule].admitted
    }
}

impl AtPops {
    fn missing_ns(&mut self, pop: usize, now: u64) -> u64 {
        let meter = &mut self.missing[pop];
        let missing_ns = meter.deficit_ns(now).max(self.withheld_ns);
        meter.set(missing_ns, now);
        missing_ns
    }
}

impl Bucket {
    fn has_room(&mut self, price_ns: u64, now: u64) -> bool {
        let most_ns = self.quota.fill_ns().saturating_sub(self.kept_ns);
        // What costs more than is not kept back passes where nothing is missing but that.
        self.meter.deficit_ns(now) + price_ns <= most_ns.max(price_ns).min(self.quota.fill_ns())
    }
}
