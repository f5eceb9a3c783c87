//! What a client, an access log and an operator are told.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use prost::Message as _;
use serde_json::json;
use weir_tests::mock_host::{Answer, LocalResponse, Script, Worker};

use crate::harness::{client, plugin, rule, shared, synced, with};

#[test]
fn a_limited_request_gets_one_complete_answer() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("10/m", 5)));
    assert_eq!(worker.allowed_of(5, &client(1)), 5);
    for _ in 0..2 {
        // The second comes from the deny cache.
        let served = worker.request(&client(1));
        let answer = served.answer();
        assert_eq!((answer.status, answer.details.as_str()), (429, "weir_limited:per-address"));
        assert_eq!(answer.grpc_status, 8, "RESOURCE_EXHAUSTED for gRPC");
        for (name, value) in [
            ("retry-after", "6"),
            ("ratelimit-policy", r#""per-address";q=5;w=30"#),
            ("ratelimit", r#""per-address";r=0;t=6"#),
            ("x-ratelimit-limit", "5"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "6"),
            ("cache-control", "no-store"),
            ("content-type", "application/problem+json"),
        ] {
            assert_eq!(answer.header(name), value, "{name}");
        }
        assert_eq!(answer.headers.len(), 8, "{:?}", answer.headers);
        let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
        assert_eq!(
            (&problem["status"], &problem["violated-policies"]),
            (&json!(429), &json!(["per-address"]))
        );
        assert_eq!(served.added_headers, [], "nothing is added to the filter's own answer");
    }
    assert_eq!(worker.counted("weir.local_cache.hits"), 1);
}

#[test]
fn a_refused_request_without_a_body_is_not_asked_whether_it_is_grpc() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("10/m", 1)));
    assert!(worker.request(&client(1)).allowed());
    for (ask, asked) in [(client(1), 0), (client(1).header("content-type", "text/plain"), 1)] {
        let before = worker.host().called("proxy_get_header_map_value");
        assert_eq!(worker.request(&ask).answer().status, 429);
        assert_eq!(worker.host().called("proxy_get_header_map_value") - before, asked);
    }
}

#[test]
fn a_grpc_client_is_told_in_one_sentence() {
    let deny = json!([{"addresses": ["192.0.2.2"]}]);
    let grpc = |n| client(n).header("content-type", "application/grpc+proto").header("te", "trailers");
    let limiting = with(plugin(&rule("10/m", 5)), "deny", deny);
    let mut worker = Worker::configured(&shared(), &limiting);
    assert_eq!(worker.allowed_of(5, &grpc(1)), 5);
    let told = |answer: &LocalResponse| {
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "trailers only");
        assert_eq!(answer.header("content-type"), "application/grpc");
        (answer.header("grpc-status").to_owned(), answer.header("grpc-message").to_owned())
    };
    let expected = |status: &str, message: &str| (status.to_owned(), message.to_owned());
    for _ in 0..2 {
        let limited = worker.request(&grpc(1)).answer().clone();
        assert_eq!(told(&limited), expected("8", "The limit per-address is reached"));
    }
    assert_eq!(told(worker.request(&grpc(2)).answer()), expected("7", "Forbidden"));
    for kind in ["application/grpc-web", "text/plain"] {
        let ask = client(1).header("content-type", kind).header("te", "trailers");
        let problem = worker.request(&ask).answer().body.clone();
        assert!(problem.starts_with('{'), "{kind}: {problem}");
    }
    let denying = synced(&with(rule("1/h", 5), "on_sync_loss", json!("deny")));
    let mut worker = Worker::configured(&shared(), &denying);
    worker.advance_ms(60_000);
    let denied = worker.request(&grpc(1)).answer().clone();
    assert_eq!(told(&denied), expected("14", "The limit per-address cannot be checked at the moment"));
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

/// `google.rpc.QuotaFailure`.
#[derive(Clone, PartialEq, prost::Message)]
struct QuotaFailure {
    #[prost(message, repeated, tag = "1")]
    violations: Vec<Violation>,
}

/// `google.rpc.QuotaFailure.Violation`.
#[derive(Clone, PartialEq, prost::Message)]
struct Violation {
    #[prost(string, tag = "1")]
    subject: String,
}

