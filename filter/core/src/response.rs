//! What the client is told: headers and bodies, prepared once per rule.
//!
//! - `Retry-After`: whole seconds, rounded up, at least 1 (RFC 9110, 10.2.3).
//! - `RateLimit-Policy: "name";q=BURST;w=SECONDS` and `RateLimit: "name";r=LEFT;t=SECONDS`
//!   (draft-ietf-httpapi-ratelimit-headers-10). Where it is not requests that are counted, `qu` says so:
//!   `"concurrent-requests"`, or `"content-bytes"`, of which `q` and `r` are then counts. For a token bucket, `q` is the burst and `w` the time
//!   in which an empty bucket fills, so that q/w is the rate; `t` is the time until there is one more
//!   token than now, rounded up, and is never later than `Retry-After`.
//!   For a quota of the calendar, `q` is the count, `w` the length of a day or of thirty days, and `t` the
//!   time until its window ends, by the wall clock; where a request is refused, what `Retry-After` says.
//! - `X-RateLimit-Limit` (the burst), `-Remaining`, and `-Reset` (when the bucket is full; seconds
//!   from now or since 1970, as the rule says).
//! - The body is a problem (RFC 9457) of the type `quota-exceeded` that the draft registers, or what the
//!   rule says. `Retry-After` may be raised by a jitter, so that clients do not return together; nothing else
//!   is.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::algorithm::Algorithm;
use crate::calendar::Calendar;
use crate::decision::Standing;
use crate::rules::after::After;
use crate::rules::{Reset, Response, Rule};
use crate::template::{Numbers, Template};
use crate::time::SECOND_NS;

/// A header's name and value.
pub type Header<'a> = (&'a str, Cow<'a, str>);

/// A rule's answers, as far as they can be made before a request is there.
#[derive(Clone, Debug)]
pub struct Answers {
    name: String,
    policy: String,
    /// What one token is of the policy's units.
    units: u64,
    limit: String,
    body: Body,
    content_type: String,
    set_headers: Vec<(String, Template)>,
    denial: String,
    limited_message: String,
    denied_message: String,
    limited_details: String,
    denied_details: String,
}

#[derive(Clone, Debug)]
enum Body {
    Problem(String),
    Own(Template),
}

/// A limited response, but for its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited<'a> {
    /// Its headers; each name at most once.
    pub headers: Vec<Header<'a>>,
    /// Its body.
    pub body: Cow<'a, str>,
}

impl Answers {
    /// Prepares the answers of `rule`.
    pub fn of(rule: &Rule) -> Self {
        let (name, quota, response) = (&rule.name, &rule.quota, &rule.response);
        let (status, limit) = (response.status, quota.burst().to_string());
        let seconds = window_ns(rule).map(|ns| ns.div_ceil(SECOND_NS));
        let seconds = rule.sharing.calendar.map(Calendar::nominal_s).or(seconds);
        let window = seconds.map_or(String::new(), |seconds| format!(";w={seconds}"));
        let (unit, units) = quota_unit(rule);
        // A rule's name is made of letters that need no escaping, in a header or in JSON.
        let problem = || {
            format!(
                "{{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
                 \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
                 \"status\":{status},\"violated-policies\":[\"{name}\"]}}"
            )
        };
        let prepared = |template: &Template| template.prepared(name, &limit);
        let body = response.body.as_ref();
        let set_headers = response.set_headers.iter();
        Self {
            name: name.clone(),
            policy: format!("\"{name}\";q={}{unit}{window}", units.saturating_mul(quota.burst().into())),
            units,
            content_type: content_type(response),
            set_headers: set_headers.map(|(name, value)| (name.clone(), prepared(value))).collect(),
            body: body.map_or_else(|| Body::Problem(problem()), |body| Body::Own(prepared(body))),
            denial: format!(
                "{{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":{DENIED_STATUS},\
                 \"detail\":\"The limit {name} cannot be checked at the moment\"}}"
            ),
            limited_message: format!("The limit {name} is reached"),
            denied_message: format!("The limit {name} cannot be checked at the moment"),
            limited_details: format!("weir_limited:{name}"),
            denied_details: format!("weir_denied:{name}"),
            limit,
        }
    }

