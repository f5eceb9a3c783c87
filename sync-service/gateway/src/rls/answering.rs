//! Response of the rate limit service, composed of the decisions on all descriptors.

use std::mem;
use std::time::Duration;

use tonic::Status;

use crate::proto::envoy::config::core::v3::HeaderValue;
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use crate::{CheckDecision, CheckReply, RuleQuotaStatus};

const POLICY: &str = "ratelimit-policy";

/// Response to a request, from the decisions on its descriptors in their order. Fails if no descriptor is
/// refused and one could not be checked; the caller then decides (Envoy's `failure_mode_deny`).
pub fn response(mut replies: Vec<CheckReply>) -> Result<RateLimitResponse, Status> {
    let is_over = replies.iter().any(is_refused);
    let unchecked = replies.iter().find(|reply| reply.decision == CheckDecision::Deny);
    let unsupported = |(index, reply): (usize, &CheckReply)| Some((index, reply.unsupported.clone()?));
    if let Some((index, unsupported)) = replies.iter().enumerate().find_map(unsupported) {
        return Err(Status::failed_precondition(format!("descriptors[{index}].{unsupported}")));
    }
    if let Some(unchecked) = unchecked.filter(|_| !is_over) {
        return Err(Status::unavailable(match &unchecked.rule {
            Some(rule) => format!("the rule {rule} could not be checked: its store is out of reach"),
            None => "the rules are not known yet: the store has not answered since the start".into(),
        }));
    }
    let overall_code = if is_over { Code::OverLimit } else { Code::Ok }.into();
    let policies = policies(&replies);
    let shown = shown_to_client(&replies).and_then(|index| replies.get_mut(index));
    let (mut headers, body) =
        shown.map(|reply| (mem::take(&mut reply.headers), mem::take(&mut reply.body))).unwrap_or_default();
    headers.retain(|(name, _)| name != POLICY);
    headers.extend((!policies.is_empty()).then(|| (POLICY.to_owned(), policies)));
    let statuses = replies.into_iter().map(status).collect();
    let header = |(key, value)| HeaderValue { key, value, raw_value: Vec::new() };
    Ok(RateLimitResponse {
        overall_code,
        statuses,
        response_headers_to_add: headers.into_iter().map(header).collect(),
        request_headers_to_add: Vec::new(),
        raw_body: body.into_bytes(),
        dynamic_metadata: None,
    })
}

/// All distinct policies of the decisions.
fn policies(replies: &[CheckReply]) -> String {
    let of_all = replies.iter().flat_map(|reply| &reply.headers).filter(|(name, _)| name == POLICY);
    let mut policies: Vec<&str> = Vec::new();
    for (_, policy) in of_all {
        if !policies.contains(&policy.as_str()) {
            policies.push(policy);
        }
    }
    policies.join(", ")
}

fn is_refused(reply: &CheckReply) -> bool {
    matches!(reply.decision, CheckDecision::Limit | CheckDecision::Block)
}

/// Index of the decision that the client sees: the refusal with the longest wait, or else the quota status with
/// the fewest tokens left.
fn shown_to_client(replies: &[CheckReply]) -> Option<usize> {
    let refused = replies.iter().enumerate().filter(|(_, reply)| is_refused(reply));
    let longest = refused.max_by_key(|(_, reply)| match reply.quota_status {
        Some(quota_status) => quota_status.retry_after,
        // It is on the `deny` list, which no wait helps against.
        None => Duration::MAX,
    });
    let quota_status = |(index, reply): (usize, &CheckReply)| Some((index, reply.quota_status?));
    let least = || {
        let with_headers = replies.iter().enumerate().filter(|(_, reply)| !reply.headers.is_empty());
        let quota_statuses = with_headers.filter_map(quota_status);
        quota_statuses.min_by_key(|(_, quota_status)| quota_status.remaining)
    };
    longest.map(|(index, _)| index).or_else(|| least().map(|(index, _)| index))
}

fn status(reply: CheckReply) -> DescriptorStatus {
    let code = match reply.decision {
        CheckDecision::Allow => Code::Ok,
        CheckDecision::Limit | CheckDecision::Block => Code::OverLimit,
        CheckDecision::Deny => Code::Unknown,
    };
    let Some(quota_status) = reply.quota_status else {
        return DescriptorStatus { code: code.into(), ..DescriptorStatus::default() };
    };
    DescriptorStatus {
        code: code.into(),
        current_limit: limit(reply.rule, &quota_status),
        limit_remaining: small(quota_status.remaining),
        duration_until_reset: prost_types::Duration::try_from(quota_status.reset_after).ok(),
    }
}

/// Units of the protocol, in seconds, longest first.
const UNITS: [(u64, Unit); 7] = [
    (31_536_000, Unit::Year),
    (2_592_000, Unit::Month),
    (604_800, Unit::Week),
    (86_400, Unit::Day),
    (3_600, Unit::Hour),
    (60, Unit::Minute),
    (1, Unit::Second),
];

/// Limit of a rule whose window is exactly one unit; an Envoy before 1.40 understands no other. A caller that
/// supplied the limit itself also understands multiples of a unit.
fn limit(rule: Option<String>, quota_status: &RuleQuotaStatus) -> Option<RateLimit> {
    let window_s = quota_status.window.filter(|window| window.subsec_nanos() == 0)?.as_secs();
    let (unit_s, unit) = UNITS.into_iter().find(|(unit_s, _)| window_s.is_multiple_of(*unit_s))?;
    let times = u32::try_from(window_s / unit_s).ok().filter(|times| *times == 1 || rule.is_none())?;
    Some(RateLimit {
        requests_per_unit: u32::try_from(quota_status.limit).ok()?,
        unit: unit.into(),
        name: rule.unwrap_or_default(),
        unit_multiplier: (times != 1).then_some(times),
    })
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
