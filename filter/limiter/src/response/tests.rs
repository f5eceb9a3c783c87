//! Responses to clients.

use super::*;
use serde_json::json;
use weir_protocol::time::SECOND_NS;
use weir_rules::document;
use weir_rules::reading::ErrorCollector;

fn rule(response: &serde_json::Value) -> Rule {
    parsed(&json!({"name": "r-1", "key": ["client_address"], "rate": "3/s", "burst": 10, "response": response}))
}

fn parsed(rule: &serde_json::Value) -> Rule {
    let errors = ErrorCollector::default();
    let rules = document::read(&json!({"rules": [rule]}), &errors);
    errors.into_result(rules).unwrap().rules()[0].clone()
}

/// The answer to a client without the policies of other rules.
fn limited<'a>(
    answers: &'a PreparedResponses,
    rule: &Rule,
    bucket: &BucketStatus,
    unix_ns: u64,
    jitter_s: u32,
) -> (Vec<Header<'a>>, Cow<'a, str>) {
    let numbers = numbers(rule, bucket, unix_ns, jitter_s);
    let policies = if rule.response.headers.ratelimit { answers.policy(&[]) } else { String::new() };
    let status = LimitedStatus { numbers, partition: &[], policies: &policies, is_grpc: false, is_banned: false };
    answers.limited(rule, &status)
}

/// The quota headers of a response in which nobody else states a quota.
fn quota<'a>(answers: &'a PreparedResponses, rule: &Rule, bucket: &BucketStatus, unix_ns: u64) -> Vec<Header<'a>> {
    let policies = if rule.response.headers.ratelimit { answers.policy(&[]) } else { String::new() };
    answers.quota(rule, (bucket, &[], policies), &[], unix_ns)
}

