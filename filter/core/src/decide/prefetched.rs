//! Requests that are paid for from what their worker has withdrawn, without a look at the table.

use super::decision::Outcome;
use super::hit::Hit;
use super::ruling::Ruling;
use crate::RuleIndex;
use crate::buckets::Standing;
use crate::limiter::Limiter;
use crate::local::{Prefetch, PrefetchTerms};
use weir_wire::time::Time;

impl Limiter {
    /// Whether this worker withdraws tokens in advance.
    pub(crate) fn prefetches(&self) -> bool {
        cfg!(feature = "prefetch") && self.prefetches
    }

    /// Lets a request through if this worker's prefetches pay for all of its hits. If one has too little, none pays.
    pub(crate) fn pay_prefetched(&mut self, hits: &[Hit], now: Time) -> Option<Ruling> {
        if !self.prefetches() {
            return None;
        }
        let mut strictest: Option<(RuleIndex, Standing)> = None;
        for hit in hits {
            let (standing, ..) = self.pay_by(hit, now)?;
            if strictest.is_none_or(|other| self.is_stricter((hit.rule, standing), other)) {
                strictest = Some((hit.rule, standing));
            }
        }
        for hit in hits {
            let Some((_, paid, place)) = self.pay_by(hit, now) else { continue };
            *place = paid;
            let known = self.watch.touch_known(hit.tag, hit.cost, now);
            if let Some(key) = known.filter(|_| !paid.is_of_share()) {
                key.admitted_unadded = key.admitted_unadded.saturating_add(hit.cost);
            }
            self.counters.count(hit.rule, |counts| &mut counts.allowed);
        }
        Some(Ruling { outcome: Outcome::Allow, strictest, hold_ns: 0 })
    }

    /// How `hit` stands if its key's prefetch pays for it, the prefetch as it is then, and where it is kept; none if it
    /// has too little, or if what is spent could not be counted.
    fn pay_by(&mut self, hit: &Hit, now: Time) -> Option<(Standing, Prefetch, &mut Prefetch)> {
        let terms = self.terms.get(usize::from(hit.rule))?;
        let bucket = PrefetchTerms { quota: &terms.quota, burst: terms.local_burst, cost: hit.cost };
        let place = self.deny_cache.prefetch_at(hit.tag, now)?;
        let mut paid = *place;
        let standing = Standing::allowed(paid.pay(&bucket, now)?, &terms.quota, now);
        let is_counted = paid.is_of_share() || self.watch.get_mut(hit.tag.bits()).is_some();
        is_counted.then_some((standing, paid, place))
    }
}
