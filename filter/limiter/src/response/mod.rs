//! Responses to clients: headers and bodies, prepared once per rule.
//!
//! * `Retry-After`: whole seconds, rounded up, at least 1 (RFC 9110, 10.2.3).
//! * `RateLimit-Policy: "name";q=BURST;w=SECONDS` for each rule that counted the request, and `RateLimit:
//!   "name";r=LEFT;t=SECONDS` (draft-ietf-httpapi-ratelimit-headers-10). If the rule does not count requests, `qu`
//!   names the unit of `q` and `r`: `"concurrent-requests"` or `"content-bytes"`. `pk` is the part of the key that a
//!   rule logs. For a token bucket, `q` is the burst and `w` the time in which an empty bucket fills, so that q/w is
//!   the rate; `t` is the time until there is one token more than now, rounded up, and never later than
//!   `Retry-After`. For a calendar quota, `q` is the count, `w` the length of a day or of thirty days, and `t` the
//!   time until its window ends, by the wall clock; on a refusal, `t` is `Retry-After` without its jitter.
//! * `X-RateLimit-Limit` (the burst), `-Remaining`, and `-Reset` (the time at which the bucket is full or, if nothing
//!   is left, at which the next request may pass; in seconds from now or since 1970, as the rule configures).
//! * The body is a problem (RFC 9457) of a type that the draft registers, or the rule's own.
//!
//! A jitter may raise `Retry-After` and its gRPC counterparts, so that clients do not return all at once.

mod grpc;
mod stated;

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

pub(crate) use self::grpc::GRPC_HTTP_STATUS;
pub use self::grpc::grpc_status;
use self::grpc::{base64, grpc_headers, grpc_refusal};
pub use self::stated::HeaderLine;
pub(crate) use self::stated::STATED;
use self::stated::{Forms, Stated};
use crate::algorithms::BucketStatus;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::time::SECOND_NS;
use weir_rules::after::After;
use weir_rules::algorithm::Algorithm;
use weir_rules::template::{Numbers, Template};
use weir_rules::{Reset, Rule};

pub type Header<'a> = (&'a str, Cow<'a, str>);

/// A rule's responses, prepared as far as possible before a request arrives.
#[derive(Clone, Debug)]
pub struct PreparedResponses {
    name: String,
    policy: String,
    /// Number of policy units in one token.
    units: u64,
    limit: u64,
    body: Body,
    /// Body for a client that a penalty refuses, if the rule has no body of its own.
    abnormal: String,
    content_type: String,
    set_headers: Vec<(String, Template)>,
    /// Reasons in access logs (Envoy's `%RESPONSE_CODE_DETAILS%`).
    pub(crate) limited_details: String,
    pub(crate) denied_details: String,
    limited_message: String,
    denied_message: String,
    /// Body of a denied response, of type [`PROBLEM_TYPE`]; its status is [`DENIED_STATUS`].
    pub(crate) denial: String,
}

#[derive(Clone, Debug)]
enum Body {
    Problem(String),
    Own(Template),
}

impl PreparedResponses {
    pub(crate) fn of(rule: &Rule) -> Self {
        let (name, quota, response) = (&rule.name, &rule.quota, &rule.response);
        let (status, limit) = (response.status, u64::from(quota.burst()));
        let window = window_s(rule).map_or(String::new(), |seconds| format!(";w={seconds}"));
        let (unit, units) = quota_unit(rule);
        let denied_message = format!("The limit {name} cannot be checked at the moment");
        let limit_text = limit.to_string();
        let prepared = |template: &Template| template.prepared(name, &limit_text);
        let body = response.body.as_ref();
        let default_type = if body.is_some() { TEXT_TYPE } else { PROBLEM_TYPE };
        let set_headers = response.set_headers.iter();
        Self {
            name: name.clone(),
            policy: format!("\"{name}\";q={}{unit}{window}", units.saturating_mul(limit)),
            units,
            content_type: response.content_type.clone().unwrap_or_else(|| default_type.into()),
            set_headers: set_headers.map(|(name, value)| (name.clone(), prepared(value))).collect(),
            body: match body {
                None => Body::Problem(problem(QUOTA_EXCEEDED, status, name, "")),
                Some(body) => Body::Own(prepared(body)),
            },
            abnormal: problem(ABNORMAL_USAGE, status, name, ""),
            denial: problem(REDUCED_CAPACITY, DENIED_STATUS, name, &format!(",\"detail\":\"{denied_message}\"")),
            limited_message: format!("The limit {name} is reached"),
            denied_message,
            limited_details: format!("weir_limited:{name}"),
            denied_details: format!("weir_denied:{name}"),
            limit,
        }
    }

