//! What the client is told: headers and bodies, prepared once per rule.
//!
//! - `Retry-After`: whole seconds, rounded up, at least 1 (RFC 9110, 10.2.3).
//! - `RateLimit-Policy: "name";q=BURST;w=SECONDS` and `RateLimit: "name";r=LEFT;t=SECONDS`
//!   (draft-ietf-httpapi-ratelimit-headers-10). For a token bucket, `q` is the burst and `w` the time
//!   in which an empty bucket fills, so that q/w is the rate; `t` is the time until there is one more
//!   token than now, rounded up, and is never later than `Retry-After`.
//! - `X-RateLimit-Limit` (the burst), `-Remaining`, and `-Reset` (when the bucket is full; seconds
//!   from now or since 1970, as the rule says).
//! - The body is a problem (RFC 9457) of the type `quota-exceeded` that the draft registers.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::decision::Standing;
use crate::rules::{Reset, Rule};
use crate::time::SECOND_NS;

/// A header's name and value.
pub type Header = (&'static str, String);

/// A rule's answers, as far as they can be made before a request is there.
#[derive(Clone, Debug)]
pub struct Answers {
    name: String,
    policy: String,
    limit: String,
    body: String,
    denial: String,
}

impl Answers {
    /// Prepares the answers of `rule`.
    pub fn of(rule: &Rule) -> Self {
        let (name, quota, status) = (&rule.name, &rule.quota, rule.response.status);
        let window_s = quota.fill_ns().div_ceil(SECOND_NS);
        // A rule's name is made of letters that need no escaping, in a header or in JSON.
        Self {
            name: name.clone(),
            policy: format!("\"{name}\";q={};w={window_s}", quota.burst()),
            limit: quota.burst().to_string(),
            body: format!(
                "{{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
                 \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
                 \"status\":{status},\"violated-policies\":[\"{name}\"]}}"
            ),
            denial: format!(
                "{{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":{DENIED_STATUS},\
                 \"detail\":\"The limit {name} cannot be checked at the moment\"}}"
            ),
        }
    }

    /// The body of a limited response, of type [`PROBLEM_TYPE`].
    pub fn body(&self) -> &str {
        &self.body
    }

    /// The body of a denied response, of type [`PROBLEM_TYPE`]; its status is [`DENIED_STATUS`].
    pub fn denial(&self) -> &str {
        &self.denial
    }

    /// The headers of a denied response: no quota was looked at, so none is told.
    pub fn denied(standing: &Standing) -> Vec<Header> {
        let after = seconds_up(standing.more_ns).max(1).to_string();
        alloc::vec![
            ("retry-after", after),
            ("content-type", PROBLEM_TYPE.into()),
            ("cache-control", "no-store".into()),
        ]
    }

    /// The headers of a limited response. `unix_ns` is the wall clock.
    pub fn limited(&self, rule: &Rule, standing: &Standing, unix_ns: u64) -> Vec<Header> {
        let mut headers = self.quota(rule, standing, unix_ns);
        if rule.response.headers.retry_after {
            headers.push(("retry-after", seconds_up(standing.more_ns).max(1).to_string()));
        }
        headers.push(("content-type", PROBLEM_TYPE.into()));
        headers.push(("cache-control", "no-store".into()));
        headers
    }

    /// The quota headers, for an allowed response.
    pub fn quota(&self, rule: &Rule, standing: &Standing, unix_ns: u64) -> Vec<Header> {
        let families = rule.response.headers;
        let mut headers = Vec::with_capacity(8);
        if families.ratelimit {
            let (left, more_s) = (standing.remaining, seconds_up(standing.more_ns));
            headers.push(("ratelimit-policy", self.policy.clone()));
            headers.push(("ratelimit", format!("\"{}\";r={left};t={more_s}", self.name)));
        }
        if families.x_ratelimit {
            let reset = match rule.response.reset {
                Reset::Delta => seconds_up(standing.full_ns),
                Reset::Epoch => seconds_up(unix_ns.saturating_add(standing.full_ns)),
            };
            headers.push(("x-ratelimit-limit", self.limit.clone()));
            headers.push(("x-ratelimit-remaining", standing.remaining.to_string()));
            headers.push(("x-ratelimit-reset", reset.to_string()));
        }
        headers
    }
}

/// The status of a denied response: 503, never a limited one's.
pub const DENIED_STATUS: u16 = 503;

/// The status of a request that is refused for what it is.
pub const BLOCKED_STATUS: u16 = 403;

/// The body of such an answer, of type [`PROBLEM_TYPE`].
pub const BLOCKED_BODY: &str = "{\"type\":\"about:blank\",\"title\":\"Forbidden\",\"status\":403}";

/// The headers of such an answer.
pub fn blocked_headers() -> [Header; 2] {
    [("content-type", PROBLEM_TYPE.into()), ("cache-control", "no-store".into())]
}

/// The media type of a limited response's body.
pub const PROBLEM_TYPE: &str = "application/problem+json";

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

    fn value(headers: &[Header], name: &str) -> Option<String> {
        headers.iter().find(|(n, _)| *n == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn a_limited_response_says_when_to_come_back() {
        let rule = rule(&json!({}));
        let standing = Standing { remaining: 0, more_ns: 1, full_ns: 3_333_333_334 };
        let headers = Answers::of(&rule).limited(&rule, &standing, 0);
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
    fn retry_after_is_never_earlier_than_the_token() {
        let rule = rule(&json!({}));
        for more_ns in [0, 1, SECOND_NS - 1, SECOND_NS, SECOND_NS + 1, 86_400 * SECOND_NS] {
            let standing = Standing { remaining: 0, more_ns, full_ns: more_ns };
            let headers = Answers::of(&rule).limited(&rule, &standing, 0);
            let after: u64 = value(&headers, "retry-after").unwrap().parse().unwrap();
            assert!(after >= 1 && after * SECOND_NS >= more_ns && after * SECOND_NS <= more_ns + SECOND_NS);
        }
    }

    #[test]
    fn families_and_the_form_of_reset_are_the_rules_choice() {
        let standing = Standing { remaining: 4, more_ns: 5, full_ns: 2 * SECOND_NS };
        let epoch = rule(&json!({"headers": ["x_ratelimit"], "reset": "epoch"}));
        let headers = Answers::of(&epoch).quota(&epoch, &standing, 1_700_000_000 * SECOND_NS);
        assert_eq!(value(&headers, "x-ratelimit-reset").as_deref(), Some("1700000002"));
        assert_eq!(headers.len(), 3);
        let none = rule(&json!({"headers": []}));
        assert!(Answers::of(&none).quota(&none, &standing, 0).is_empty());
    }

    #[test]
    fn the_body_is_a_problem() {
        let answers = Answers::of(&rule(&json!({"status": 430})));
        let body: serde_json::Value = serde_json::from_str(answers.body()).unwrap();
        assert_eq!(body["status"], 430);
        assert_eq!(body["violated-policies"], json!(["r-1"]));
    }
}
