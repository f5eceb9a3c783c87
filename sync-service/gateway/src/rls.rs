//! Envoy's rate limit service (`envoy.service.ratelimit.v3`) over gRPC, in which each descriptor is a check of the
//! gateway: by the rules, or by the descriptor's own limit. The same port serves the quota service ([`crate::rlqs`]).

use std::fmt::Display;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use prost::{DecodeError, Message as _};
use tonic::Status;
use weir_protocol::calendar::LENGTH_S_MAX;
use weir_protocol::quota::TOKENS_MAX;
use weir_rules::request::address::parse;

use crate::limit::PerUnit;
use crate::proto::envoy::config::core::v3::HeaderValue;
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::proto::unknown::Fields;
use crate::request::{ADDRESS, Descriptor, part, push_escaped};
use crate::{CheckDecision, CheckPurpose, CheckReply, CheckRequest, RuleQuotaStatus};

/// Maximum number of descriptors in a request, and of entries in a descriptor.
pub(crate) const DESCRIPTORS_MAX: usize = 64;
/// Maximum length of the domain and of an entry's key, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 256;
/// Maximum length of an entry's value, in bytes. By default, Envoy accepts no header longer than that. The
/// limit matters because a longer value fails the whole request, and Envoy may then let it through.
pub(crate) const VALUE_BYTES_MAX: usize = 65_536;

/// Maximum length of a value that could be an address, in bytes.
const ADDRESS_BYTES_MAX: usize = 64;

/// Check of a descriptor.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// By the fleet's rules.
    Rules(Box<CheckRequest>),
    /// By the descriptor's own limit.
    Own(PerUnit),
}

/// Checks for the descriptors of `request`, in their order. An error states what is invalid and where.
pub fn checks(request: RateLimitRequest) -> Result<Vec<Check>, Status> {
    name("domain", &request.domain)?;
    count("descriptors", request.descriptors.len())?;
    for (index, descriptor) in request.descriptors.iter().enumerate() {
        check_lengths(index, descriptor)?;
    }
    let request = Arc::new(request);
    let check = |(index, descriptor): (usize, &RateLimitDescriptor)| {
        let (hits, purpose) = hits(index, descriptor, request.hits_addend)?;
        if let Some(limit) = descriptor.limit {
            let limit = own(index, &request.domain, descriptor, limit)?;
            return Ok(Check::Own(PerUnit { hits, purpose, ..limit }));
        }
        let descriptor = Descriptor::new(&request, index);
        address(index, &descriptor)?;
        Ok(Check::Rules(Box::new(CheckRequest {
            descriptor: Some(descriptor),
            hits,
            purpose,
            ..CheckRequest::default()
        })))
    };
    request.descriptors.iter().enumerate().map(check).collect()
}

/// Number of requests that a descriptor stands for, and the purpose of the check. A descriptor with 0 only
/// peeks; 0 for the whole request means that no number was given, and counts as 1. A number on the descriptor
/// itself may arrive after the response, which is not visible here. So it is charged even if it does not fit.
fn hits(index: usize, descriptor: &RateLimitDescriptor, of_request: u32) -> Result<(u32, CheckPurpose), Status> {
    let own = descriptor.hits_addend;
    let hits = own.unwrap_or_else(|| of_request.max(1).into());
    let expected = || format!("expected at most {}, found {hits}", u32::MAX);
    let hits = u32::try_from(hits).map_err(|_| wrong(format_args!("descriptors[{index}].hits_addend"), &expected()))?;
    let purpose = match (hits, descriptor.is_negative_hits, own) {
        (0, ..) => CheckPurpose::Peek,
        (_, true, _) => CheckPurpose::Refund,
        (_, false, Some(_)) => CheckPurpose::Charge,
        (_, false, None) => CheckPurpose::Take,
    };
    Ok((hits.max(1), purpose))
}

/// Check of the descriptor at `index` by its own limit, for one request.
fn own(
    index: usize,
    domain: &str,
    descriptor: &RateLimitDescriptor,
    limit: RateLimitOverride,
) -> Result<PerUnit, Status> {
    let RateLimitOverride { requests_per_unit: requests, unit, unit_multiplier } = limit;
    let place = format!("descriptors[{index}].limit");
    if requests > TOKENS_MAX {
        let expected = format!("expected at most {TOKENS_MAX}, found {requests}: write it for a shorter unit");
        return Err(wrong(format_args!("{place}.requests_per_unit"), &expected));
    }
    let unit_s = unit_s(unit).ok_or_else(|| {
        let expected = format!("expected SECOND, MINUTE, HOUR, DAY, MONTH or YEAR, found {unit}");
        wrong(format_args!("{place}.unit"), &expected)
    })?;
    let times = unit_multiplier.unwrap_or(1);
    let window_s = unit_s.checked_mul(times).filter(|length_s| (1..=LENGTH_S_MAX).contains(length_s));
    let window_s = window_s.ok_or_else(|| {
        let expected = format!("expected 1 to {}, found {times}", LENGTH_S_MAX / unit_s);
        wrong(format_args!("{place}.unit_multiplier"), &expected)
    })?;
    let mut key = String::new();
    push_escaped(&mut key, domain);
    key.push_str(&part(descriptor));
    Ok(PerUnit { key, requests, window_s, hits: 1, purpose: CheckPurpose::Take })
}