    /// Headers of a denied response. They state no quota, because no bucket was read.
    pub(crate) fn denied(&self, bucket: &BucketStatus, jitter_s: u32, is_grpc: bool) -> Vec<Header<'static>> {
        let after_s = retry_after_s(bucket, jitter_s);
        let mut headers =
            alloc::vec![("retry-after", after_s.to_string().into()), ("cache-control", "no-store".into())];
        if is_grpc {
            headers.extend(grpc_headers(DENIED_STATUS, &self.denied_message, None, Some(after_s)));
        } else {
            headers.push(("content-type", PROBLEM_TYPE.into()));
        }
        headers
    }

    /// True if the rule's responses depend on the wall clock.
    pub(crate) fn is_by_wall_clock(rule: &Rule) -> bool {
        rule.response.reset == Reset::Epoch || rule.sharing.refill_policy.is_window()
    }

    /// The quota status of an allowed client. A calendar quota is full again when its window ends by the wall clock.
    pub fn allowed(rule: &Rule, bucket: &BucketStatus, unix_ns: u64) -> BucketStatus {
        let RefillPolicy::Window(calendar) = rule.sharing.refill_policy else { return *bucket };
        let end_us = calendar.window(unix_ns / 1_000).end_us;
        let left_ns = end_us.saturating_mul(1_000).saturating_sub(unix_ns);
        BucketStatus { more_ns: left_ns, full_ns: left_ns, ..*bucket }
    }

    /// The rule's policy, with the part of the client's key that may be disclosed.
    pub(crate) fn policy(&self, partition: &[u8]) -> String {
        format!("{}{}", self.policy, partition_key(partition))
    }

    /// The headers of a limited response, each name at most once, and its body, which gRPC clients do not get.
    pub(crate) fn limited(&self, rule: &Rule, status: &LimitedStatus<'_>) -> (Vec<Header<'_>>, Cow<'_, str>) {
        let LimitedStatus { numbers, partition, policies, is_grpc, is_banned } = status;
        let mut headers = self.stated(numbers, partition).headers((*policies).into(), forms(rule));
        let after_s = rule.response.headers.retry_after.then_some(numbers.retry_after_s);
        headers.extend(after_s.map(|seconds| ("retry-after", seconds.to_string().into())));
        if *is_grpc {
            let (status, message) = (rule.response.status, &self.limited_message);
            headers.extend(grpc_headers(status, message, Some(&self.name), after_s));
        } else {
            headers.push(("content-type", self.content_type.as_str().into()));
        }
        headers.push(("cache-control", "no-store".into()));
        for (name, value) in &self.set_headers {
            // A gRPC client would take the response for plain HTTP.
            if *is_grpc && name == "content-type" {
                continue;
            }
            headers.retain(|(known, _)| known != name);
            headers.push((name, value.text(numbers)));
        }
        let body = match &self.body {
            _ if *is_grpc => Cow::Borrowed(""),
            Body::Problem(_) if *is_banned => Cow::Borrowed(self.abnormal.as_str()),
            Body::Problem(problem) => Cow::Borrowed(problem.as_str()),
            Body::Own(template) => template.text(numbers),
        };
        (headers, body)
    }

    /// The quota headers of an allowed response, which replace those in `lines`. `policies` are those of all rules that
    /// publish theirs; `unix_ns` is the wall clock.
    pub(crate) fn quota(
        &self,
        rule: &Rule,
        (bucket, partition, policies): (&BucketStatus, &[u8], String),
        lines: &[HeaderLine],
        unix_ns: u64,
    ) -> Vec<Header<'_>> {
        let bucket = Self::allowed(rule, bucket, unix_ns);
        let own = self.stated(&numbers(rule, &bucket, unix_ns, 0), partition);
        if lines.is_empty() {
            return own.headers(policies, forms(rule));
        }
        stated::merged((own, policies, forms(rule)), lines, &|s| reset_in(rule, s, unix_ns), unix_ns / SECOND_NS)
    }

    fn stated(&self, numbers: &Numbers, partition: &[u8]) -> Stated {
        let Numbers { remaining, more_s, reset_s, .. } = numbers;
        let left = self.units.saturating_mul(u64::from(*remaining));
        Stated {
            member: format!("\"{}\";r={left};t={more_s}{}", self.name, partition_key(partition)),
            limit: Some(self.limit),
            remaining: u64::from(*remaining),
            more_s: *more_s,
            reset: reset_s.to_string(),
        }
    }
}

/// The variable parts of a limited response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitedStatus<'a> {
    pub(crate) numbers: Numbers,
    /// The part of the key that may be disclosed; empty if there is none.
    pub(crate) partition: &'a [u8],
    /// The policies of all rules that counted the request and publish theirs.
    pub(crate) policies: &'a str,
    pub(crate) is_grpc: bool,
    pub(crate) is_banned: bool,
}

/// Parameter for a partition key (draft-ietf-httpapi-ratelimit-headers-10, 3.1.4).
fn partition_key(partition: &[u8]) -> String {
    if partition.is_empty() {
        return String::new();
    }
    let padding = match partition.len() % 3 {
        0 => "",
        1 => "==",
        _ => "=",
    };
    format!(";pk=:{}{padding}:", base64(partition))
}

/// Name and title of a problem type (draft-ietf-httpapi-ratelimit-headers-10, 5).
type ProblemType = (&'static str, &'static str);
const QUOTA_EXCEEDED: ProblemType =
    ("quota-exceeded", "Request cannot be satisfied as assigned quota has been exceeded");
