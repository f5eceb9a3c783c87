//! Batches of tokens for clients who ask often: which requests they may pay for, and how they are withdrawn.

use super::terms::Terms;
use super::{Hit, Limiter};
use crate::algorithm::Algorithm;
use crate::batch::{Fill, Whose, requests_max};
use crate::decision::Decision;
use crate::request::{AttributeId, Fetched};
use crate::rules::Rule;
use crate::rules::cost::Cost;
use crate::rules::key_spec::Missing;
use crate::rules::mode::{Enforcement, Mode};
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
    /// How long it takes the bucket to gain what one costs.
    lapse_ns: u64,
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
        let lapse_ns = rule.quota.token_ns().saturating_mul(u64::from(cost));
        let skips = rule.missing == Missing::Skip;
        Some(Self { requests, lapse_ns, by_address, by_other, skips })
    }
}

impl Limiter {
    /// Whose batch may pay for a request that the rules in `met` count; none where it must go to the table.
    #[inline]
    pub(super) fn whose(terms: &[Terms], met: &[u16], request: &mut Fetched<'_>) -> Option<Whose> {
        let (mut whose, mut rules, mut by_other) = (Whose::NOBODY, 0, None);
        for &rule in met {
            let terms = terms.get(usize::from(rule))?;
            if terms.enforcement.mode == Mode::Off {
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

    /// Tells each hit what goes back to its bucket first: what its client has not used of his last batch.
    pub(super) fn take_back(&mut self, whose: &Whose, hits: &mut [Hit]) {
        let Some(unused) = self.batches.unused(whose) else { return };
        for (hit, bucket) in hits.iter_mut().zip(unused.buckets) {
            hit.unused = Some((bucket, hit.cost.saturating_mul(unused.requests)));
        }
    }

    /// For how many requests to withdraw tokens beside what these hits take; zero where that is not worth its while.
    pub(super) fn more_for(&mut self, whose: &Whose, hits: &[Hit], now: Time) -> u32 {
        // As many as the least of their rules allows; one lapses as soon as any bucket gains what it costs.
        let all = hits.iter().try_fold((u32::MAX, u64::MAX), |(requests, lapse_ns), hit| {
            let terms = self.terms.get(usize::from(hit.rule)).and_then(|terms| terms.batch.as_ref())?;
            Some((terms.requests.min(requests), terms.lapse_ns.min(lapse_ns)))
        });
        let worth =
            all.filter(|(requests, lapse_ns)| self.batches.is_worth(whose, *requests, *lapse_ns, now));
        worth.map_or(0, |(requests, _)| requests)
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
                    (hit.withdrawn, hit.after) = (hit.cost.saturating_mul(more), cold.bucket);
                }
            }
        }
    }

    /// Notes that a client was at the table, and keeps what was withdrawn for `more` requests, if it was for each of
    /// the hits.
    pub(super) fn fill_batch(
        &mut self,
        whose: &Whose,
        hits: &[Hit],
        more: u32,
        decision: &Decision,
        now: Time,
    ) {
        let fill = self.filled(hits, more, decision, now);
        self.batches.fill(whose, fill, now);
    }

    fn filled(&self, hits: &[Hit], requests: u32, decision: &Decision, now: Time) -> Option<Fill> {
        let mut fill = Fill { requests, strictest: decision.strictest?, ..Fill::EMPTY };
        for (hit, bucket) in hits.iter().zip(&mut fill.buckets) {
            *bucket = (hit.withdrawn > 0).then_some(hit.after)?;
        }
        let first = hits.iter().map(|hit| hit.after.refilled()).min()?;
        fill.lapsed_at = first;
        fill.lapse_ns = match hits {
            [hit] => self.terms.get(usize::from(hit.rule))?.batch.as_ref()?.lapse_ns,
            // Each rule's lapse along a line of its own, of which none is below this one: all of them now, and none
            // when the first rule's have.
            _ => first.nanos_since(now).div_ceil(u64::from(requests.max(1))),
        };
        Some(fill)
    }
}
