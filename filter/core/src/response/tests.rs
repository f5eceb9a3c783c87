//! What clients are told.

use super::*;
use serde_json::json;
use weir_rules::RuleSet;
use weir_rules::reading::Errors;
use weir_wire::time::SECOND_NS;

fn rule(response: &serde_json::Value) -> Rule {
    let (errors, value) = (
        Errors::default(),
        json!([{"name": "r-1", "key": ["client_address"], "rate": "3/s", "burst": 10, "response": response}]),
    );
    let rules = RuleSet::parse(&value, "rules", &errors);
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
    let headers = answers.limited(&rule, &Answers::numbers(&rule, &standing, 0, 0), false).headers;
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
        let exact = answers.limited(&rule, &Answers::numbers(&rule, &standing, 0, 0), false).headers;
        let after: u64 = value(&exact, "retry-after").unwrap().parse().unwrap();
        assert!(after >= 1 && after * SECOND_NS >= more_ns && after * SECOND_NS <= more_ns + SECOND_NS);
        let late = answers.limited(&rule, &Answers::numbers(&rule, &standing, 0, 7), false).headers;
        assert_eq!(value(&late, "retry-after"), Some((after + 7).to_string()));
        let others = |headers: &[Header<'_>]| {
            let others = headers.iter().filter(|(name, _)| *name != "retry-after");
            others.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
        };
        assert_eq!(others(&exact), others(&late), "what is told of the quota stays exact");
        let denied = answers.denied(&standing, 7, false);
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
        let errors = Errors::default();
        let rules = RuleSet::parse(&json!([rule]), "rules", &errors);
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
    let errors = Errors::default();
    let value = json!([{"name": "q", "key": ["client_address"], "algorithm": "quota", "rate": "500/day"}]);
    let rules = RuleSet::parse(&value, "rules", &errors).unwrap();
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
    // Another try may be worth it after a minute; or the quota is exhausted until the window ends.
    for (wait_ns, retry, reset) in [(60 * SECOND_NS, "60", "21600"), (6 * hour_ns + 1, "21601", "21601")] {
        let refused = Standing::refused(wait_ns, wait_ns);
        let answers = Answers::of(rule);
        let headers = answers.limited(rule, &Answers::numbers(rule, &refused, unix_ns, 0), false).headers;
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
    let standing = Standing { remaining: 0, more_ns: 1, full_ns: 1 };
    let limited = answers.limited(&rule, &Answers::numbers(&rule, &standing, 0, 0), false);
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
        answers.limited(&rule, &Answers::numbers(&rule, &standing, 1_700_000_000 * SECOND_NS, 3), false);
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
