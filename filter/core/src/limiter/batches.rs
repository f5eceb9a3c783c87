//! Batches of tokens for clients that ask often: which requests they may pay for, and how they are withdrawn.

use super::ruling::Ruling;
use super::terms::Terms;
use super::{Hit, Limiter};
use crate::algorithm::Algorithm;
use crate::batch::{Stretch, Whose, requests_max};
use crate::request::{AttributeId, Fetched};
use crate::rules::Rule;
use crate::rules::cost::Cost;
use crate::rules::key_spec::Missing;
use crate::rules::mode::Enforcement;
use crate::slot::{Cold, Entry};
use crate::table::Loaded;
use crate::time::Time;

/// A bucket that lacks more than one part in so many of its burst gives no batch.
const WITHDRAWN_PART: u32 = 4;

/// How a rule's requests are paid from batches.
#[derive(Clone, Copy)]
pub(super) struct BatchTerms {
    /// For how many a batch may pay.
    requests: u32,
    /// What one costs, in nanoseconds of the bucket's refill.
    cost_ns: u64,
    by_address: bool,
    by_other: Option<AttributeId>,
    /// Whether it does not count a request without that.
    skips: bool,
}

impl BatchTerms {
    /// Whether any rule's requests are ever paid from batches.
    pub(super) fn are_used(terms: &[Terms]) -> bool {
        terms.iter().any(|terms| terms.batch.is_some())
    }

    /// None where each request must go to the table: because its cost or its key is not known beforehand, because more
    /// is kept of it than a token bucket, because its client is told what is left, or because the quota is too small.
    pub(super) fn of(rule: &Rule) -> Option<Self> {
        let Cost::Fixed(cost) = rule.cost else { return None };
        let is_plain = matches!(rule.algorithm, Algorithm::TokenBucket(_))
            && !rule.sharing.strict
            && rule.sharing.calendar.is_none()
            && rule.penalty.is_none()
            && rule.after.is_none()
            && rule.enforcement == Enforcement::default()
            && !rule.response.on_allowed;
        let (by_address, by_other) = rule.key.plain_parts().filter(|_| is_plain)?;
        let requests = requests_max(rule.quota.burst(), rule.quota.token_ns(), cost)?;
        let cost_ns = rule.quota.token_ns().saturating_mul(u64::from(cost));
        let skips = rule.missing == Missing::Skip;
        Some(Self { requests, cost_ns, by_address, by_other, skips })
    }
}

impl Limiter {
    /// Whose batch may pay for a request that the rules in `met` count; none where it must go to the table.
    #[inline]
    pub(super) fn whose(terms: &[Terms], met: &[u16], request: &mut Fetched<'_>) -> Option<Whose> {
        let (mut whose, mut rules, mut by_other) = (Whose::NOBODY, 0, None);
        for &rule in met {
            let terms = terms.get(usize::from(rule))?;
            if terms.is_off() {
                continue;
            }
            let batch = terms.batch.as_ref()?;
            if batch.by_address {
                whose.from(request.client_address()?);
            }
            match batch.by_other {
                None => {}
                Some(id) if by_other == Some(id) => {}
                Some(id) if by_other.is_none() => match request.get(id) {
                    Some(value) => {
                        whose.with(value)?;
                        by_other = Some(id);
                    }
                    None if batch.skips => continue,
                    None => return None,
                },
                Some(_) => return None,
            }
            whose.by(rules, rule)?;
            rules += 1;
        }
        (rules > 0).then(|| whose.known())
    }

    /// Tells each hit what its client has not used of its last batch.
    pub(super) fn take_back(&mut self, whose: &Whose, hits: &mut [Hit]) {
        for (hit, stretch) in hits.iter_mut().zip(self.batches.unused(whose)) {
            hit.unused = Some(stretch);
        }
    }

    /// For how many requests to withdraw tokens beside what these hits take; zero where that is not worth its while.
    pub(super) fn more_for(&mut self, whose: &Whose, hits: &[Hit], now: Time) -> u32 {
        // As many as the least of their rules allows, for as long as the quickest of their buckets takes to gain them.
        let all = hits.iter().try_fold((u32::MAX, u64::MAX), |(requests, cost_ns), hit| {
            let terms = self.terms.get(usize::from(hit.rule)).and_then(|terms| terms.batch.as_ref())?;
            Some((terms.requests.min(requests), terms.cost_ns.min(cost_ns)))
        });
        let (requests, cost_ns) = all.unwrap_or((0, 0));
        let lasts_ns = cost_ns.saturating_mul(u64::from(requests));
        if requests > 0 && self.batches.is_worth(whose, lasts_ns, now) { requests } else { 0 }
    }

    /// Withdraws tokens for `more` requests for each hit of these slots, in their copies, or for none of them: most of
    /// each burst stays where every worker finds it.
    pub(super) fn withdraw(&self, loaded: &mut [Loaded], hits: &mut [Hit], more: u32, now: Time) {
        if more == 0 {
            return;
        }
        let without = |loaded: &Loaded, hit: &Hit| -> Option<Cold> {
            let terms = self.terms.get(usize::from(hit.rule)).filter(|_| hit.judged.tag == hit.tag)?;
            let Entry::Cold(cold) = loaded.slot.get(hit.tag)? else { return None };
            let (tokens, most) = (hit.cost.saturating_mul(more), terms.quota.burst() / WITHDRAWN_PART);
            Some(Cold { bucket: cold.bucket.withdraw(&terms.quota, tokens, most, now)?, ..cold })
        };
        let is_there = |loaded: &Loaded| {
            hits.iter().filter(|hit| hit.slot == loaded.index).all(|hit| without(loaded, hit).is_some())
        };
        if !loaded.iter().all(is_there) {
            return;
        }
        for loaded in loaded {
            for hit in hits.iter_mut().filter(|hit| hit.slot == loaded.index) {
                // The entry is there, so it has its room.
                if let Some(cold) = without(loaded, hit)
                    && loaded.slot.put(hit.tag, &Entry::Cold(cold), now).is_some()
                {
                    hit.withdrawn = Some(cold.bucket);
                }
            }
        }
    }

    /// Keeps what was withdrawn, if it was for each of the hits, for the client of a request that was allowed.
    pub(super) fn keep_batch(&mut self, whose: &Whose, hits: &[Hit], decision: &Ruling, now: Time) {
        self.batches.forget(whose);
        self.batches.see(whose, now);
        let is_whole = hits.iter().all(|hit| hit.withdrawn.is_some());
        let Some(strictest) = decision.strictest.filter(|_| is_whole) else { return };
        let terms = &self.terms;
        let stretch = |hit: &Hit| {
            let terms = terms.get(usize::from(hit.rule)).and_then(|terms| terms.batch.as_ref())?;
            Some(Stretch { paid: hit.after, until: hit.withdrawn?, cost_ns: terms.cost_ns })
        };
        self.batches.fill(whose, hits.iter().filter_map(stretch), strictest);
    }
}
