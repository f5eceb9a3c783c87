//! Limits per unit of time that a descriptor carries.

use std::time::Duration;

use weir_protocol::calendar::Calendar;
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;

use super::limit::{LimitAnswer, LimitCheck, PER_UNIT};
use super::reply::{CheckDecision, CheckReply, RuleQuotaStatus, seconds_up};
use super::request::CheckPurpose;
use super::site::unix_ns;
use crate::store::StoreError;

/// Check of a limit of `requests` per window of fixed length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerUnit {
    /// Key that the check counts for.
    pub key: String,
    /// Requests per window. With 0, none are allowed.
    pub requests: u32,
    /// Length of a window in seconds. Windows are aligned to the beginning of 1970.
    pub window_s: u32,
    /// Number of requests that the check stands for, at least 1.
    pub hits: u32,
    /// Purpose of the check.
    pub purpose: CheckPurpose,
}

impl PerUnit {
    /// First check that the store answers; none if nothing is ever allowed. A check that asks for more than the
    /// limit only peeks.
    pub(super) fn check(&self) -> Option<LimitCheck> {
        let token_ns = u64::from(self.window_s) * 1_000_000_000;
        let quota =
            Quota::from_token_ns(token_ns.div_ceil(self.requests.max(1).into()), self.requests).ok()?;
        let purpose = match self.purpose {
            CheckPurpose::Refund => CheckPurpose::Refund,
            _ if self.hits > self.requests => CheckPurpose::Peek,
            CheckPurpose::Charge => CheckPurpose::Take,
            CheckPurpose::Take | CheckPurpose::Peek => self.purpose,
        };
        let refill_policy = RefillPolicy::Window(self.calendar());
        Some(LimitCheck { key: self.key.clone(), quota, refill_policy, weight: self.hits, purpose })
    }

    /// Adjusts the store's first answer: a refund is always allowed.
    pub(super) fn fitted(&self, answer: LimitAnswer) -> LimitAnswer {
        LimitAnswer { is_allowed: answer.is_allowed || self.purpose == CheckPurpose::Refund, ..answer }
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
    pub(super) fn verdict(&self, answer: &Result<LimitAnswer, StoreError>) -> CheckReply {
        let Ok(answer) = answer else {
            return CheckReply { rule: Some(PER_UNIT.into()), ..CheckReply::without_rules() };
        };
        let standing = RuleQuotaStatus {
            limit: self.requests.into(),
            remaining: answer.remaining.into(),
            reset_after: answer.reset_after,
            retry_after: answer.retry_after,
            window: Some(Duration::from_secs(self.window_s.into())),
        };
        let verdict = CheckReply { standing: Some(standing), ..CheckReply::allowed() };
        if answer.is_allowed {
            return verdict;
        }
        let retry_after = seconds_up(answer.retry_after).max(1).to_string();
        let headers = vec![("retry-after".to_owned(), retry_after)];
        CheckReply { decision: CheckDecision::Limit, status: 429, headers, ..verdict }
    }
}
