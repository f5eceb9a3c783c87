//! Requests that are paid for from what their worker has withdrawn, without a look at the table.

use super::decision::Outcome;
use super::hit::Hit;
use super::ruling::Ruling;
use crate::RuleIndex;
use crate::buckets::Standing;
use crate::limiter::Limiter;
use crate::local::PrefetchTerms;
use weir_wire::time::Time;

impl Limiter {
    /// Whether this worker withdraws tokens in advance.
    pub(crate) fn prefetches(&self) -> bool {
        cfg!(feature = "prefetch") && self.prefetches
    }

    /// Lets a request through if this worker's prefetches pay for all of its hits. If one has too little, none pays.
    pub(crate) fn pay_prefetched(&mut self, hits: &[Hit], now: Time) -> Option<Ruling> {
        if !self.prefetches() || !hits.iter().all(|hit| self.deny_cache.prefetch_at(hit.tag, now).is_some()) {
            return None;
        }
        let mut strictest: Option<(RuleIndex, Standing)> = None;
        for hit in hits {
            let terms = self.terms.get(usize::from(hit.rule))?;
            let bucket = PrefetchTerms { quota: &terms.quota, burst: terms.local_burst, cost: hit.cost };
            // An earlier hit may have paid in vain: less is let through for that, never more.
            let paid = self.deny_cache.prefetch_at(hit.tag, now)?.pay(&bucket, now)?;
            let standing = Standing::allowed(paid, &terms.quota, now);
            if strictest.is_none_or(|other| self.is_stricter((hit.rule, standing), other)) {
                strictest = Some((hit.rule, standing));
            }
        }
        for hit in hits {
            self.watch.touch_known(hit.tag, hit.cost, now);
            self.counters.count(hit.rule, |counts| &mut counts.allowed);
        }
        Some(Ruling { outcome: Outcome::Allow, strictest, hold_ns: 0 })
    }
}