/// Length of a unit in seconds, as in envoyproxy/ratelimit.
fn unit_s(unit: i32) -> Option<u32> {
    let (unit_s, _) = UNITS.iter().find(|(_, known)| i32::from(*known) == unit && *known != Unit::Week)?;
    u32::try_from(*unit_s).ok()
}

fn check_lengths(index: usize, descriptor: &RateLimitDescriptor) -> Result<(), Status> {
    count(format_args!("descriptors[{index}].entries"), descriptor.entries.len())?;
    for (number, entry) in descriptor.entries.iter().enumerate() {
        name(format_args!("descriptors[{index}].entries[{number}].key"), &entry.key)?;
        let length = entry.value.len();
        if length > VALUE_BYTES_MAX {
            let expected = format!("expected at most {VALUE_BYTES_MAX} bytes, found {length}");
            return Err(wrong(format_args!("descriptors[{index}].entries[{number}].value"), &expected));
        }
    }
    Ok(())
}

/// Refuses an invalid address. If several entries have one, the first counts.
fn address(index: usize, descriptor: &Descriptor) -> Result<(), Status> {
    let Some(value) = descriptor.value(ADDRESS) else { return Ok(()) };
    if parse(value.as_bytes()).is_some() {
        return Ok(());
    }
    let found = match value.len() {
        ..=ADDRESS_BYTES_MAX => format!("`{value}`"),
        length => format!("{length} bytes"),
    };
    let number = descriptor.number(ADDRESS).unwrap_or_default();
    let expected = format!("expected an IP address, as the key is {ADDRESS}, found {found}");
    Err(wrong(format_args!("descriptors[{index}].entries[{number}].value"), &expected))
}

pub(crate) fn name(place: impl Display, text: &str) -> Result<(), Status> {
    let expected = || format!("expected a text of 1 to {NAME_BYTES_MAX} bytes, found {}", text.len());
    if (1..=NAME_BYTES_MAX).contains(&text.len()) { Ok(()) } else { Err(wrong(place, &expected())) }
}

fn count(place: impl Display, count: usize) -> Result<(), Status> {
    let expected = || format!("expected 1 to {DESCRIPTORS_MAX}, found {count}");
    if (1..=DESCRIPTORS_MAX).contains(&count) { Ok(()) } else { Err(wrong(place, &expected())) }
}

fn wrong(place: impl Display, expected: &str) -> Status {
    Status::invalid_argument(format!("{place}: {expected}"))
}

/// Decodes a request.
///
/// A header may have any bytes, and Envoy copies them into a descriptor. If that made the request invalid, a
/// client could evade its limit wherever Envoy lets through what could not be checked. So in values, bytes that
/// are not text are replaced by question marks.
pub fn decode(bytes: &[u8]) -> Result<RateLimitRequest, DecodeError> {
    RateLimitRequest::decode(bytes).or_else(|wrong| {
        let mut bytes = bytes.to_vec();
        make_text(&mut bytes, &VALUES);
        RateLimitRequest::decode(&*bytes).map_err(|_| wrong)
    })
}

/// Fields from a request to the values of its entries: `descriptors`, `entries`, `value`.
const VALUES: [u32; 3] = [2, 1, 2];

/// Replaces each byte that is not text in the fields of `message` to which `path` leads; the length stays.
pub(crate) fn make_text(message: &mut [u8], path: &[u32]) {
    let Some((next, path)) = path.split_first() else {
        let mut text = Vec::with_capacity(message.len());
        for chunk in message.utf8_chunks() {
            text.extend_from_slice(chunk.valid().as_bytes());
            text.extend(chunk.invalid().iter().map(|_| b'?'));
        }
        return message.copy_from_slice(&text);
    };
    let (mut fields, mut found) = (Fields { rest: message }, Vec::new());
    while let Some((number, content)) = fields.next() {
        let end = message.len() - fields.rest.len();
        let content = content.filter(|_| number == *next);
        found.extend(content.map(|content| end - content.len()..end));
    }
    for range in found {
        make_text(&mut message[range], path);
    }
}

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

/// Index of the decision that the client sees: the longest refusal, or else the status with the fewest tokens left.
fn shown_to_client(replies: &[CheckReply]) -> Option<usize> {
    let refused = replies.iter().enumerate().filter(|(_, reply)| is_refused(reply));
    let longest = refused.max_by_key(|(_, reply)| match reply.quota_status {
        Some(quota_status) => quota_status.retry_after,
        // The request is on the `deny` list: waiting does not help.
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
        limit_remaining: u32::try_from(quota_status.remaining).unwrap_or(u32::MAX),
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

#[cfg(test)]
mod tests;