    /// What an access log is told of a limited response (Envoy's `%RESPONSE_CODE_DETAILS%`).
    pub fn limited_details(&self) -> &str {
        &self.limited_details
    }

    /// And of a denied one.
    pub fn denied_details(&self) -> &str {
        &self.denied_details
    }

    /// What a gRPC client is told instead of the body, in a header.
    pub fn limited_message(&self) -> &str {
        &self.limited_message
    }

    /// And where it was denied.
    pub fn denied_message(&self) -> &str {
        &self.denied_message
    }

    /// The body of a denied response, of type [`PROBLEM_TYPE`]; its status is [`DENIED_STATUS`].
    pub fn denial(&self) -> &str {
        &self.denial
    }

    /// The headers of a denied response: no quota was looked at, so none is told. `jitter_s` raises
    /// `Retry-After`.
    pub fn denied(standing: &Standing, jitter_s: u32) -> Vec<Header<'static>> {
        let after = retry_after_s(standing, jitter_s).to_string();
        alloc::vec![
            ("retry-after", after.into()),
            ("content-type", PROBLEM_TYPE.into()),
            ("cache-control", "no-store".into()),
        ]
    }

    /// Whether what it answers goes by the wall clock; if not, no answer needs to be told the time.
    pub fn is_by_wall_clock(rule: &Rule) -> bool {
        rule.response.reset == Reset::Epoch || rule.sharing.calendar.is_some()
    }

    /// What a limited response tells. `unix_ns` is the wall clock; `jitter_s` raises `Retry-After`.
    pub fn numbers(rule: &Rule, standing: &Standing, unix_ns: u64, jitter_s: u32) -> Numbers {
        let left_ns = window_left_ns(rule, unix_ns);
        let full_ns = left_ns.map_or(standing.full_ns, |left_ns| left_ns.max(standing.more_ns));
        numbers(rule, &Standing { full_ns, ..*standing }, unix_ns, jitter_s)
    }

    /// A limited response that tells these numbers.
    pub fn limited(&self, rule: &Rule, numbers: &Numbers) -> Limited<'_> {
        let mut headers = self.families(rule, numbers);
        if rule.response.headers.retry_after {
            headers.push(("retry-after", numbers.retry_after_s.to_string().into()));
        }
        headers.push(("content-type", self.content_type.as_str().into()));
        headers.push(("cache-control", "no-store".into()));
        for (name, value) in &self.set_headers {
            headers.retain(|(known, _)| known != name);
            headers.push((name, value.text(numbers)));
        }
        let body = match &self.body {
            Body::Problem(problem) => Cow::Borrowed(problem.as_str()),
            Body::Own(template) => template.text(numbers),
        };
        Limited { headers, body }
    }

    /// The quota headers, for an allowed response.
    pub fn quota(&self, rule: &Rule, standing: &Standing, unix_ns: u64) -> Vec<Header<'_>> {
        let whole_again = |left_ns| Standing { more_ns: left_ns, full_ns: left_ns, ..*standing };
        let standing = window_left_ns(rule, unix_ns).map_or(*standing, whole_again);
        self.families(rule, &numbers(rule, &standing, unix_ns, 0))
    }

    fn families(&self, rule: &Rule, numbers: &Numbers) -> Vec<Header<'_>> {
        let families = rule.response.headers;
        let mut headers: Vec<Header<'_>> = Vec::with_capacity(8 + self.set_headers.len());
        let Numbers { remaining, more_s, reset_s, .. } = numbers;
        if families.ratelimit {
            headers.push(("ratelimit-policy", self.policy.as_str().into()));
            let remaining = self.units.saturating_mul(u64::from(*remaining));
            headers.push(("ratelimit", format!("\"{}\";r={remaining};t={more_s}", self.name).into()));
        }
        if families.x_ratelimit {
            headers.push(("x-ratelimit-limit", self.limit.as_str().into()));
            headers.push(("x-ratelimit-remaining", remaining.to_string().into()));
            headers.push(("x-ratelimit-reset", reset_s.to_string().into()));
        }
        headers
    }
}