/// The status that an answer has in its header, the names of its details, and the seconds of the first.
fn details(answer: &LocalResponse) -> (Status, Vec<String>, i64) {
    let bytes = STANDARD_NO_PAD.decode(answer.header("grpc-status-details-bin")).expect("base64");
    let status = Status::decode(&*bytes).expect("a status");
    let names = status.details.iter().map(|any| any.type_url.clone()).collect();
    let info = RetryInfo::decode(&*status.details[0].value).expect("a RetryInfo");
    let delay = info.retry_delay.expect("a delay");
    assert_eq!(delay.nanos, 0);
    (status, names, delay.seconds)
}

#[test]
fn a_grpc_client_is_told_why_and_when_to_come_back() {
    let grpc = client(1).header("content-type", "application/grpc").header("te", "trailers");
    let types = |of: &[&str]| -> Vec<_> {
        of.iter().map(|name| format!("type.googleapis.com/google.rpc.{name}")).collect()
    };
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/h", 1)));
    assert!(worker.request(&grpc).allowed());
    for _ in 0..2 {
        let answer = worker.request(&grpc).answer().clone();
        let (status, names, seconds) = details(&answer);
        assert_eq!((status.code, status.message.as_str()), (8, "The limit per-address is reached"));
        assert_eq!((names, seconds), (types(&["RetryInfo", "QuotaFailure"]), 3_600));
        let failure = QuotaFailure::decode(&*status.details[1].value).expect("a QuotaFailure");
        assert_eq!(failure.violations, [Violation { subject: "per-address".into() }]);
        assert_eq!(
            (answer.header("retry-after"), answer.header("grpc-retry-pushback-ms")),
            ("3600", "3600000")
        );
        // Others are told nothing of it, and it nothing of their body.
        let other = worker.request(&client(1)).answer().clone();
        assert!(
            other.body.starts_with('{') && other.headers.iter().all(|(name, _)| !name.starts_with("grpc-"))
        );
    }
    let denying = synced(&with(rule("1/h", 5), "on_sync_loss", json!("deny")));
    let mut worker = Worker::configured(&shared(), &denying);
    worker.advance_ms(60_000);
    let (status, names, seconds) = details(worker.request(&grpc).answer());
    assert_eq!((status.code, names, seconds), (14, types(&["RetryInfo"]), 1));
}

/// Each refusal of a flood of POSTs brings the address into the module and nothing else.
#[test]
fn a_refused_post_is_not_asked_for_its_content_type() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/h", 1)));
    let post = client(1).header("content-type", "application/json");
    assert_eq!(worker.allowed_of(2, &post), 1);
    worker.host_mut().lent = 0;
    assert_eq!(worker.allowed_of(10, &post), 0);
    assert_eq!(worker.host().lent, 10);
}

#[test]
fn a_request_on_the_deny_list_is_forbidden() {
    let deny = json!([{"addresses": ["192.0.2.2"]}]);
    let mut worker = Worker::configured(&shared(), &with(plugin(&rule("10/m", 5)), "deny", deny));
    assert!(worker.request(&client(1)).allowed());
    let served = worker.request(&client(2));
    let answer = served.answer();
    assert_eq!((answer.status, answer.details.as_str()), (403, "weir_blocked"));
    assert_eq!(answer.grpc_status, 7, "PERMISSION_DENIED for gRPC");
    assert_eq!(
        (answer.header("content-type"), answer.header("cache-control")),
        ("application/problem+json", "no-store")
    );
    let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(problem, json!({"type": "about:blank", "title": "Forbidden", "status": 403}));
    assert_eq!(worker.counted("weir.list.blocked"), 1);
}

#[test]
fn the_answer_is_as_the_rule_says() {
    let response = json!({"status": 503, "headers": ["retry_after"]});
    let mut worker = Worker::configured(&shared(), &plugin(&with(rule("1/h", 1), "response", response)));
    assert!(worker.request(&client(1)).allowed());
    let served = worker.request(&client(1));
    assert_eq!(served.answer().status, 503);
    let names: Vec<_> = served.answer().headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["retry-after", "content-type", "cache-control"]);
}

