//! Requests for the rule sets that a weir-sync has.

use hyper::StatusCode;
use serde_json::Value;

use crate::cli::api::{Api, ApiRequest, ApiResponse, ApiResult};
use crate::cli::output::Failure;
use crate::cli::table::shown;

/// A kept version.
pub(super) async fn kept(api: &Api, version: u64) -> Result<ApiResponse, Failure> {
    api.ask(ApiRequest::get(&["rules"]).query("version", &version)).await
}

/// Differences between a kept version and the current one.
pub(super) async fn differences(api: &Api, to: u64) -> Result<Value, Failure> {
    Ok(api.ask(ApiRequest::get(&["rules", "diff"]).query("to", &to)).await?.body)
}

/// Lines of an answer that describe differences.
pub(super) fn lines(answer: &Value) -> String {
    let lines = answer["lines"].as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.map(|line| shown(line) + "\n").collect()
}

/// Version of the current rule set; 0 if there is none.
pub(super) async fn current(api: &Api) -> Result<u64, Failure> {
    match api.try_ask(ApiRequest::get(&["rules"])).await? {
        ApiResult::Done(ApiResponse { version: Some(version), .. }) => Ok(version),
        ApiResult::Done(_) => {
            Err(Failure::unusable(format!("{api}: expected a version (ETag) in the answer")))
        }
        ApiResult::Refused(StatusCode::NOT_FOUND, _) => Ok(0),
        ApiResult::Refused(status, problem) => Err(api.refusal(status, &problem)),
    }
}
