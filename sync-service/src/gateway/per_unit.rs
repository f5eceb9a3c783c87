//! Limits of so many requests per unit of time, which a descriptor brings.

use std::time::Duration;

use weir_wire::calendar::Calendar;
use weir_wire::law::Law;
use weir_wire::quota::Quota;

use super::ask::Purpose;
use super::limit::{LimitAnswer, LimitCheck, PER_UNIT};
use super::site::unix_ns;
use super::verdict::{Decision, Standing, Verdict, seconds_up};
use crate::store::StoreError;

/// A check against a limit of so many requests in each window of a length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerUnit {
    /// Whom it is counted for.
    pub key: String,
    /// How many requests; none are let through if it is zero.
    pub requests: u32,
    /// How long a window is, in seconds. One of them began with 1970.
    pub window_s: u32,
    /// How many requests it stands for, at least 1.
    pub hits: u32,
    /// What it is asked for.
    pub purpose: Purpose,
}

impl PerUnit {
    /// What the store is asked first; none if nothing is ever let through. One that asks for more than there ever is only looks.
    pub(super) fn check(&self) -> Option<LimitCheck> {
        let token_ns = u64::from(self.window_s) * 1_000_000_000;
        let quota =
            Quota::from_token_ns(token_ns.div_ceil(self.requests.max(1).into()), self.requests).ok()?;
        let purpose = match self.purpose {
            Purpose::Refund => Purpose::Refund,
            _ if self.hits > self.requests => Purpose::Peek,
            Purpose::Charge => Purpose::Take,
            Purpose::Take | Purpose::Peek => self.purpose,
        };
        let law = Law::Window(self.calendar());
        Some(LimitCheck { key: self.key.clone(), quota, law, weight: self.hits, purpose })
    }

    /// What is told of the store's first answer: what is given back is let through.
    pub(super) fn fitted(&self, answer: LimitAnswer) -> LimitAnswer {
        LimitAnswer { is_allowed: answer.is_allowed || self.purpose == Purpose::Refund, ..answer }
    }

    fn calendar(&self) -> Calendar {
        Calendar::every(self.window_s, 0)
    }

    /// What is told where nothing is ever let through.
    pub(super) fn never(&self) -> LimitAnswer {
        let now_us = unix_ns() / 1_000;
        let left = Duration::from_micros(self.calendar().window(now_us).end_us.saturating_sub(now_us));
        LimitAnswer { is_allowed: false, remaining: 0, reset_after: left, retry_after: left }
    }

    /// The answer, or that there was none, as a verdict.
    pub(super) fn verdict(&self, answer: &Result<LimitAnswer, StoreError>) -> Verdict {
        let Ok(answer) = answer else {
            return Verdict { rule: Some(PER_UNIT.into()), ..Verdict::without_rules() };
        };
        let standing = Standing {
            limit: self.requests.into(),
            remaining: answer.remaining.into(),
            reset_after: answer.reset_after,
            retry_after: answer.retry_after,
            window: Some(Duration::from_secs(self.window_s.into())),
        };
        let verdict = Verdict { standing: Some(standing), ..Verdict::allowed() };
        if answer.is_allowed {
            return verdict;
        }
        let retry_after = seconds_up(answer.retry_after).max(1).to_string();
        let headers = vec![("retry-after".to_owned(), retry_after)];
        Verdict { decision: Decision::Limit, status: 429, headers, ..verdict }
    }
}