fn numbers(rule: &Rule, standing: &Standing, unix_ns: u64, jitter_s: u32) -> Numbers {
    Numbers {
        more_s: seconds_up(standing.more_ns),
        retry_after_s: retry_after_s(standing, jitter_s),
        remaining: standing.remaining,
        reset_s: reset_s(rule, standing, unix_ns),
    }
}

/// Of a calendar's quota, how long until it is whole again, by the wall clock, in nanoseconds.
fn window_left_ns(rule: &Rule, unix_ns: u64) -> Option<u64> {
    let end_us = rule.sharing.calendar?.window(unix_ns / 1_000).end_us;
    Some(end_us.saturating_mul(1_000).saturating_sub(unix_ns))
}

/// The status of a denied response: 503, never a limited one's.
pub const DENIED_STATUS: u16 = 503;

/// The status of a request that is refused for what it is.
pub const BLOCKED_STATUS: u16 = 403;

/// The body of such an answer, of type [`PROBLEM_TYPE`].
pub const BLOCKED_BODY: &str = "{\"type\":\"about:blank\",\"title\":\"Forbidden\",\"status\":403}";

/// What a gRPC client is told instead.
pub const BLOCKED_MESSAGE: &str = "Forbidden";

/// The headers of such an answer.
pub fn blocked_headers() -> [Header<'static>; 2] {
    [("content-type", PROBLEM_TYPE.into()), ("cache-control", "no-store".into())]
}

/// Whether a request with this `content-type` is one of gRPC, which has no bodies beside its messages: a host answers it
/// in headers. gRPC-Web is none.
pub fn is_grpc(content_type: &[u8]) -> bool {
    content_type.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest, [] | [b'+' | b';', ..]))
}

/// The media type of a problem.
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// The media type of a body that the rule wrote, where it names none.
const TEXT_TYPE: &str = "text/plain; charset=utf-8";

fn content_type(response: &Response) -> String {
    let default = if response.body.is_some() { TEXT_TYPE } else { PROBLEM_TYPE };
    response.content_type.as_deref().unwrap_or(default).into()
}

fn retry_after_s(standing: &Standing, jitter_s: u32) -> u64 {
    seconds_up(standing.more_ns).max(1).saturating_add(jitter_s.into())
}

fn reset_s(rule: &Rule, standing: &Standing, unix_ns: u64) -> u64 {
    match rule.response.reset {
        Reset::Delta => seconds_up(standing.full_ns),
        Reset::Epoch => seconds_up(unix_ns.saturating_add(standing.full_ns)),
    }
}

/// The time in which all of a rule's quota comes back; none where no time does that.
fn window_ns(rule: &Rule) -> Option<u64> {
    match rule.algorithm {
        Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) => Some(rule.quota.fill_ns()),
        Algorithm::FixedWindow(window) => Some(window.length_ns()),
        Algorithm::SlidingWindow(window) => Some(window.length_ns()),
        Algorithm::SlidingLog(log) => Some(log.length_ns()),
        Algorithm::Concurrency(_) => None,
    }
}

/// What a policy says of the unit that it counts, unless that is requests, and how much of it a token is.
fn quota_unit(rule: &Rule) -> (&'static str, u64) {
    match (&rule.algorithm, rule.after.as_deref()) {
        (Algorithm::Concurrency(_), _) => (";qu=\"concurrent-requests\"", 1),
        (_, Some(After::Bytes { per })) => (";qu=\"content-bytes\"", u64::from(*per)),
        _ => ("", 1),
    }
}

