//! What a decision needs of a rule, in one small struct: rules are large, and cold in the CPU's caches.

use alloc::vec::Vec;

use super::keys::{KeyId, Keys};
use crate::key::Secret;
use crate::table::slot::{Tag, Unheard};
use weir_rules::algorithm::{Algorithm, Concurrency};
use weir_rules::cost::Cost;
use weir_rules::mode::{Enforcement, Mode};
use weir_rules::{Rule, RuleSet};
use weir_wire::law::Law;
use weir_wire::quota::Quota;
use weir_wire::sharing::WhenUnsynced;

/// The parts of a rule by which hits are found and judged.
#[allow(clippy::struct_excessive_bools, reason = "each is a question that a decision asks")]
pub(crate) struct RuleTerms {
    pub(crate) key: KeyId,
    /// Keeps its buckets apart from those of other rules.
    pub(crate) salt: u64,
    pub(crate) overflow: Tag,
    pub(crate) enforcement: Enforcement,
    pub(crate) cost: Cost,
    pub(crate) algorithm: Algorithm,
    pub(crate) quota: Quota,
    /// The most that the bucket of a key holds before the fleet has heard of the key.
    pub(crate) local_burst: u32,
    pub(crate) is_strict: bool,
    /// If the fleet counts its requests in flight: how many, and for how long.
    pub(crate) in_flight: Option<Concurrency>,
    /// Each request draws its turn.
    pub(crate) has_turns: bool,
    /// Nothing of its budget comes back before a window ends.
    pub(crate) is_calendar: bool,
    pub(crate) has_penalty: bool,
    /// A request takes nothing until its response tells what it cost.
    pub(crate) is_charged_after: bool,
    /// A request takes tokens of a bucket until its response tells what it cost.
    pub(crate) reserves: bool,
    /// It has no limit: it only counts its requests.
    pub(crate) is_unlimited: bool,
    pub(crate) when_unsynced: WhenUnsynced,
    /// Whether an allowed response tells its client's status.
    pub(crate) is_told: bool,
    /// Whether `RateLimit-Policy` names it.
    pub(crate) tells_policy: bool,
    /// Whether a part of its key may be told.
    pub(crate) is_clear: bool,
    /// The most seconds that a refusal adds to its `Retry-After`.
    pub(crate) retry_after_jitter_s: u32,
}

impl RuleTerms {
    /// The terms of every rule, in the rules' order, and the keys that they count by.
    pub(crate) fn of(rules: &RuleSet, secret: &Secret, is_in_fleet: bool) -> (Keys, Vec<Self>) {
        let (keys, ids) = Keys::of(rules, secret);
        let of = |(rule, key)| Self::of_rule(rule, key, salt(rule, secret), is_in_fleet);
        let all = rules.rules().iter().zip(ids).map(of).collect();
        (keys, all)
    }

    /// What a POP may give before the fleet has heard of a key, with the quota cut into `parts`.
    #[inline]
    pub(crate) fn unheard(&self, parts: u32) -> Unheard {
        Unheard { quota: self.quota, local_burst: self.local_burst, parts }
    }

    /// Whether it is enforced for all of its keys.
    pub(crate) fn is_enforced(&self) -> bool {
        self.enforcement == Enforcement::default() && !self.is_unlimited
    }

    /// Whether a request may reserve what it takes of a bucket.
    pub(crate) fn may_reserve(&self) -> bool {
        matches!(self.algorithm, Algorithm::TokenBucket(_)) && !self.is_strict
    }

    /// Whether requests pass it without a look at a bucket.
    pub(crate) fn is_off(&self) -> bool {
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
            in_flight: rule.in_flight(),
            has_turns: rule.sharing.law == Law::Turns,
            is_calendar: rule.sharing.law.is_window(),
            has_penalty: rule.penalty.is_some(),
            is_charged_after: rule.after.is_some() && !rule.reserves,
            reserves: rule.reserves && rule.is_shared() && !rule.sharing.strict,
            is_unlimited: rule.variant.is_unlimited(),
            when_unsynced: rule.when_unsynced,
            is_told: rule.response.is_told(),
            tells_policy: rule.response.headers.ratelimit,
            is_clear: rule.key.is_clear(),
            retry_after_jitter_s: rule.response.retry_after_jitter_s,
        }
    }
}

/// A salt for tags: it keeps the buckets of one key under several rules apart.
fn salt(rule: &Rule, secret: &Secret) -> u64 {
    let is_cell = !matches!(rule.algorithm, Algorithm::TokenBucket(_));
    Tag::salt(secret.hash(&rule.identity()).tag, is_cell)
}
