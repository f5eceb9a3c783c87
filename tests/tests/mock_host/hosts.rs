//! Hosts that lack something, fail, or answer as no host should; and the responses that clients get nevertheless.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use prost::Message as _;
use serde_json::json;
use weir_tests::mock_host::{Answer, CallAnswer, Host, LocalResponse, Script, Worker};

use crate::harness::{client, exchange, plugin, rule, shared, synced, with};

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
fn a_refused_grpc_client_gets_the_reason_and_the_delay() {
    let grpc = client(1).header("content-type", "application/grpc").header("te", "trailers");
    let types =
        |of: &[&str]| -> Vec<_> { of.iter().map(|name| format!("type.googleapis.com/google.rpc.{name}")).collect() };
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/h", 1)));
    assert!(worker.request(&grpc).allowed());
    for _ in 0..2 {
        let answer = worker.request(&grpc).answer().clone();
        let (status, names, seconds) = details(&answer);
        assert_eq!((status.code, status.message.as_str()), (8, "The limit per-address is reached"));
        assert_eq!((names, seconds), (types(&["RetryInfo", "QuotaFailure"]), 3_600));
        let failure = QuotaFailure::decode(&*status.details[1].value).expect("a QuotaFailure");
        assert_eq!(failure.violations, [Violation { subject: "per-address".into() }]);
        assert_eq!((answer.header("retry-after"), answer.header("grpc-retry-pushback-ms")), ("3600", "3600000"));
        // Other clients get a body, and no gRPC headers.
        let other = worker.request(&client(1)).answer().clone();
        assert!(other.body.starts_with('{') && other.headers.iter().all(|(name, _)| !name.starts_with("grpc-")));
    }
    let denying = synced(&with(rule("1/h", 5), "on_sync_loss", json!("deny")));
    let mut worker = Worker::configured(&shared(), &denying);
    worker.advance_ms(60_000);
    let (status, names, seconds) = details(worker.request(&grpc).answer());
    assert_eq!((status.code, names, seconds), (14, types(&["RetryInfo"]), 1));
}

#[test]
fn a_request_that_cannot_be_answered_passes_and_is_logged() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/h", 1)));
    assert!(worker.request(&client(1)).allowed());
    worker.host_mut().follow(Script::always("proxy_send_local_response", Answer::Status(2)));
    assert!(worker.request(&client(1)).allowed());
    assert_eq!(worker.host().logged("did not take a local response: status 2"), 1);
    worker.host_mut().follow(Script::work());
    assert!(!worker.request(&client(1)).allowed());
}

#[test]
fn the_successor_of_a_trapped_worker_serves_requests() {
    let (shared, plugin) = (shared(), synced(&rule("1/h", 3)));
    let mut worker = Worker::configured(&shared, &plugin);
    assert_eq!(worker.allowed_of(2, &client(1)), 2);
    let _ = worker.exhaust();
    let mut successor = Worker::configured(&shared, &plugin);
    assert_eq!(successor.allowed_of(5, &client(1)), 1, "the buckets outlive the VM");
    exchange(&mut successor, |_| CallAnswer::timeout());
}

const SECOND_NS: u64 = 1_000_000_000;

// I8
#[test]
fn a_wall_clock_jump_changes_only_the_unix_reset() {
    let epoch = with(rule("1/s", 3), "response", json!({"reset": "epoch"}));
    let mut worker = Worker::configured(&shared(), &plugin(&epoch));
    assert_eq!(worker.allowed_of(3, &client(1)), 3);
    let unix_s = worker.host().unix_ns / SECOND_NS;
    let before = worker.request(&client(1)).answer().clone();
    assert_eq!(before.header("x-ratelimit-reset"), (unix_s + 1).to_string());
    for wall_s in [0, unix_s - 86_400, unix_s + 86_400] {
        worker.host_mut().unix_ns = wall_s * SECOND_NS;
        let mut after = worker.request(&client(1)).answer().clone();
        assert_eq!(after.header("x-ratelimit-reset"), (wall_s + 1).to_string());
        for (_, value) in after.headers.iter_mut().filter(|(name, _)| name == "x-ratelimit-reset") {
            *value = before.header("x-ratelimit-reset").to_owned();
        }
        assert_eq!(after, before);
    }
}

#[test]
fn without_a_monotonic_clock_the_wall_clock_never_goes_back() {
    let script = Script::always("clock_time_get", Answer::Status(52));
    let mut worker = Worker::configured_on(Host::new(&shared()).with(script), &plugin(&rule("1/s", 3)));
    assert_eq!(worker.allowed_of(5, &client(1)), 3);
    let now = worker.host().unix_ns;
    worker.host_mut().unix_ns = now - 3_600 * SECOND_NS;
    assert_eq!(worker.allowed_of(5, &client(1)), 0);
    worker.host_mut().unix_ns = now + SECOND_NS;
    assert_eq!(worker.allowed_of(5, &client(1)), 1);
}

#[test]
fn a_host_without_any_clock_still_decides() {
    let broken = |function: &str, _| match function {
        "clock_time_get" => Answer::Status(52),
        "proxy_get_current_time_nanoseconds" => Answer::Status(10),
        _ => Answer::Work,
    };
    let mut worker = Worker::configured_on(Host::new(&shared()).with(Script::of(broken)), &plugin(&rule("1/s", 3)));
    assert_eq!(worker.allowed_of(5, &client(1)), 3, "time stands still");
}