const REDUCED_CAPACITY: ProblemType =
    ("temporary-reduced-capacity", "Request cannot be satisfied due to temporary server capacity constraints");
const ABNORMAL_USAGE: ProblemType =
    ("abnormal-usage-detected", "Request not satisfied due to detection of abnormal request pattern");

/// A problem of the rule `name`. The letters of rule names need no escaping, in a header or in JSON.
fn problem((kind, title): ProblemType, status: u16, name: &str, more: &str) -> String {
    format!(
        "{{\"type\":\"https://iana.org/assignments/http-problem-types#{kind}\",\"title\":\"{title}\",\
         \"status\":{status},\"violated-policies\":[\"{name}\"]{more}}}"
    )
}

pub const DENIED_STATUS: u16 = 503;

pub(crate) const BLOCKED_STATUS: u16 = 403;

/// Body for a request on the `deny` list, of type [`PROBLEM_TYPE`].
pub(crate) const BLOCKED_BODY: &str = "{\"type\":\"about:blank\",\"title\":\"Forbidden\",\"status\":403}";

const BLOCKED_MESSAGE: &str = "Forbidden";

pub(crate) fn blocked_headers(is_grpc: bool) -> Vec<Header<'static>> {
    let mut headers = alloc::vec![("cache-control", "no-store".into())];
    if is_grpc {
        headers.extend(grpc_refusal(BLOCKED_STATUS, BLOCKED_MESSAGE));
    } else {
        headers.push(("content-type", PROBLEM_TYPE.into()));
    }
    headers
}

/// True if this `content-type` is gRPC, whose clients are answered in headers. gRPC-Web does not count.
pub(crate) fn is_grpc(content_type: &[u8]) -> bool {
    content_type.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest, [] | [b'+' | b';', ..]))
}

pub(crate) const PROBLEM_TYPE: &str = "application/problem+json";

/// Media type of a rule's own body, if the rule states none.
const TEXT_TYPE: &str = "text/plain; charset=utf-8";

fn forms(rule: &Rule) -> Forms {
    Forms { ratelimit: rule.response.headers.ratelimit, triples: [rule.response.headers.x_ratelimit, false] }
}

/// The numbers in a response, for `bucket`. `unix_ns` is the wall clock; `jitter_s` raises `Retry-After`.
pub fn numbers(rule: &Rule, bucket: &BucketStatus, unix_ns: u64, jitter_s: u32) -> Numbers {
    Numbers {
        more_s: seconds_up(bucket.more_ns),
        retry_after_s: retry_after_s(bucket, jitter_s),
        remaining: bucket.remaining,
        reset_s: match rule.response.reset {
            Reset::Delta => seconds_up(bucket.reset_ns()),
            Reset::Epoch => seconds_up(unix_ns.saturating_add(bucket.reset_ns())),
        },
    }
}

fn retry_after_s(bucket: &BucketStatus, jitter_s: u32) -> u64 {
    seconds_up(bucket.more_ns).max(1).saturating_add(jitter_s.into())
}

/// A reset in `seconds`, in the format that the rule configures.
fn reset_in(rule: &Rule, seconds: u64, unix_ns: u64) -> String {
    match rule.response.reset {
        Reset::Delta => seconds,
        Reset::Epoch => seconds_up(unix_ns).saturating_add(seconds),
    }
    .to_string()
}

/// Seconds in which the whole quota of a rule refills, rounded up; `None` if it does not refill with time.
pub fn window_s(rule: &Rule) -> Option<u64> {
    match rule.sharing.refill_policy {
        RefillPolicy::Window(calendar) | RefillPolicy::Sliding(calendar) => Some(calendar.nominal_s()),
        RefillPolicy::Log(length_s) => Some(u64::from(length_s)),
        RefillPolicy::InFlight(_) => None,
        RefillPolicy::Continuous | RefillPolicy::Queue => match rule.algorithm {
            Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) => Some(seconds_up(rule.quota.fill_ns())),
            Algorithm::FixedWindow(window) | Algorithm::SlidingWindow(window) | Algorithm::SlidingLog(window) => {
                Some(seconds_up(window.length_ns()))
            }
            Algorithm::Concurrency(_) => None,
        },
    }
}

/// The `qu` parameter of a policy (empty if it counts requests), and the number of its units in a token.
fn quota_unit(rule: &Rule) -> (&'static str, u64) {
    match (&rule.algorithm, &rule.sharing.refill_policy, rule.after.as_deref()) {
        (Algorithm::Concurrency(_), ..) | (_, RefillPolicy::InFlight(_), _) => (";qu=\"concurrent-requests\"", 1),
        (.., Some(After::Bytes { per })) => (";qu=\"content-bytes\"", u64::from(*per)),
        _ => ("", 1),
    }
}

fn seconds_up(ns: u64) -> u64 {
    ns.div_ceil(SECOND_NS)
}

#[cfg(test)]
mod tests;
