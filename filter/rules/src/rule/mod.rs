//! A single rule, checked and compiled.

mod derived;
pub(crate) mod list;
pub mod mode;
pub mod variant;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_protocol::calendar::Calendar;
use weir_protocol::quota::{Quota, QuotaError, Rate};
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::sharing::{OnSyncLoss, Sharing};

use self::mode::Enforcement;
use self::variant::Variant;
use crate::key::{KeySpec, Missing};
use crate::limit::after::After;
use crate::limit::algorithm::{Algorithm, Concurrency};
use crate::limit::cost::Cost;
use crate::limit::{Limit, Penalty};
use crate::matching::Condition;
use crate::response::Response;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Name, unique in the set. Headers, logs, metrics and budgets use it.
    pub name: String,
    pub matches: Arc<Condition>,
    pub key: KeySpec,
    pub missing: Missing,
    /// Cost of a request. Taken before the response states the cost only if the rule [reserves tokens](Self::reserves).
    pub cost: Cost,
    pub algorithm: Algorithm,
    /// Quota. For algorithms other than the token bucket, the nearest rate and burst.
    pub quota: Quota,
    pub rate: Option<Rate>,
    pub after: Option<Arc<After>>,
    /// True if a request holds tokens until its response states the cost.
    pub reserves: bool,
    pub variant: Variant,
    pub enforcement: Enforcement,
    pub penalty: Option<Penalty>,
    pub sharing: Sharing,
    pub on_sync_loss: OnSyncLoss,
    pub response: Response,
}

impl Rule {
    pub fn limit(&self) -> Limit {
        Limit { algorithm: self.algorithm, quota: self.quota, rate: self.rate }
    }

    /// The limit multiplied by `times`; an error if it exceeds the maximum of the algorithm or the refill policy.
    pub(crate) fn times(&self, times: u32) -> Result<Limit, QuotaError> {
        let limit = self.limit().times(times)?;
        let fits = limit.quota.burst() <= self.sharing.refill_policy.tokens_max();
        if fits { Ok(limit) } else { Err(QuotaError::Burst) }
    }

    /// A rule made of this one, under another name and with another limit.
    fn made(&self, name: String, limit: Limit, sharing: Sharing) -> Self {
        let Limit { algorithm, quota, rate } = limit;
        Self { name, algorithm, quota, rate, sharing, ..self.clone() }
    }

    /// Maximum cost of one request, by the request or by the response.
    pub fn most_cost(&self) -> u32 {
        self.after.as_ref().map_or(0, |after| after.most()).max(self.cost.most())
    }

    /// True if POPs share the quota. Shared windows, logs and turns are token buckets here; see `refill_policy`.
    pub fn is_shared(&self) -> bool {
        matches!(self.algorithm, Algorithm::TokenBucket(_))
    }

    /// Limit and expiry of requests in flight, if the fleet counts them.
    pub fn in_flight(&self) -> Option<Concurrency> {
        Concurrency::new(self.quota.burst(), self.sharing.refill_policy.expires_us() * 1_000)
    }

    /// Algorithm of a POP's cells if the fleet issues turns or counts requests in flight. The cells count this POP's
    /// requests in flight; for turns, they count only in fallback, if `on_sync_loss` demands it.
    pub fn in_cells(&self) -> Option<Algorithm> {
        if self.sharing.refill_policy == RefillPolicy::Queue {
            return Some(Algorithm::LeakyBucket(self.quota));
        }
        self.in_flight().map(Algorithm::Concurrency)
    }

    /// True if requests may be held until their turns.
    pub fn holds_requests(&self) -> bool {
        let has_turns =
            self.sharing.refill_policy == RefillPolicy::Queue || matches!(self.algorithm, Algorithm::LeakyBucket(_));
        has_turns && self.quota.burst() > 1
    }

    /// True if the algorithm is `quota`, whose rate is not a [`Rate`].
    pub fn is_quota(&self) -> bool {
        self.sharing.refill_policy.windows().is_some() && self.rate.is_none()
    }

    /// The rule's condition, and that of its tier.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = &Condition> {
        core::iter::once(&*self.matches).chain(self.variant.tier.iter().map(|tier| &tier.when))
    }

    /// True if `self` allows less than `other`, a variant of the same rule: lower rate, or same rate and smaller burst.
    /// Requests in flight have no rate.
    pub(crate) fn allows_less_than(&self, other: &Self) -> bool {
        let has_rate = self.in_flight().is_none() && !matches!(self.algorithm, Algorithm::Concurrency(_));
        let token_ns = |rule: &Self| if has_rate { rule.quota.token_ns() } else { 0 };
        let order = |rule: &Self| (rule.variant.is_unlimited(), Reverse(token_ns(rule)), rule.quota.burst());
        order(self) < order(other)
    }

    /// True if the rule was not derived by `tiers` or `also_by_prefix`.
    pub fn is_written(&self) -> bool {
        self.variant.tier.is_none() && self.variant.wider_times.is_none()
    }

    /// Index of the written rule that this rule is, or is derived from.
    pub fn place(&self) -> u16 {
        self.variant.group
    }

    /// Bytes that identify the content of buckets: name, key, algorithm, quota. If one changes, the rule gets
    /// fresh buckets.
    pub fn identity(&self) -> Vec<u8> {
        let mut bytes = self.name.as_bytes().to_vec();
        bytes.push(0);
        bytes.extend(self.key.identity());
        bytes.extend(self.quota.token_ns().to_le_bytes());
        bytes.extend(self.quota.burst().to_le_bytes());
        if !matches!(self.algorithm, Algorithm::TokenBucket(_)) {
            bytes.push(self.algorithm.number());
        }
        let policy = self.sharing.refill_policy;
        if let Some(calendar) = policy.windows() {
            bytes.push(u8::from(matches!(policy, RefillPolicy::Sliding(_))));
            // Months depend on the UTC offset, and have no constant length.
            let months = if let Calendar::Month(minutes) = calendar { minutes.cast_unsigned() } else { 0 };
            let (length_s, begins) = calendar.even().unwrap_or((0, months));
            bytes.extend((u64::from(length_s) << 32 | u64::from(begins)).to_le_bytes());
        }
        if let RefillPolicy::Log(length_s) | RefillPolicy::InFlight(length_s) = policy {
            bytes.push(2 + u8::from(matches!(policy, RefillPolicy::InFlight(_))));
            bytes.extend(length_s.to_le_bytes());
        }
        if policy == RefillPolicy::Queue {
            bytes.push(5);
        }
        bytes
    }
}
