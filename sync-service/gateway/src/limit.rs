//! Limits that callers define, consumed from the store with each check.
//!
//! Such a limit holds for the whole fleet. It is a token bucket whose burst is the limit and which refills once
//! per window, or a counter per window. Its budget works like that of a strict rule ([`weir_budget::escrow`])
//! but without leases: one exchange with the store consumes the whole weight of the check, or nothing. So no
//! check waits for tokens that another gateway holds, and the store alone decides.

use std::time::Duration;

use weir_budget::budget::BudgetId;
use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, ClaimKind};
use weir_limiter::engine::{Consume, ConsumeReply};
use weir_limiter::table::HashSecret as Hasher;
use weir_protocol::calendar::Calendar;
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;
use weir_rules::RuleSet;
use weir_store::StoreError;

use super::reply::{CheckDecision, CheckReply, RuleQuotaStatus, seconds_up};
use super::request::CheckPurpose;
use super::worker_host::unix_ns;

/// Rules that own these budgets: token buckets, and counts of windows, which may be kept for long. No rule of
/// an operator can have a slash in its name, and no report from outside may use these names.
pub const RULES: [&str; 2] = ["ratelimit/check", PER_UNIT];
pub(super) const PER_UNIT: &str = "ratelimit/descriptor";

/// Check of a limit that its caller defines.
#[derive(Clone, Debug)]
pub struct LimitCheck {
    pub(crate) key: String,
    pub(crate) quota: Quota,
    /// Refill policy: continuous, or in windows of fixed length.
    pub(crate) refill_policy: RefillPolicy,
    pub(crate) weight: u32,
    pub(crate) purpose: CheckPurpose,
}

/// Answer to a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitAnswer {
    /// True if the tokens were consumed.
    pub is_allowed: bool,
    pub(crate) remaining: u32,
    pub(crate) reset_after: Duration,
    /// For a refused check: time until the tokens are there, if no other check consumes any.
    pub(crate) retry_after: Duration,
}

pub(super) struct KeyHasher(Hasher);

impl KeyHasher {
    /// Keyed with `secret`, which is the same at every gateway. Without a secret, anybody can compute the hashes.
    pub(super) fn hidden_by(secret: Option<&str>) -> Self {
        let known = Hasher::new(*b"weir limit keys.");
        let secret = secret.map(|secret| known.hash(secret.as_bytes()));
        Self(secret.map_or(known, |hash| Hasher::new(bytes(hash.place, hash.tag))))
    }

    /// ID of the budget: one per key and size of a token bucket, and one per key for all counts of windows.
    fn id(&self, check: &LimitCheck) -> BudgetId {
        let [of_buckets, of_windows] = RULES;
        let (rule, size) = match check.refill_policy {
            RefillPolicy::Continuous => (of_buckets, [check.quota.token_ns(), check.quota.burst().into()]),
            _ => (of_windows, [0; 2]),
        };
        let size = size.map(u64::to_le_bytes);
        let hash = self.0.hash(&[size.as_flattened(), check.key.as_bytes()].concat());
        BudgetId::new(rule.into(), bytes(hash.place, hash.tag).to_vec())
    }
}

fn bytes(left: u64, right: u64) -> [u8; 16] {
    (u128::from(left) << 64 | u128::from(right)).to_be_bytes()
}

/// Exchange with the store that consumes the whole weight or nothing, charges it, or refunds it. A peek only reads.
pub(super) fn acquire(keys: &KeyHasher, check: &LimitCheck) -> AcquireRequest {
    let claims = match check.purpose {
        CheckPurpose::Take => vec![Claim::take(check.weight)],
        CheckPurpose::Peek => vec![],
        CheckPurpose::Charge => vec![Claim::at_once(ClaimKind::Charge, check.weight)],
        CheckPurpose::Refund => vec![Claim::at_once(ClaimKind::Refund, check.weight)],
    };
    AcquireRequest {
        id: keys.id(check),
        quota: check.quota,
        lease_us: 0,
        refill_policy: check.refill_policy,
        window: None,
        claims,
    }
}

pub(super) fn answer(check: &LimitCheck, acquired: &AcquireResult) -> LimitAnswer {
    let (quota, weight) = (check.quota, check.weight);
    let remaining = acquired.left(quota);
    let is_allowed = acquired.leases.first().map_or(remaining >= weight, |lease| lease.charged >= weight.into());
    let weighs_ns = u64::from(weight).saturating_mul(quota.token_ns());
    let short_ns = acquired.deficit_ns.saturating_add(weighs_ns).saturating_sub(quota.fill_ns());
    let left = |calendar: Calendar| calendar.window(acquired.now_us).end_us.saturating_sub(acquired.now_us);
    let in_window = check.refill_policy.windows().map(|calendar| Duration::from_micros(left(calendar)));
    let retry_after = in_window.unwrap_or(Duration::from_nanos(short_ns.max(1)));
    LimitAnswer {
        is_allowed,
        remaining,
        reset_after: in_window.unwrap_or(Duration::from_nanos(acquired.deficit_ns)),
        retry_after: if is_allowed { Duration::ZERO } else { retry_after },
    }
}

