//! Calls of an engine to weir-sync, answered within this process, and the exchanges with the store that a check needs.

use std::slice;
use std::time::Duration;

use tokio::time::timeout;
use weir_budget::escrow::AcquireRequest;
use weir_limiter::engine::{CallResult, ConsumeReply, SyncCall, Unread};
use weir_protocol::messages::{Message as _, REPORT_PATH, RULES_PATH, Report};
use weir_store::StoreError;

use super::Gateway;
use super::limit::{self, LimitAnswer, LimitCheck, PerUnit, taken};
use super::reply::CheckReply;
use super::request::{CheckPurpose, Patience};

impl Gateway {
    /// Answers `call` within its time limit.
    pub(super) async fn call(&self, call: &SyncCall, patience: &mut Patience) -> CallResult {
        let limit = patience.limit(Duration::from_millis(call.timeout_ms.into()));
        let answered = timeout(limit, self.answer(call)).await;
        answered.unwrap_or_else(|_| {
            patience.take(limit);
            Err(Unread::Failed("the store did not answer in time".into()))
        })
    }

    /// Consumes the tokens of `acquire` from the store within the time limit. None if the store is out of reach.
    pub(super) async fn take(&self, acquire: &AcquireRequest, patience: &mut Patience) -> Option<ConsumeReply> {
        let limit = patience.limit(self.timeout);
        let acquired = self.sync.take(&self.pop, acquire, limit).await;
        if let Err(StoreError::Slow(_)) = acquired {
            patience.take(limit);
        }
        taken(acquire, &acquired.ok()?)
    }

    async fn answer(&self, call: &SyncCall) -> CallResult {
        if call.path == REPORT_PATH {
            let report = Report::decode(&call.body).map_err(|error| Unread::Failed(error.to_string()))?;
            return Ok(self.sync.report(report).await);
        }
        let version = call.path.strip_prefix(RULES_PATH).and_then(|rest| rest.strip_prefix("?version="));
        let Some(version) = version.and_then(|version| version.parse().ok()) else {
            return Err(Unread::NotMade(format!("there is no {}", call.path)));
        };
        match self.sync.rules(version).await {
            Ok(Some(document)) => Ok(document.to_vec()),
            Ok(None) => Err(Unread::Failed(format!("version {version} is not kept"))),
            Err(error) => Err(Unread::Failed(error.to_string())),
        }
    }
}

impl Gateway {
    /// Answers the checks in their order. A check that fails may still have consumed its tokens.
    pub async fn check_limits(&self, checks: &[LimitCheck]) -> Vec<Result<LimitAnswer, StoreError>> {
        let acquires: Vec<_> = checks.iter().map(|check| limit::acquire(&self.keys, check)).collect();
        let answers = self.sync.acquire(&self.pop, &acquires).await;
        answers.into_iter().zip(checks).map(|(acquired, check)| Ok(limit::answer(check, &acquired?))).collect()
    }

    /// Decides by the limit that the request carries.
    pub async fn check_per_unit(&self, asked: &PerUnit) -> CheckReply {
        let answer = match asked.check() {
            Some(check) => self.answer_per_unit(asked, check).await,
            None => Ok(asked.never()),
        };
        asked.reply(&answer)
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
        answer.unwrap_or(Err(StoreError::Invalid("no answer to an acquire")))
    }
}
