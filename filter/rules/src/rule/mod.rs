//! One rule, checked and ready.

pub(crate) mod list;
pub mod mode;
mod tier;
pub mod variant;
mod wider;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_wire::calendar::Calendar;
use weir_wire::law::Law;
use weir_wire::quota::{Quota, QuotaError, Rate};
use weir_wire::sharing::{Sharing, WhenUnsynced};

use self::mode::Enforcement;
use self::variant::Variant;
use crate::key::{KeySpec, Missing};
use crate::limit::Limit;
use crate::limit::after::After;
use crate::limit::algorithm::{Algorithm, Concurrency, LeakyBucket};
use crate::limit::cost::Cost;
use crate::limit::penalty::Penalty;
use crate::matching::{Condition, Holds};
use crate::request::Fetched;
use crate::response::Response;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name, unique in the set: in headers, logs, metrics and the budget's name.
    pub name: String,
    /// Which requests it counts.
    pub matches: Arc<Condition>,
    /// What it counts by.
    pub key: KeySpec,
    /// What it does with a request that lacks a part of its key.
    pub missing: Missing,
    /// How many tokens a request takes. If its response tells the cost, it takes them only if the rule [reserves
    /// them](Self::reserves).
    pub cost: Cost,
    /// How it counts.
    pub algorithm: Algorithm,
    /// How much it allows; for algorithms other than the token bucket, as near as a rate and a burst can say.
    pub quota: Quota,
    /// The rate of its [`Limit`].
    pub rate: Option<Rate>,
    /// What a request costs, if only its response tells.
    pub after: Option<Arc<After>>,
    /// Whether a request takes tokens until its response tells what it cost.
    pub reserves: bool,
    /// Which variant of its written rule it is.
    pub variant: Variant,
    /// Whether its decisions are enforced, and for which keys.
    pub enforcement: Enforcement,
    /// When a key is refused for longer than its quota asks.
    pub penalty: Option<Penalty>,
    /// How POPs share it.
    pub sharing: Sharing,
    /// How a POP applies it when it has not heard from weir-sync for too long.
    pub when_unsynced: WhenUnsynced,
    /// What it answers.
    pub response: Response,
}

impl Rule {
    /// How much it allows, and how that is counted.
    pub fn limit(&self) -> Limit {
        Limit { algorithm: self.algorithm, quota: self.quota, rate: self.rate }
    }

    /// `times` as much as it allows; an error if that is too much for how it counts.
    pub(crate) fn times(&self, times: u32) -> Result<Limit, QuotaError> {
        let limit = self.limit().times(times)?;
        let fits = limit.quota.burst() <= self.sharing.law.tokens_max();
        if fits { Ok(limit) } else { Err(QuotaError::Burst) }
    }

    /// The most that one request may cost, whether that is known before or only when it ends.
    pub fn most_cost(&self) -> u32 {
        self.after.as_ref().map_or(0, |after| after.most()).max(self.cost.most())
    }

    /// Whether POPs share its quota. With any algorithm but the token bucket, each POP counts for itself. (If POPs share
    /// windows, a log or turns, these are the budget's, see [`Sharing::law`].)
    pub fn is_shared(&self) -> bool {
        matches!(self.algorithm, Algorithm::TokenBucket(_))
    }

    /// If the fleet counts its requests in flight: how many, and for how long at most.
    pub fn in_flight(&self) -> Option<Concurrency> {
        let expires_ns = self.sharing.law.expires_us() * 1_000;
        if expires_ns > 0 { Concurrency::new(self.quota.burst(), expires_ns).ok() } else { None }
    }

    /// What a POP counts in cells by, if the fleet gives out turns or counts requests in flight: requests in flight here, or
    /// turns if `when_unsynced` says so.
    pub fn in_cells(&self) -> Option<Algorithm> {
        if self.sharing.law == Law::Turns {
            return Some(Algorithm::LeakyBucket(LeakyBucket::of(self.quota)));
        }
        self.in_flight().map(Algorithm::Concurrency)
    }

    /// Whether it holds requests until their turns come.
    pub fn holds_requests(&self) -> bool {
        let has_turns = self.sharing.law == Law::Turns || matches!(self.algorithm, Algorithm::LeakyBucket(_));
        has_turns && self.quota.burst() > 1
    }

    /// Whether its algorithm is `quota`, whose rate is no [`Rate`].
    pub fn is_quota(&self) -> bool {
        self.sharing.law.windows().is_some() && self.rate.is_none()
    }

    /// Its own condition, and that of its tier.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = &Condition> {
        core::iter::once(&*self.matches).chain(self.variant.tier.iter().map(|tier| &tier.when))
    }

    /// Whether it counts the request, as far as its variant says; whether its condition holds is known.
    pub(crate) fn is_for(&self, matches: Holds, request: &mut Fetched<'_>) -> Holds {
        if matches.may() { self.variant.holds(&self.key, request) } else { Holds::No }
    }

    /// Whether it allows less than another variant of the same rule: a lower rate, or an equal one and a smaller burst.
    pub(crate) fn allows_less_than(&self, other: &Self) -> bool {
        let order =
            |rule: &Self| (rule.variant.is_unlimited(), Reverse(rule.quota.token_ns()), rule.quota.burst());
        order(self) < order(other)
    }

    /// Whether it is as it was written, and not made by a written rule's `tiers` or `wider`.
    pub fn is_written(&self) -> bool {
        self.variant.tier.is_none() && self.variant.wider_times.is_none()
    }

    /// The place in the list of the written rule: the one that it is, or that it was made from.
    pub fn place(&self) -> u16 {
        self.variant.group
    }

    /// What a bucket's content depends on: name, key, algorithm, quota. A rule keeps its buckets when only other rules
    /// change, and starts afresh when its quota does.
    pub fn identity(&self) -> Vec<u8> {
        let mut bytes = self.name.as_bytes().to_vec();
        bytes.push(0);
        bytes.extend(self.key.identity());
        bytes.extend(self.quota.token_ns().to_le_bytes());
        bytes.extend(self.quota.burst().to_le_bytes());
        if !matches!(self.algorithm, Algorithm::TokenBucket(_)) {
            bytes.push(self.algorithm.number());
        }
        if let Some(calendar) = self.sharing.law.windows() {
            bytes.push(u8::from(matches!(self.sharing.law, Law::Sliding(_))));
            // Months go by the offset that they are at, and have no length.
            let months = if let Calendar::MonthAt(minutes) = calendar { minutes.cast_unsigned() } else { 0 };
            let (length_s, begins) = calendar.even().unwrap_or((0, months));
            bytes.extend((u64::from(length_s) << 32 | u64::from(begins)).to_le_bytes());
        }
        if let Law::Log(length_s) | Law::InFlight(length_s) = self.sharing.law {
            bytes.push(2 + u8::from(matches!(self.sharing.law, Law::InFlight(_))));
            bytes.extend(length_s.to_le_bytes());
        }
        if self.sharing.law == Law::Turns {
            bytes.push(5);
        }
        bytes
    }
}
