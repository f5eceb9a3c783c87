//! Exchanges with weir-sync and the store that a check needs: calls of an engine, answered within this process; limits
//! that callers define; and charges and refunds after the fact, which apply whatever is left of the quota.

use std::slice;
use std::time::Duration;

use tokio::time::timeout;
use weir_budget::escrow::{AcquireRequest, ClaimKind};
use weir_limiter::engine::{Booking, CallResult, ConsumeReply, OpenRequest, SyncCall, Unread};
use weir_protocol::messages::{Message as _, REPORT_PATH, RULES_PATH, Report};
use weir_store::StoreError;

use super::Gateway;
use super::limit::{self, LimitAnswer, LimitCheck, PerUnit, taken};
use super::reply::{CheckDecision, CheckReply};
use super::request::{CheckPurpose, CheckRequest, Patience};
use super::reservations::Reservation;
use super::worker::Worker;

impl Gateway {
    pub(super) async fn call(&self, call: &SyncCall, patience: &mut Patience) -> CallResult {
        let limit = patience.limit(Duration::from_millis(call.timeout_ms.into()));
        let answered = timeout(limit, self.answer(call)).await;
        answered.unwrap_or_else(|_| {
            patience.take(limit);
            Err(Unread::Failed("the store did not answer in time".into()))
        })
    }

    /// Consumes the tokens of `acquire` within the time limit; returns `None` if the store is out of reach.
    pub(super) async fn take(&self, acquire: &AcquireRequest, patience: &mut Patience) -> Option<ConsumeReply> {
        let limit = patience.limit(self.settings.timeout);
        let acquired = self.sync.take(&self.settings.pop, acquire, limit).await;
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

    /// Answers the checks in their order. A check that fails may still have consumed its tokens.
    pub async fn check_limits(&self, checks: &[LimitCheck]) -> Vec<Result<LimitAnswer, StoreError>> {
        let acquires: Vec<_> = checks.iter().map(|check| limit::acquire(&self.keys, check)).collect();
        let answers = self.sync.acquire(&self.settings.pop, &acquires).await;
        answers.into_iter().zip(checks).map(|(acquired, check)| Ok(limit::answer(check, &acquired?))).collect()
    }

    /// Decides by the limit that the request states.
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
            // A refund is always allowed.
            let is_allowed = answer.is_allowed || asked.purpose == CheckPurpose::Refund;
            return Ok(LimitAnswer { is_allowed, ..answer });
        }
        let charged = self.check_limit(&LimitCheck { purpose: CheckPurpose::Charge, ..check }).await?;
        Ok(LimitAnswer { is_allowed: false, ..charged })
    }

    async fn check_limit(&self, check: &LimitCheck) -> Result<LimitAnswer, StoreError> {
        let answer = self.check_limits(slice::from_ref(check)).await.pop();
        answer.unwrap_or(Err(StoreError::Invalid("no answer to an acquire")))
    }

    /// Charges the cost of a request that was served. The decision is to limit if it did not fit; the excess is debt.
    pub(super) async fn charge(&self, ask: &mut CheckRequest, patience: &mut Patience) -> CheckReply {
        let reply = self.decide(ask, patience).await.0;
        if reply.decision != CheckDecision::Limit {
            return reply;
        }
        match self.book(Booking::Charge, ask, patience).await {
            Ok(()) => self.with_figures(reply, ask, patience).await,
            Err(failed) => *failed,
        }
    }

    /// Refunds tokens. The decision is to allow, unless the request is on the `deny` list or the refund fails.
    pub(super) async fn refund(&self, ask: &mut CheckRequest, patience: &mut Patience) -> CheckReply {
        let mut peek = CheckRequest { hits: 0, purpose: CheckPurpose::Peek, ..ask.clone() };
        let reply = self.decide(&mut peek, patience).await.0;
        if matches!(reply.decision, CheckDecision::Block | CheckDecision::Deny) {
            return reply;
        }
        if let Err(failed) = self.book(Booking::Refund, ask, patience).await {
            return *failed;
        }
        for worker in &self.workers {
            worker.state().given_back(ask, self.now());
        }
        let after = self.decide(&mut peek, patience).await.0;
        CheckReply { decision: CheckDecision::Allow, status: 200, body: String::new(), ..after }
    }

    /// Adds the tokens that its key has left to a refusal, which would state 0 if the request costs more than one.
    pub(super) async fn with_figures(
        &self,
        mut reply: CheckReply,
        ask: &CheckRequest,
        patience: &mut Patience,
    ) -> CheckReply {
        let is_strict = |name: &str| {
            self.with_rules(|rules| rules.rules().iter().find(|rule| rule.name == name).map(|rule| rule.sharing.strict))
        };
        // The tokens that a strict rule has here are not its budget's.
        if reply.rule.as_deref().and_then(is_strict) != Some(false) {
            return reply;
        }
        let mut peek = CheckRequest { hits: 0, purpose: CheckPurpose::Peek, reserve_s: None, ..ask.clone() };
        let seen = self.decide(&mut peek, patience).await.0;
        if let (Some(status), Some(seen)) =
            (&mut reply.quota_status, seen.quota_status.filter(|_| seen.rule == reply.rule))
        {
            (status.remaining, status.reset_after) = (seen.remaining, seen.reset_after);
        }
        reply
    }

    /// Settles a reservation at the cost of `cost` requests.
    pub(super) async fn settle_reserved(&self, reserved: Reservation, cost: u32) {
        let Reservation { worker, open, hits, .. } = reserved;
        let Some(worker) = self.workers.get(worker) else { return };
        let mut over = Over { gateway: self, worker, open, costs: (cost, hits), booked: Vec::new() };
        let beyond = worker.state().beyond(&over.open, over.costs);
        for (number, acquire) in beyond {
            if self.take(&acquire, &mut Patience::endless()).await.is_some_and(|taken| taken.is_taken) {
                over.booked.push(number);
            }
        }
    }

    async fn book(
        &self,
        booking: Booking,
        ask: &mut CheckRequest,
        patience: &mut Patience,
    ) -> Result<(), Box<CheckReply>> {
        let kind = match booking {
            Booking::Charge => ClaimKind::Charge,
            Booking::Refund => ClaimKind::Refund,
        };
        let Some(worker) = self.workers.iter().find(|worker| self.is_ready_at(worker)) else {
            return Err(Box::new(CheckReply::without_rules()));
        };
        let acquires = worker.state().book(booking, kind, ask, self.now());
        let acquires = acquires.map_err(|rule| Box::new(CheckReply::fixed(&rule)))?;
        for acquire in acquires {
            if self.take(&acquire, patience).await.is_none_or(|taken| !taken.is_taken) {
                return Err(Box::new(CheckReply {
                    rule: Some(acquire.id.rule.clone()),
                    ..CheckReply::without_rules()
                }));
            }
        }
        Ok(())
    }
}

/// Finished request with a reservation. Dropping this settles the reservation, even if the caller has disconnected.
struct Over<'a> {
    gateway: &'a Gateway,
    worker: &'a Worker,
    open: OpenRequest,
    costs: (u32, u32),
    booked: Vec<usize>,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.worker.state().settle(&mut self.open, self.costs, &self.booked, self.gateway.now());
    }
}