#[test]
fn body_and_headers_are_as_the_rule_says() {
    let response = json!({
        "body": r#"{"rule":"{{rule}}","wait":{{retry_after}},"of":{{limit}},"left":{{remaining}}}"#,
        "content_type": "application/json",
        "set_headers": {"X-Why": "limited by {{rule}}", "cache-control": "private"},
    });
    let mut worker = Worker::configured(&shared(), &plugin(&with(rule("10/m", 5), "response", response)));
    assert_eq!(worker.allowed_of(5, &client(1)), 5);
    let served = worker.request(&client(1));
    let answer = served.answer();
    assert_eq!(answer.body, r#"{"rule":"per-address","wait":6,"of":5,"left":0}"#);
    for (name, value) in [
        ("content-type", "application/json"),
        ("x-why", "limited by per-address"),
        ("cache-control", "private"),
        ("retry-after", "6"),
    ] {
        assert_eq!(answer.header(name), value, "{name}");
    }
    assert_eq!(answer.headers.len(), 9, "{:?}", answer.headers);
}

#[test]
fn clients_are_told_to_return_at_different_times() {
    let response = json!({"retry_after_jitter_s": 60});
    let mut worker = Worker::configured(&shared(), &plugin(&with(rule("10/m", 1), "response", response)));
    let mut told = std::collections::BTreeSet::new();
    // Of two keys, ten clients each.
    for n in (1..=2).cycle().take(20) {
        if told.is_empty() {
            assert!(worker.request(&client(1)).allowed() && worker.request(&client(2)).allowed());
        }
        let served = worker.request(&client(n));
        let after: u64 = served.answer().header("retry-after").parse().unwrap();
        assert!((6..=66).contains(&after), "{after}");
        assert_eq!(served.answer().header("ratelimit"), r#""per-address";r=0;t=6"#, "this stays exact");
        told.insert(after);
    }
    assert!(told.len() >= 18, "{told:?}");
}

#[test]
fn an_allowed_response_says_what_is_left_where_asked() {
    let loud = with(rule("10/m", 5), "response", json!({"on_allowed": true}));
    let mut worker = Worker::configured(&shared(), &plugin(&loud));
    let served = worker.request(&client(1));
    let expected = [
        ("ratelimit-policy", r#""per-address";q=5;w=30"#),
        ("ratelimit", r#""per-address";r=4;t=6"#),
        ("x-ratelimit-limit", "5"),
        ("x-ratelimit-remaining", "4"),
        ("x-ratelimit-reset", "6"),
    ];
    assert_eq!(served.added_headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let mut quiet = Worker::configured(&shared(), &plugin(&rule("10/m", 5)));
    assert_eq!(quiet.request(&client(1)).added_headers, []);
}

#[test]
fn the_quota_that_an_upstream_states_is_replaced_by_the_strictest() {
    let loud = with(rule("10/m", 5), "response", json!({"on_allowed": true}));
    let mut worker = Worker::configured(&shared(), &plugin(&loud));
    let upstream = [("x-ratelimit-limit", "100"), ("X-Other", "1"), ("x-ratelimit-remaining", "2")];
    worker.host_mut().upstream_headers = upstream.map(|(name, value)| (name.into(), value.into())).into();
    let served = worker.request(&client(1));
    let told = |name| served.added_headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
    assert_eq!([told("x-ratelimit-remaining"), told("x-ratelimit-limit")], [Some("2"), Some("100")]);
    assert_eq!(told("ratelimit"), Some(r#""upstream";r=2;t=0"#));
    assert_eq!(worker.host().upstream_headers, [("X-Other".to_owned(), "1".to_owned())]);
}

#[test]
fn a_request_that_cannot_be_answered_goes_on_and_the_log_says_why() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/h", 1)));
    assert!(worker.request(&client(1)).allowed());
    worker.host_mut().follow(Script::always("proxy_send_local_response", Answer::Status(2)));
    assert!(worker.request(&client(1)).allowed());
    assert_eq!(worker.host().logged("did not take a local response: status 2"), 1);
    worker.host_mut().follow(Script::work());
    assert!(!worker.request(&client(1)).allowed());
}

#[test]
fn every_limited_request_is_told_its_own_numbers() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("10/m", 5)));
    assert_eq!(worker.allowed_of(5, &client(1)), 5);
    let mut told = |ms, who| {
        worker.advance_ms(ms);
        let served = worker.request(&client(who));
        let answer = served.answer();
        [answer.header("retry-after"), answer.header("x-ratelimit-reset")].map(str::to_owned)
    };
    assert_eq!([told(0, 1), told(100, 1)], [["6", "6"], ["6", "6"]]);
    assert_eq!([told(3_000, 1), told(0, 1)], [["3", "3"], ["3", "3"]]);
}

#[test]
fn access_logs_can_tell_the_decision_and_the_rule() {
    let matching = with(rule("1/h", 1), "match", json!({"path": {"exact": "/x"}}));
    let logging = with(plugin(&matching), "filter_state", json!(true));
    let mut worker = Worker::configured(&shared(), &logging);
    let ask = client(1).header(":path", "/x");
    for decision in ["allow", "limit"] {
        worker.request(&ask);
        let state = &worker.host().filter_state;
        assert_eq!((&state["weir.decision"][..], &state["weir.rule"][..]), (decision, "per-address"));
    }
    worker.request(&client(1));
    assert!(worker.host().filter_state.is_empty(), "no rule counted it");
    let mut silent = Worker::configured(&shared(), &plugin(&matching));
    assert!(silent.request(&ask).allowed() && silent.host().filter_state.is_empty(), "nor is it told");
    let limited = silent.request(&ask);
    assert!(silent.host().filter_state.is_empty() && limited.answer().details == "weir_limited:per-address");
}

#[test]
fn every_counter_is_there_at_zero_from_the_start() {
    let worker = Worker::configured(&shared(), &synced(&rule("1/h", 1)));
    let mut names = worker.host().metric_names();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "weir.address.unreadable",
            "weir.concurrency.unreleased",
            "weir.cost.uncharged",
            "weir.local_cache.hits",
            "weir.list.allowed",
            "weir.list.blocked",
            "weir.penalty.banned",
            "weir.rule.per-address.allowed",
            "weir.rule.per-address.denied",
            "weir.rule.per-address.limited",
            "weir.rule.per-address.shadow_limited",
            "weir.rule_set.refused",
            "weir.rule_set.running",
            "weir.strict.paused",
            "weir.sync.answered",
            "weir.sync.dropped",
            "weir.sync.failed",
            "weir.sync.state",
            "weir.sync.reported",
            "weir.sync.partial",
            "weir.table.cas_gave_up",
            "weir.table.cas_retried",
            "weir.table.corrupt",
            "weir.table.evicted",
            "weir.table.missing",
            "weir.table.overflowed",
            "weir.table.entries_used",
            "weir.table.unavailable",
        ]
    );
    assert!(names.iter().all(|name| worker.host().metric(name) == Some(0)));
}

#[test]
fn a_tick_hands_over_what_was_counted_once() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/h", 3)));
    worker.allowed_of(10, &client(1));
    assert_eq!(
        worker.host().metric("weir.rule.per-address.allowed"),
        Some(0),
        "a request pays for no metric"
    );
    for _ in 0..2 {
        assert_eq!(worker.counted("weir.rule.per-address.allowed"), 3);
        assert_eq!(worker.counted("weir.rule.per-address.limited"), 7);
    }
    worker.allowed_of(1, &client(2));
    assert_eq!(worker.counted("weir.rule.per-address.allowed"), 4);
}

#[test]
fn a_host_without_metrics_or_ticks_limits_all_the_same() {
    let broken = |function: &str, _| match function {
        "proxy_define_metric" | "proxy_increment_metric" | "proxy_set_tick_period_milliseconds" => {
            Answer::Status(12)
        }
        _ => Answer::Work,
    };
    let host = weir_tests::mock_host::Host::new(&shared()).with(Script::of(broken));
    let mut worker = Worker::configured_on(host, &plugin(&rule("1/h", 3)));
    assert_eq!(worker.allowed_of(10, &client(1)), 3);
    worker.tick();
    assert_eq!(worker.host().called("proxy_increment_metric"), 0);
    assert_eq!(worker.host().logged("the host has no timer"), 1);
}