/// The value of a header; empty if it is not there.
fn value_of(headers: &[Header<'_>], name: &str) -> String {
    headers.iter().find(|(n, _)| *n == name).map(|(_, value)| value.clone().into_owned()).unwrap_or_default()
}

#[test]
fn grpc_is_recognised_by_the_content_type() {
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
    let answers = PreparedResponses::of(&rule);
    for more_ns in [0, 1, SECOND_NS - 1, SECOND_NS, SECOND_NS + 1, 86_400 * SECOND_NS] {
        let bucket = BucketStatus { remaining: 0, more_ns, full_ns: more_ns };
        let exact = limited(&answers, &rule, &bucket, 0, 0).0;
        let after: u64 = value_of(&exact, "retry-after").parse().unwrap();
        assert!(after >= 1 && after * SECOND_NS >= more_ns && after * SECOND_NS <= more_ns + SECOND_NS);
        let late = limited(&answers, &rule, &bucket, 0, 7).0;
        assert_eq!(value_of(&late, "retry-after"), (after + 7).to_string());
        let others = |headers: &[Header<'_>]| {
            let others = headers.iter().filter(|(name, _)| *name != "retry-after");
            others.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
        };
        assert_eq!(others(&exact), others(&late), "the quota headers stay exact");
        let denied = answers.denied(&bucket, 7, false);
        assert_eq!(value_of(&denied, "retry-after"), (after + 7).to_string());
    }
}

#[test]
fn a_policy_states_its_unit_unless_it_is_requests() {
    let of = |fields: serde_json::Value| {
        let mut rule = json!({"name": "a", "key": ["client_address"]});
        rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let rule = parsed(&rule);
        let bucket = BucketStatus { remaining: 7, more_ns: SECOND_NS, full_ns: SECOND_NS };
        let answers = PreparedResponses::of(&rule);
        let headers = quota(&answers, &rule, &bucket, 0);
        (value_of(&headers, "ratelimit-policy"), value_of(&headers, "ratelimit"))
    };
    for (fields, policy, left) in [
        (json!({"rate": "10/s"}), "\"a\";q=10;w=1", "\"a\";r=7;t=1"),
        (json!({"algorithm": "concurrency", "limit": 10}), "\"a\";q=10;qu=\"concurrent-requests\"", "\"a\";r=7;t=1"),
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
fn a_calendar_quota_states_when_its_window_ends() {
    let rule = &parsed(&json!({"name": "q", "key": ["client_address"], "algorithm": "quota", "rate": "500/day"}));
    let hour_ns = 3_600 * SECOND_NS;
    let unix_ns = 11_576 * 24 * hour_ns - 6 * hour_ns;
    let allowed = BucketStatus { remaining: 7, more_ns: 1, full_ns: 2 };
    let answers = PreparedResponses::of(rule);
    let headers = quota(&answers, rule, &allowed, unix_ns);
    for (name, expected) in [
        ("ratelimit-policy", "\"q\";q=500;w=86400"),
        ("ratelimit", "\"q\";r=7;t=21600"),
        ("x-ratelimit-limit", "500"),
        ("x-ratelimit-reset", "21600"),
    ] {
        assert_eq!(value_of(&headers, name), expected);
    }
    // Another try may be worth it after a minute; or the quota is exhausted until the window ends.
    for (wait_ns, retry) in [(60 * SECOND_NS, "60"), (6 * hour_ns + 1, "21601")] {
        let refused = BucketStatus::refused(wait_ns);
        let answers = PreparedResponses::of(rule);
        let headers = limited(&answers, rule, &refused, unix_ns, 0).0;
        assert_eq!(value_of(&headers, "retry-after"), retry);
        assert_eq!(value_of(&headers, "ratelimit"), format!("\"q\";r=0;t={retry}"));
        assert_eq!(value_of(&headers, "x-ratelimit-reset"), retry);
    }
}

#[test]
fn body_and_headers_are_the_rules_choice() {
    let rule = rule(&json!({
        "reset": "epoch", "body": "{{rule}}: {{remaining}} of {{limit}}, wait {{retry_after}} s, again at {{reset}}",
        "set_headers": {"X-Why": "{{rule}} {{retry_after}}", "cache-control": "private", "x-ratelimit-limit": "few"},
    }));
    let answers = PreparedResponses::of(&rule);
    let bucket = BucketStatus { remaining: 0, more_ns: 2 * SECOND_NS, full_ns: 5 * SECOND_NS };
    let limited = limited(&answers, &rule, &bucket, 1_700_000_000 * SECOND_NS, 3);
    assert_eq!(limited.1, "r-1: 0 of 10, wait 5 s, again at 1700000002");
    for (name, expected) in [
        ("x-why", "r-1 5"),
        ("cache-control", "private"),
        ("x-ratelimit-limit", "few"),
        ("retry-after", "5"),
        ("ratelimit", "\"r-1\";r=0;t=2"),
        ("content-type", "text/plain; charset=utf-8"),
    ] {
        assert_eq!(value_of(&limited.0, name), expected, "{name}");
    }
    let mut names: Vec<_> = limited.0.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), limited.0.len(), "each name once");
    assert!(quota(&answers, &rule, &bucket, 0).iter().all(|(name, _)| *name != "x-why"));
}

#[test]
fn a_reset_is_the_next_token_or_the_full_bucket() {
    for (form, now_s) in [("delta", 0), ("epoch", 1_700_000_000)] {
        let rule = rule(&json!({"reset": form}));
        let answers = PreparedResponses::of(&rule);
        let reset = |headers: &[Header<'_>]| value_of(headers, "x-ratelimit-reset").parse::<u64>().unwrap() - now_s;
        let unix_ns = now_s * SECOND_NS;
        let refused = BucketStatus { remaining: 0, more_ns: 5 * SECOND_NS, full_ns: 599 * SECOND_NS };
        assert_eq!(reset(&limited(&answers, &rule, &refused, unix_ns, 0).0), 5);
        assert_eq!(reset(&limited(&answers, &rule, &refused, unix_ns, 9).0), 5, "without the jitter");
        assert_eq!(reset(&quota(&answers, &rule, &refused, unix_ns)), 5, "none left");
        let allowed = BucketStatus { remaining: 1, ..refused };
        assert_eq!(reset(&quota(&answers, &rule, &allowed, unix_ns)), 599);
    }
}

#[test]
fn a_clear_part_of_the_key_is_the_partition_key() {
    let rule = rule(&json!({}));
    let answers = PreparedResponses::of(&rule);
    let bucket = BucketStatus { remaining: 7, more_ns: SECOND_NS, full_ns: SECOND_NS };
    for (part, encoded) in [("abc", "YWJj"), ("abcd", "YWJjZA=="), ("\u{e9}\"", "w6ki")] {
        let headers = answers.quota(&rule, (&bucket, part.as_bytes(), answers.policy(part.as_bytes())), &[], 0);
        assert_eq!(value_of(&headers, "ratelimit-policy"), format!("\"r-1\";q=10;w=4;pk=:{encoded}:"));
        assert_eq!(value_of(&headers, "ratelimit"), format!("\"r-1\";r=7;t=1;pk=:{encoded}:"));
    }
}

/// The quota headers for 7 of 10 tokens and these of the upstream, with a Unix time of 1,700,000,000 s: the
/// policies, the status, and the triples.
fn merged(theirs: &[(&'static str, &str)]) -> [String; 8] {
    let rule = rule(&json!({}));
    let answers = PreparedResponses::of(&rule);
    let lines: Vec<HeaderLine> =
        theirs.iter().map(|(name, value)| (place_of(name), value.as_bytes().to_vec())).collect();
    let bucket = BucketStatus { remaining: 7, more_ns: SECOND_NS, full_ns: 2 * SECOND_NS };
    let own = (&bucket, &[][..], answers.policy(&[]));
    let headers = answers.quota(&rule, own, &lines, 1_700_000_000 * SECOND_NS);
    let mut names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), headers.len(), "each once: {headers:?}");
    STATED.map(|name| value_of(&headers, name))
}

fn place_of(name: &str) -> usize {
    STATED.iter().position(|known| *known == name).unwrap()
}

const OWN: &str = "\"r-1\";q=10;w=4";

#[test]
fn the_strictest_of_two_statuses_is_stated_once() {
    let x = |remaining| {
        [("x-ratelimit-limit", "100, 100;w=60"), ("x-ratelimit-remaining", remaining), ("x-ratelimit-reset", "30")]
    };
    let own = [OWN, "\"r-1\";r=7;t=1", "10", "7", "2", "", "", ""].map(String::from);
    assert_eq!(merged(&x("71")), own);
    let policies = format!("{OWN}, \"upstream\";q=100");
    let theirs = [&policies, "\"upstream\";r=69;t=30", "100", "69", "30", "", "", ""].map(String::from);
    assert_eq!(merged(&x("69")), theirs);
    let draft = |remaining| {
        let policy = "\"b, c\";q=100;w=60;comment=\"a;b\", \"d\";q=5000";
        [("ratelimit-policy", String::from(policy)), ("ratelimit", format!("\"b, c\";r={remaining};t=30"))]
    };
    for (remaining, member, [limit, left, reset]) in
        [("71", "\"r-1\";r=7;t=1", ["10", "7", "2"]), ("69", "\"b, c\";r=69;t=30", ["100", "69", "30"])]
    {
        let [policy, status] = draft(remaining);
        let policies = format!("{}, {OWN}", policy.1);
        let headers = merged(&[(policy.0, &policy.1), (status.0, &status.1)]);
        assert_eq!(headers, [&policies, member, limit, left, reset, "", "", ""].map(String::from));
    }
}

#[test]
fn an_upstreams_status_is_read_in_every_form() {
    // Two proxies behind this one.
    let two = [("x-ratelimit-remaining", "50"), ("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "1")];
    assert_eq!(merged(&two)[3], "1", "without a limit, the fewest");
    // GitHub's, as a Unix time.
    let epoch = [("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000042")];
    assert_eq!(merged(&epoch)[1..5], ["\"upstream\";r=0;t=42", "60", "0", "1700000042"]);
    // Drafts 07 and 06.
    let headers = merged(&[("ratelimit", "limit=100, remaining=3, reset=9"), ("ratelimit-policy", "100;w=60")]);
    let policies = format!("{OWN}, \"upstream\";q=100");
    assert_eq!(headers[..5], [&policies, "\"upstream\";r=3;t=9", "100", "3", "9"]);
    let headers = merged(&[("ratelimit-limit", "100"), ("ratelimit-remaining", "3"), ("ratelimit-reset", "9")]);
    assert_eq!(headers[1..], ["\"upstream\";r=3;t=9", "100", "3", "9", "100", "3", "9"]);
    // A second Weir with the same rules.
    assert_eq!(merged(&[("ratelimit-policy", OWN), ("ratelimit", "\"r-1\";r=2;t=1")])[..2], [OWN, "\"r-1\";r=2;t=1"]);
    // Neither in 8 of an unknown number, where another's 10 of 15 are less than one's own 7 of 10.
    let headers =
        merged(&[("ratelimit", "\"b\";r=10"), ("ratelimit", "\"a\";r=8"), ("ratelimit-policy", "\"b\";q=15")]);
    assert_eq!(headers[1..4], ["\"b\";r=10", "15", "10"]);
    // Unreadable values.
    let own = [OWN, "\"r-1\";r=7;t=1", "10", "7", "2"];
    for value in ["lots", "", "-1", "99999999999999999999", "\"a", "\u{0}"] {
        assert_eq!(merged(&[("x-ratelimit-remaining", value), ("ratelimit", value)])[..5], own, "{value}");
    }
}

proptest::proptest! {
    /// Whatever an upstream states: each header once, and never more left than one's own.
    #[test]
    fn no_upstream_raises_the_remaining_tokens(
        values in proptest::collection::vec((0..STATED.len(), "[ -~]{0,20}|\"[a-b]\";[rq]=[0-9]{1,20}"), 0..9),
    ) {
        let lines: Vec<_> = values.iter().map(|(n, value)| (STATED[*n], value.as_str())).collect();
        let headers = merged(&lines);
        let numbers = [3, 2].map(|n| headers[n].parse::<u128>().unwrap_or(1));
        let is_stricter = numbers[0] * 10 <= 7 * numbers[1] || headers[2].is_empty() && numbers[0] <= 7;
        proptest::prop_assert!(is_stricter, "{headers:?}");
    }
}
