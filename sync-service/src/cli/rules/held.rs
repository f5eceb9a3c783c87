//! The rule sets that a weir-sync has.

use hyper::StatusCode;
use serde_json::Value;

use crate::cli::api::{Answer, Api, Ask, Outcome};
use crate::cli::said::Failure;

/// A version that is kept.
pub(super) async fn kept(api: &Api, version: u64) -> Result<Answer, Failure> {
    api.ask(Ask::get(&["rules"]).query("version", &version)).await
}

/// The current rule set, if there is one, and its version, else 0.
pub(super) async fn current(api: &Api) -> Result<(u64, Option<Value>), Failure> {
    match api.try_ask(Ask::get(&["rules"])).await? {
        Outcome::Done(Answer { version: Some(version), body }) => Ok((version, Some(body))),
        Outcome::Done(_) => Err(Failure::unusable(format!("{api}: expected a version (ETag) in the answer"))),
        Outcome::Refused(StatusCode::NOT_FOUND, _) => Ok((0, None)),
        Outcome::Refused(status, problem) => Err(api.refusal(status, &problem)),
    }
}