fn seconds_up(ns: u64) -> u64 {
    ns.div_ceil(SECOND_NS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Errors;
    use crate::rules::RuleSet;
    use serde_json::json;

    fn rule(response: &serde_json::Value) -> Rule {
        let (mut errors, value) = (
            Errors::default(),
            json!([{"name": "r-1", "key": ["client_address"], "rate": "3/s", "burst": 10, "response": response}]),
        );
        let rules = RuleSet::parse(&value, "rules", &mut errors);
        errors.into_result(rules).unwrap().rules()[0].clone()
    }

    fn value(headers: &[Header<'_>], name: &str) -> Option<String> {
        headers.iter().find(|(n, _)| *n == name).map(|(_, value)| value.clone().into_owned())
    }

    #[test]
    fn a_limited_response_says_when_to_come_back() {
        let rule = rule(&json!({}));
        let standing = Standing { remaining: 0, more_ns: 1, full_ns: 3_333_333_334 };
        let answers = Answers::of(&rule);
        let headers = answers.limited(&rule, &Answers::numbers(&rule, &standing, 0, 0)).headers;
        for (name, expected) in [
            ("retry-after", "1"),
            ("ratelimit-policy", "\"r-1\";q=10;w=4"),
            ("ratelimit", "\"r-1\";r=0;t=1"),
            ("x-ratelimit-limit", "10"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "4"),
            ("content-type", "application/problem+json"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(value(&headers, name).as_deref(), Some(expected), "{name}");
        }
    }

    #[test]
    fn grpc_is_told_by_the_content_type() {
        for (content_type, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc; charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/json", false),
            ("", false),
        ] {
            assert_eq!(is_grpc(content_type.as_bytes()), expected, "{content_type}");
        }
    }

    #[test]
    fn retry_after_is_never_earlier_than_the_token() {
        let rule = rule(&json!({}));
        let answers = Answers::of(&rule);
        for more_ns in [0, 1, SECOND_NS - 1, SECOND_NS, SECOND_NS + 1, 86_400 * SECOND_NS] {
            let standing = Standing { remaining: 0, more_ns, full_ns: more_ns };
            let exact = answers.limited(&rule, &Answers::numbers(&rule, &standing, 0, 0)).headers;
            let after: u64 = value(&exact, "retry-after").unwrap().parse().unwrap();
            assert!(after >= 1 && after * SECOND_NS >= more_ns && after * SECOND_NS <= more_ns + SECOND_NS);
            let late = answers.limited(&rule, &Answers::numbers(&rule, &standing, 0, 7)).headers;
            assert_eq!(value(&late, "retry-after"), Some((after + 7).to_string()));
            let others = |headers: &[Header<'_>]| {
                let others = headers.iter().filter(|(name, _)| *name != "retry-after");
                others.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
            };
            assert_eq!(others(&exact), others(&late), "what is told of the quota stays exact");
            let denied = Answers::denied(&standing, 7);
            assert_eq!(value(&denied, "retry-after"), Some((after + 7).to_string()));
        }
    }

    #[test]
    fn families_and_the_form_of_reset_are_the_rules_choice() {
        let standing = Standing { remaining: 4, more_ns: 5, full_ns: 2 * SECOND_NS };
        let epoch = rule(&json!({"headers": ["x_ratelimit"], "reset": "epoch"}));
        let answers = Answers::of(&epoch);
        let headers = answers.quota(&epoch, &standing, 1_700_000_000 * SECOND_NS);
        assert_eq!(value(&headers, "x-ratelimit-reset").as_deref(), Some("1700000002"));
        assert_eq!(headers.len(), 3);
        let none = rule(&json!({"headers": []}));
        assert!(Answers::of(&none).quota(&none, &standing, 0).is_empty());
    }

    #[test]
    fn what_is_counted_is_said_where_it_is_not_requests() {
        let of = |fields: serde_json::Value| {
            let mut rule = json!({"name": "a", "key": ["client_address"]});
            rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let mut errors = Errors::default();
            let rules = RuleSet::parse(&json!([rule]), "rules", &mut errors);
            let rules = errors.into_result(rules).unwrap();
            let rule = &rules.rules()[0];
            let standing = Standing { remaining: 7, more_ns: SECOND_NS, full_ns: SECOND_NS };
            let answers = Answers::of(rule);
            let headers = answers.quota(rule, &standing, 0);
            (value_of(&headers, "ratelimit-policy"), value_of(&headers, "ratelimit"))
        };
        for (fields, policy, left) in [
            (json!({"rate": "10/s"}), "\"a\";q=10;w=1", "\"a\";r=7;t=1"),
            (
                json!({"algorithm": "concurrency", "limit": 10}),
                "\"a\";q=10;qu=\"concurrent-requests\"",
                "\"a\";r=7;t=1",
            ),
            (
                json!({"rate": "10/s", "cost": {"after": {"response_bytes_per": 1024}}}),
                "\"a\";q=10240;qu=\"content-bytes\";w=1",
                "\"a\";r=7168;t=1",
            ),
            (json!({"rate": "10/s", "cost": {"after": {"header": "x"}}}), "\"a\";q=10;w=1", "\"a\";r=7;t=1"),
        ] {
            assert_eq!(of(fields), (policy.into(), left.into()));
        }
    }

    /// Six hours before the end of the 10th of September 2001.
    #[test]
    fn a_calendars_quota_says_when_its_window_ends() {
        let mut errors = Errors::default();
        let value =
            json!([{"name": "q", "key": ["client_address"], "algorithm": "quota", "rate": "500/day"}]);
        let rules = RuleSet::parse(&value, "rules", &mut errors).unwrap();
        let (rule, hour_ns) = (&rules.rules()[0], 3_600 * SECOND_NS);
        let unix_ns = 11_576 * 24 * hour_ns - 6 * hour_ns;
        let allowed = Standing { remaining: 7, more_ns: 1, full_ns: 2 };
        let answers = Answers::of(rule);
        let headers = answers.quota(rule, &allowed, unix_ns);
        for (name, expected) in [
            ("ratelimit-policy", "\"q\";q=500;w=86400"),
            ("ratelimit", "\"q\";r=7;t=21600"),
            ("x-ratelimit-limit", "500"),
            ("x-ratelimit-reset", "21600"),
        ] {
            assert_eq!(value_of(&headers, name), expected);
        }
        // A minute before it may be worth another try, or exhausted until the end.
        for (wait_ns, retry, reset) in [(60 * SECOND_NS, "60", "21600"), (6 * hour_ns + 1, "21601", "21601")]
        {
            let refused = Standing::refused(wait_ns, wait_ns);
            let answers = Answers::of(rule);
            let headers = answers.limited(rule, &Answers::numbers(rule, &refused, unix_ns, 0)).headers;
            assert_eq!(value_of(&headers, "retry-after"), retry);
            assert_eq!(value_of(&headers, "ratelimit"), format!("\"q\";r=0;t={retry}"));
            assert_eq!(value_of(&headers, "x-ratelimit-reset"), reset);
        }
    }

    fn value_of(headers: &[Header<'_>], name: &str) -> String {
        value(headers, name).unwrap_or_default()
    }

    #[test]
    fn the_body_is_a_problem() {
        let rule = rule(&json!({"status": 430, "content_type": "application/json"}));
        let answers = Answers::of(&rule);
        let limited = answers.limited(
            &rule,
            &Answers::numbers(&rule, &Standing { remaining: 0, more_ns: 1, full_ns: 1 }, 0, 0),
        );
        let body: serde_json::Value = serde_json::from_str(&limited.body).unwrap();
        assert_eq!(body["status"], 430);
        assert_eq!(body["violated-policies"], json!(["r-1"]));
        assert_eq!(value(&limited.headers, "content-type").as_deref(), Some("application/json"));
    }

    #[test]
    fn body_and_headers_are_the_rules_choice() {
        let rule = rule(&json!({
            "reset": "epoch", "body": "{{rule}}: {{remaining}} of {{limit}}, wait {{retry_after}} s, full at {{reset}}",
            "set_headers": {"X-Why": "{{rule}} {{retry_after}}", "cache-control": "private", "x-ratelimit-limit": "few"},
        }));
        let answers = Answers::of(&rule);
        let standing = Standing { remaining: 0, more_ns: 2 * SECOND_NS, full_ns: 5 * SECOND_NS };
        let limited =
            answers.limited(&rule, &Answers::numbers(&rule, &standing, 1_700_000_000 * SECOND_NS, 3));
        assert_eq!(limited.body, "r-1: 0 of 10, wait 5 s, full at 1700000005");
        for (name, expected) in [
            ("x-why", "r-1 5"),
            ("cache-control", "private"),
            ("x-ratelimit-limit", "few"),
            ("retry-after", "5"),
            ("ratelimit", "\"r-1\";r=0;t=2"),
            ("content-type", "text/plain; charset=utf-8"),
        ] {
            assert_eq!(value(&limited.headers, name).as_deref(), Some(expected), "{name}");
        }
        let mut names: Vec<_> = limited.headers.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), limited.headers.len(), "each name once");
        assert!(answers.quota(&rule, &standing, 0).iter().all(|(name, _)| *name != "x-why"));
    }
}
