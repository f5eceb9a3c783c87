//! Checks of caller-defined limits, which only the store decides.

use std::slice;

use super::Gateway;
use super::limit::{self, LimitAnswer, LimitCheck};
use super::per_unit::PerUnit;
use super::reply::CheckReply;
use super::request::CheckPurpose;
use crate::store::StoreError;

impl Gateway {
    /// Answers the checks in their order. A check that fails may still have consumed its tokens.
    pub async fn check_limits(&self, checks: &[LimitCheck]) -> Vec<Result<LimitAnswer, StoreError>> {
        let draws: Vec<_> = checks.iter().map(|check| limit::acquire(&self.keys, check)).collect();
        let answers = self.exchange.acquire(&self.pop, &draws).await;
        answers.into_iter().zip(checks).map(|(drawn, check)| Ok(limit::answer(check, &drawn?))).collect()
    }

    /// Decides by the limit that the request carries.
    pub async fn check_per_unit(&self, asked: &PerUnit) -> CheckReply {
        let answer = match asked.check() {
            Some(check) => self.answer_per_unit(asked, check).await,
            None => Ok(asked.never()),
        };
        asked.verdict(&answer)
    }

    async fn answer_per_unit(&self, asked: &PerUnit, check: LimitCheck) -> Result<LimitAnswer, StoreError> {
        let answer = self.check_limit(&check).await?;
        if answer.is_allowed || asked.purpose != CheckPurpose::Charge {
            return Ok(asked.fitted(answer));
        }
        let charged = self.check_limit(&LimitCheck { purpose: CheckPurpose::Charge, ..check }).await?;
        Ok(LimitAnswer { is_allowed: false, ..charged })
    }

    async fn check_limit(&self, check: &LimitCheck) -> Result<LimitAnswer, StoreError> {
        let answer = self.check_limits(slice::from_ref(check)).await.pop();
        answer.unwrap_or(Err(StoreError::Invalid("no answer to a draw")))
    }
}
