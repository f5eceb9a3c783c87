//! Calls of an engine to weir-sync, answered within this process, and the tokens that its requests consume from
//! the store.

use std::time::Duration;

use tokio::time::timeout;
use weir_budget::escrow::AcquireRequest;
use weir_budget::report_limits::Speaker;
use weir_limiter::engine::{CallResult, ConsumeReply, SyncCall, Unread};
use weir_protocol::messages::{Message as _, REPORT_PATH, RULES_PATH, Report};

use super::Gateway;
use super::patience::Patience;
use super::taking::taken;
use crate::store::StoreError;

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
    pub(super) async fn take(&self, draw: &AcquireRequest, patience: &mut Patience) -> Option<ConsumeReply> {
        let limit = patience.limit(self.timeout);
        let drawn = self.exchange.take(&self.pop, draw, limit).await;
        if let Err(StoreError::Slow(_)) = drawn {
            patience.take(limit);
        }
        taken(draw, &drawn.ok()?)
    }

    async fn answer(&self, call: &SyncCall) -> CallResult {
        if call.path == REPORT_PATH {
            let report = Report::decode(&call.body).map_err(|error| Unread::Failed(error.to_string()))?;
            return Ok(self.exchange.answer_to(Speaker::Gateway, report).await);
        }
        let version = call.path.strip_prefix(RULES_PATH).and_then(|rest| rest.strip_prefix("?version="));
        let Some(version) = version.and_then(|version| version.parse().ok()) else {
            return Err(Unread::NotMade(format!("there is no {}", call.path)));
        };
        match self.exchange.rules.get(version).await {
            Ok(Some(held)) => Ok(held.document.to_vec()),
            Ok(None) => Err(Unread::Failed(format!("version {version} is not kept"))),
            Err(error) => Err(Unread::Failed(error.to_string())),
        }
    }
}
