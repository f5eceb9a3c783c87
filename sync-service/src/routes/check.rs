//! HTTP routes of the gateway: services check a request before they serve it.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::Value;
use weir_gateway::{CheckDecision, Gateway, SettleError, json};
use weir_rules::reading::ConfigError;
use weir_store::StoreError;

use super::{Answered, Call, HttpResponse, JSON, Routes};
use crate::problem::{Problem, json as response};

fn invalid(errors: &[ConfigError]) -> Problem {
    Problem::invalid(format!("the body has {} errors; nothing was checked", errors.len()), errors)
}

/// Response to `body`: a list if `body` is one.
fn answered(body: &Value, mut answers: Vec<Value>) -> HttpResponse {
    let answer = if body.is_array() { Value::Array(answers) } else { answers.pop().unwrap_or_default() };
    response(StatusCode::OK, JSON, &answer)
}

fn unsettled(error: &SettleError) -> Problem {
    let status = match error {
        SettleError::Unknown => StatusCode::NOT_FOUND,
        SettleError::Elsewhere(_) => StatusCode::MISDIRECTED_REQUEST,
        SettleError::Settled(_) => StatusCode::CONFLICT,
    };
    Problem::new(status, error.to_string())
}

impl Routes {
    pub(super) async fn check(&self, call: Call<'_>) -> Answered {
        let gateway = self.open_gateway()?;
        let asker = Some(call.caller.as_str()).filter(|_| self.secrets.access.has_askers());
        let body = self.json(call.request, self.config.body_bytes_max).await?;
        let checks = json::checks(&body).map_err(|errors| invalid(&errors))?;
        let replies = gateway.check_all(checks, asker).await;
        for reply in &replies {
            self.metrics.count_checks("http", reply.decision.as_str(), 1);
        }
        let answers: Vec<_> = replies.iter().map(json::reply).collect();
        Ok(answered(&body, answers))
    }

    /// Charges the cost of a request with a reservation, or of each request in a list.
    pub(super) async fn settle(&self, call: Call<'_>) -> Answered {
        let gateway = self.open_gateway()?;
        let body = self.json(call.request, self.config.body_bytes_max).await?;
        let settlements = json::settlements(&body).map_err(|errors| invalid(&errors))?;
        let mut answers = Vec::with_capacity(settlements.len());
        for settlement in &settlements {
            let answer = gateway.settle(settlement).await;
            if let (Err(error), false) = (&answer, body.is_array()) {
                return Err(unsettled(error));
            }
            answers.push(json::settled(settlement, &answer));
        }
        Ok(answered(&body, answers))
    }

    /// Answers a check against a limit that the caller states, or each check in a list in order.
    pub(super) async fn check_limits(&self, call: Call<'_>) -> Answered {
        let gateway = self.open_gateway()?;
        let body = self.json(call.request, self.config.body_bytes_max).await?;
        let checks = json::limit_checks(&body).map_err(|errors| invalid(&errors))?;
        let answers = gateway.check_limits(&checks).await;
        for answer in &answers {
            let decision = match answer {
                Ok(answer) if answer.is_allowed => CheckDecision::Allow,
                Ok(_) => CheckDecision::Limit,
                Err(_) => CheckDecision::Deny,
            };
            self.metrics.count_checks("limit", decision.as_str(), 1);
        }
        // In a list, the failure of one check does not affect the others.
        let answer = |answer: Result<_, StoreError>| match answer {
            Ok(answer) => Ok(json::limit(&answer)),
            Err(error) if body.is_array() => Ok(serde_json::json!({"error": error.to_string()})),
            Err(error) => Err(Problem::from(error)),
        };
        let answers: Result<_, Problem> = answers.into_iter().map(answer).collect();
        Ok(answered(&body, answers?))
    }

    pub(super) fn open_gateway(&self) -> Result<&Arc<Gateway>, Problem> {
        let detail = "there is no gateway here: set `gateway: on` for this weir-sync";
        self.gateway.as_ref().ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, detail))
    }
}