/// Check of a limit of `requests` per window of fixed length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerUnit {
    pub(crate) key: String,
    /// Requests per window. With 0, none are allowed.
    pub(crate) requests: u32,
    /// Length of a window in seconds. Windows are aligned to the beginning of 1970.
    pub(crate) window_s: u32,
    /// Number of requests that the check stands for, at least 1.
    pub(crate) hits: u32,
    pub(crate) purpose: CheckPurpose,
}

impl PerUnit {
    /// First check, or `None` if nothing is ever allowed. One that asks for more than the limit only peeks.
    pub(super) fn check(&self) -> Option<LimitCheck> {
        let token_ns = u64::from(self.window_s) * 1_000_000_000;
        let quota = Quota::from_token_ns(token_ns.div_ceil(self.requests.max(1).into()), self.requests).ok()?;
        let purpose = match self.purpose {
            CheckPurpose::Refund => CheckPurpose::Refund,
            _ if self.hits > self.requests => CheckPurpose::Peek,
            CheckPurpose::Charge => CheckPurpose::Take,
            CheckPurpose::Take | CheckPurpose::Peek => self.purpose,
        };
        let refill_policy = RefillPolicy::Window(self.calendar());
        Some(LimitCheck { key: self.key.clone(), quota, refill_policy, weight: self.hits, purpose })
    }

    fn calendar(&self) -> Calendar {
        Calendar::every(self.window_s, 0)
    }

    /// Answer if nothing is ever allowed.
    pub(super) fn never(&self) -> LimitAnswer {
        let now_us = unix_ns() / 1_000;
        let left = Duration::from_micros(self.calendar().window(now_us).end_us.saturating_sub(now_us));
        LimitAnswer { is_allowed: false, remaining: 0, reset_after: left, retry_after: left }
    }

    /// Decision for the store's answer, or for its failure.
    pub(super) fn reply(&self, answer: &Result<LimitAnswer, StoreError>) -> CheckReply {
        let Ok(answer) = answer else {
            return CheckReply { rule: Some(PER_UNIT.into()), ..CheckReply::without_rules() };
        };
        let quota_status = RuleQuotaStatus {
            limit: self.requests.into(),
            remaining: answer.remaining.into(),
            reset_after: answer.reset_after,
            retry_after: answer.retry_after,
            window: Some(Duration::from_secs(self.window_s.into())),
        };
        let reply = CheckReply { quota_status: Some(quota_status), ..CheckReply::allowed() };
        if answer.is_allowed {
            return reply;
        }
        let retry_after = seconds_up(answer.retry_after).max(1).to_string();
        let headers = vec![("retry-after".to_owned(), retry_after)];
        CheckReply { decision: CheckDecision::Limit, status: 429, headers, ..reply }
    }
}

/// Exchange with the store that consumes, charges or refunds `take` under these rules.
pub(super) fn rule_acquire(kind: ClaimKind, take: &Consume, rules: &RuleSet) -> Option<AcquireRequest> {
    let rule = rules.rules().get(usize::from(take.rule))?;
    let refill_policy = rule.sharing.refill_policy;
    Some(AcquireRequest {
        id: BudgetId::new(rule.name.clone(), take.value.as_bytes().to_vec()),
        quota: rule.quota,
        // No tokens are leased.
        lease_us: 0,
        refill_policy,
        window: refill_policy.windows().map(|calendar| calendar.window(unix_ns() / 1_000)),
        claims: vec![Claim::at_once(kind, take.tokens)],
    })
}

pub(super) fn taken(acquire: &AcquireRequest, acquired: &AcquireResult) -> Option<ConsumeReply> {
    let (lease, claim) = (acquired.leases.first()?, acquire.claims.first()?);
    let is_taken = lease.charged >= claim.ahead.into();
    Some(ConsumeReply { is_taken, left: lease.left, wait_ms: lease.wait_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(limit: u32, window_ms: u64, weight: u32) -> LimitCheck {
        let quota = Quota::from_token_ns((window_ms * 1_000_000).div_ceil(limit.into()), limit).unwrap();
        LimitCheck {
            key: "alice".into(),
            quota,
            refill_policy: RefillPolicy::Continuous,
            weight,
            purpose: CheckPurpose::Take,
        }
    }

    #[test]
    fn a_key_is_hidden_and_has_a_budget_for_each_limit() {
        let (one, other) = ("a secret of the tests", "another one of the tests");
        let id = |secret: Option<&str>, check: &LimitCheck| KeyHasher::hidden_by(secret).id(check);
        let same = check(10, 1_000, 1);
        assert_eq!(id(Some(one), &same), id(Some(one), &check(10, 1_000, 3)));
        assert_ne!(id(Some(one), &same), id(Some(other), &same));
        assert_ne!(id(None, &same), id(None, &check(10, 2_000, 1)));
        assert_ne!(id(None, &same), id(None, &check(20, 2_000, 1)));
        assert!(!id(None, &same).value.windows(5).any(|part| part == b"alice"));
    }
}
