//! What one ideal limiter would have admitted: a bucket for each rule, at one place, that hears of
//! everything at once. A request passes where every rule that counts it has room, and takes from all.

use weir_limiter::quota::Quota;

use super::account::Meter;

/// The buckets of one client, by rule.
#[derive(Clone, Debug)]
pub struct Ideal {
    buckets: Vec<Bucket>,
    /// What every POP's own buckets miss, by rule, then by POP; empty where they do not matter.
    at_pops: Vec<Vec<Meter>>,
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

    /// The same where a request passes only if its POP's own buckets have room, too: these, by rule, then by POP.
    #[must_use]
    pub fn with_buckets_at_pops(self, at_pops: Vec<Vec<Meter>>) -> Self {
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
                if let Some(at_pop) = self.at_pops.get_mut(rule) {
                    at_pop[pop].take(bucket.quota, cost, now);
                }
            }
        }
        fits
    }

    fn has_room(&mut self, rule: usize, cost: u32, pop: usize, now: u64) -> bool {
        let bucket = &mut self.buckets[rule];
        let price_ns = bucket.quota.token_ns() * u64::from(cost);
        let at_pop = self.at_pops.get_mut(rule);
        bucket.has_room(price_ns, now)
            && at_pop.is_none_or(|at_pop| at_pop[pop].deficit_ns(now) + price_ns <= bucket.quota.fill_ns())
    }

    /// Tokens that passed under `rule`.
    pub fn admitted(&self, rule: usize) -> u64 {
        self.buckets[rule].admitted
    }
}

impl Bucket {
    fn has_room(&mut self, price_ns: u64, now: u64) -> bool {
        let most_ns = self.quota.fill_ns().saturating_sub(self.kept_ns);
        // What costs more than is not kept back passes where nothing is missing but that.
        self.meter.deficit_ns(now) + price_ns <= most_ns.max(price_ns).min(self.quota.fill_ns())
    }
}
