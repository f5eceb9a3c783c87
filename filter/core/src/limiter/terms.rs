//! What a decision needs of a rule, side by side: a rule is large, and a request meets it with cold caches.

use alloc::vec::Vec;

use super::keys::{KeyId, Keys};
use crate::key::Secret;
use crate::slot::{Tag, Unheard};
use weir_rules::algorithm::Algorithm;
use weir_rules::cost::Cost;
use weir_rules::mode::{Enforcement, Mode};
use weir_rules::{Rule, RuleSet};
use weir_wire::quota::Quota;
use weir_wire::sharing::WhenUnsynced;

/// A rule, as hits are found and judged by it.
#[allow(clippy::struct_excessive_bools, reason = "each is a question that a decision asks")]
pub(super) struct Terms {
    pub(super) key: KeyId,
    /// Keeps its buckets apart from those of other rules.
    pub(super) salt: u64,
    pub(super) overflow: Tag,
    pub(super) enforcement: Enforcement,
    pub(super) cost: Cost,
    pub(super) algorithm: Algorithm,
    pub(super) quota: Quota,
    /// The most that a bucket holds of a key the fleet has not heard of.
    pub(super) local_burst: u32,
    pub(super) is_strict: bool,
    pub(super) is_calendar: bool,
    pub(super) has_box: bool,
    pub(super) is_charged_after: bool,
    /// It counts no tokens, only the requests that it is for.
    pub(super) is_unlimited: bool,
    pub(super) when_unsynced: WhenUnsynced,
    /// The most by which its refusals raise their `Retry-After`.
    pub(super) retry_after_jitter_s: u32,
}

impl Terms {
    /// Those of every rule, in the rules' order, and the keys that they count by.
    pub(super) fn of(rules: &RuleSet, secret: &Secret, is_in_fleet: bool) -> (Keys, Vec<Self>) {
        let (keys, ids) = Keys::of(rules, secret);
        let of = |(rule, key)| Self::of_rule(rule, key, salt(rule, secret), is_in_fleet);
        (keys, rules.rules().iter().zip(ids).map(of).collect())
    }

    /// What a POP gives before the fleet has heard of a key, where its quota is cut in so many parts.
    #[inline]
    pub(super) fn unheard(&self, parts: u32) -> Unheard {
        Unheard { quota: self.quota, local_burst: self.local_burst, parts }
    }

    /// Whether it is enforced for all of its keys.
    pub(super) fn is_enforced(&self) -> bool {
        self.enforcement == Enforcement::default() && !self.is_unlimited
    }

    /// Whether a request goes by without a look at its buckets.
    pub(super) fn is_off(&self) -> bool {
        self.enforcement.mode == Mode::Off || self.is_unlimited
    }

    fn of_rule(rule: &Rule, key: KeyId, salt: u64, is_in_fleet: bool) -> Self {
        Self {
            key,
            salt,
            overflow: Tag::of_overflow(salt),
            enforcement: rule.enforcement,
            cost: rule.cost.clone(),
            algorithm: rule.algorithm,
            quota: rule.quota,
            local_burst: if is_in_fleet { rule.sharing.local_burst } else { rule.quota.burst() },
            is_strict: rule.sharing.strict,
            is_calendar: rule.sharing.calendar.is_some(),
            has_box: rule.penalty.is_some(),
            is_charged_after: rule.after.is_some(),
            is_unlimited: rule.variant.is_unlimited,
            when_unsynced: rule.when_unsynced,
            retry_after_jitter_s: rule.response.retry_after_jitter_s,
        }
    }
}

/// A tag that keeps the buckets of one key under several rules apart.
fn salt(rule: &Rule, secret: &Secret) -> u64 {
    let is_cell = !matches!(rule.algorithm, Algorithm::TokenBucket(_));
    Tag::salt(secret.hash(&rule.identity()).tag, is_cell)
}
