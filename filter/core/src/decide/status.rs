//! The quota status for a client: that of the strictest rule among those that publish theirs.

use alloc::vec::Vec;

use super::decision::{Policy, QuotaStatus};
use super::hit::Hit;
use super::judged::Verdict;
use super::keys::KeyId;
use super::terms::RuleTerms;
use crate::RuleIndex;
use crate::buckets::Standing;
use crate::limiter::Limiter;
use weir_rules::key::KeyValue;

/// A rule that counted the request, and the key it counted by.
pub(super) type Counted = (RuleIndex, KeyId);

impl Limiter {
    /// The quota status for an allowed request; none if none of these rules publishes its status.
    pub(super) fn status_of_allowed(
        &self,
        counted: impl Iterator<Item = (Counted, Standing)> + Clone,
    ) -> Option<QuotaStatus> {
        let tells = |(rule, _): &Counted| self.terms_of(*rule).is_some_and(|terms| terms.is_told);
        let told = counted.filter(|(counted, _)| tells(counted));
        let strictest = told.clone().reduce(|known, other| {
            let is_stricter = self.is_stricter((other.0.0, other.1), (known.0.0, known.1));
            if is_stricter { other } else { known }
        });
        strictest.map(|(of, standing)| self.status(of, standing, told.map(|(counted, _)| counted)))
    }

    /// The quota status for a request that `rule` refused.
    pub(super) fn status_of_refused(&self, rule: RuleIndex, standing: Standing, hits: &[Hit]) -> QuotaStatus {
        let counted = hits.iter().map(|hit| (hit.rule, hit.key));
        let by = counted.clone().find(|(counted, _)| *counted == rule).unwrap_or((rule, KeyId::LACKING));
        self.status(by, standing, counted)
    }

    /// The status of the rule `of`, with the policies of the other rules that counted the request.
    pub(super) fn status(
        &self,
        of: Counted,
        standing: Standing,
        counted: impl Iterator<Item = Counted>,
    ) -> QuotaStatus {
        let tells = |(rule, _): &Counted| {
            *rule != of.0 && self.terms_of(*rule).is_some_and(|terms| terms.tells_policy)
        };
        let others: Vec<Policy> = counted.filter(tells).map(|other| self.policy(other)).collect();
        QuotaStatus { of: self.policy(of), standing, others }
    }

    fn policy(&self, (rule, key): Counted) -> Policy {
        let is_clear = self.terms_of(rule).is_some_and(|terms| terms.is_clear);
        let value = || KeyValue::clear_part(self.keys.value(key).as_bytes()).map(|(_, value)| value.to_vec());
        Policy { rule, partition: if is_clear { value().unwrap_or_default() } else { Vec::new() } }
    }

    fn terms_of(&self, rule: RuleIndex) -> Option<&RuleTerms> {
        self.terms.get(usize::from(rule))
    }
}

/// The rules of hits that fit, each with its quota status.
pub(super) fn allowed(hits: &[Hit]) -> impl Iterator<Item = (Counted, Standing)> + Clone {
    hits.iter().filter_map(|hit| match hit.judged.verdict {
        Verdict::Fits(standing) => Some(((hit.rule, hit.key), standing)),
        _ => None,
    })
}
