//! The quota status for a client: that of the strictest rule among those that publish theirs.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::decision::{Beside, Policy, QuotaStatus};
use super::hit::Hit;
use super::hit_result::HitDecision;
use super::keys::KeyId;
use super::terms::RuleTerms;
use crate::RuleIndex;
use crate::buckets::BucketStatus;
use crate::limiter::Limiter;
use weir_rules::key::KeyValue;

/// A rule that counted the request, and the key it counted by.
pub(super) type CountedKey = (RuleIndex, KeyId);

impl Limiter {
    /// The quota status for an allowed request; none if none of these rules publishes its status.
    pub(super) fn status_of_allowed(
        &self,
        counted: impl Iterator<Item = (CountedKey, BucketStatus)> + Clone,
    ) -> Option<Box<QuotaStatus>> {
        let tells = |(rule, _): &CountedKey| self.terms_of(*rule).is_some_and(|terms| terms.is_told);
        let told = counted.filter(|(counted, _)| tells(counted));
        let strictest = told.clone().reduce(|known, other| {
            let is_stricter = self.is_stricter((other.0.0, other.1), (known.0.0, known.1));
            if is_stricter { other } else { known }
        });
        strictest.map(|((rule, _), standing)| {
            Box::new(self.status(rule, standing, told.map(|(counted, _)| counted)))
        })
    }

    /// The status of `rule`, with the policies of the other rules that counted the request.
    #[inline]
    pub(super) fn status(
        &self,
        rule: RuleIndex,
        standing: BucketStatus,
        counted: impl Iterator<Item = CountedKey> + Clone,
    ) -> QuotaStatus {
        let beside = if self.tells_more { self.beside(rule, counted) } else { None };
        QuotaStatus { rule, standing, beside }
    }

    #[inline(never)]
    fn beside(
        &self,
        rule: RuleIndex,
        counted: impl Iterator<Item = CountedKey> + Clone,
    ) -> Option<Box<Beside>> {
        let tells = |(other, _): &CountedKey| {
            *other != rule && self.terms_of(*other).is_some_and(|terms| terms.tells_policy)
        };
        let own = counted.clone().find(|(counted, _)| *counted == rule);
        let partition = own.map_or(Vec::new(), |own| self.partition(own));
        let policy = |other: CountedKey| Policy { rule: other.0, partition: self.partition(other) };
        let others: Vec<_> = counted.filter(tells).map(policy).collect();
        let is_any = !(partition.is_empty() && others.is_empty());
        is_any.then(|| Box::new(Beside { partition, others }))
    }

    fn partition(&self, (rule, key): CountedKey) -> Vec<u8> {
        let is_clear = self.terms_of(rule).is_some_and(|terms| terms.is_clear);
        let value = || KeyValue::clear_part(self.keys.value(key).as_bytes()).map(|(_, value)| value.to_vec());
        if is_clear { value().unwrap_or_default() } else { Vec::new() }
    }

    fn terms_of(&self, rule: RuleIndex) -> Option<&RuleTerms> {
        self.terms.get(usize::from(rule))
    }
}

/// The rules of hits that fit, each with its quota status.
pub(super) fn allowed(hits: &[Hit]) -> impl Iterator<Item = (CountedKey, BucketStatus)> + Clone {
    hits.iter().filter_map(|hit| match hit.judged.verdict {
        HitDecision::Fits(standing) => Some(((hit.rule, hit.key), standing)),
        _ => None,
    })
}
