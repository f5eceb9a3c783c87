//! The quota status for a client: that of the strictest rule among those that publish theirs.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::algorithms::BucketStatus;
use crate::check::decision::{Beside, Policy, QuotaStatus};
use crate::check::hit::{Hit, HitDecision};
use crate::check::keys::KeyId;
use crate::check::rules::CompiledRules;
use crate::{FIBONACCI, RuleIndex};
use weir_rules::key::KeyValue;

/// A rule that counted the request, and the key it counted by.
pub(super) type CountedKey = (RuleIndex, KeyId);

impl CompiledRules {
    /// True if the first rule has a smaller fraction of its burst left than the second.
    pub(crate) fn is_stricter(
        &self,
        first: (RuleIndex, BucketStatus),
        second: (RuleIndex, BucketStatus),
    ) -> bool {
        let burst = |rule| self.get(rule).map_or(1, |rule| u64::from(rule.quota.burst()));
        u64::from(first.1.remaining) * burst(second.0) < u64::from(second.1.remaining) * burst(first.0)
    }

    /// The quota status for an allowed request; none if none of these rules publishes its status.
    pub(crate) fn status_of_allowed(
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
    pub(crate) fn status(
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
}

/// The rules of hits that fit, each with its quota status.
pub(crate) fn allowed(hits: &[Hit]) -> impl Iterator<Item = (CountedKey, BucketStatus)> + Clone {
    hits.iter().filter_map(|hit| match hit.judged.verdict {
        HitDecision::Fits(standing) => Some(((hit.rule, hit.key), standing)),
        _ => None,
    })
}

impl CompiledRules {
    /// Jitter for a refusal of the key `tag` by `rule`: 0 to the rule's `retry_after_jitter_s`, in seconds.
    ///
    /// Each refusal gets another value, so that clients who share a key are spread, too. Multiples of
    /// [`FIBONACCI`] are spread as evenly as possible for any number of refusals.
    #[inline]
    pub(crate) fn jitter_s(&mut self, rule: RuleIndex, tag: impl FnOnce() -> u64) -> u32 {
        let most_s = self.terms_of(rule).map_or(0, |terms| terms.retry_after_jitter_s);
        if most_s == 0 {
            return 0;
        }
        self.dealt = self.dealt.wrapping_add(FIBONACCI);
        // The tag makes keys and workers differ: all workers start at the same number.
        part_of(tag().wrapping_add(self.dealt), most_s)
    }
}

/// Maps all numbers evenly to 0 to `most_s`.
fn part_of(number: u64, most_s: u32) -> u32 {
    let spread = (u128::from(number) * (u128::from(most_s) + 1)) >> 64;
    // Never fails: `spread` is at most `most_s`.
    u32::try_from(spread).unwrap_or(most_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        /// However few clients there are.
        #[test]
        fn the_clients_of_a_key_are_dealt_out_evenly(tag: u64, begin: u64, most_s in 1..60_u32, each in 1..20_u32) {
            let mut told = vec![0_u32; most_s as usize + 1];
            for n in 0..u64::from(each * (most_s + 1)) {
                let dealt = begin.wrapping_add(n).wrapping_mul(FIBONACCI);
                told[part_of(tag.wrapping_add(dealt), most_s) as usize] += 1;
            }
            prop_assert!(told.iter().all(|n| n.abs_diff(each) <= 3), "{each}: {told:?}");
        }

        #[test]
        fn is_within_its_bounds(number: u64, most_s: u32) {
            prop_assert!(part_of(number, most_s) <= most_s);
        }
    }
}
