//! The module that is built for nginx, on a host that ends a worker where nginx's would.

use serde_json::{Value, json};
use weir_tests::mock_host::{Ask, CallAnswer, Host, SharedData, WhenFull, Worker, ZeroCas};
use weir_wire::messages::{Allowance, Leased, Message, Reply, Report, Settled};

use crate::harness::{client, exchange, plugin, rule, synced, with};

/// Shared data as nginx has it, with more room than any of these tests needs.
fn shared() -> SharedData {
    SharedData::new(ZeroCas::Inserts)
}

fn worker(configuration: &Value) -> Worker {
    Worker::configured_on(Host::nginx(&shared()), configuration)
}

/// What it logs of a configuration that it refuses.
fn refusal(configuration: &Value) -> String {
    let mut worker = Worker::try_start(Host::nginx(&shared())).unwrap();
    assert!(!worker.configure(configuration.to_string()));
    let lines: Vec<_> = worker.host().logs.iter().map(|(_, line)| line.as_str()).collect();
    lines.join("\n")
}

/// The reply to `report` of a fleet that is to run `version`.
fn word(report: &Report, version: u64) -> CallAnswer {
    let grants = report.keys.iter().map(|_| Allowance::Warm).collect();
    let (sequence, pops, settled, rule_set) = (report.sequence, 1, Settled::All, version);
    CallAnswer::new("200", Reply { sequence, pops, settled, grants, rule_set, ..Reply::default() }.encode())
}

#[test]
fn a_worker_with_sync_starts_and_reports_from_the_tick() {
    let mut worker = worker(&synced(&rule("1/h", 2)));
    assert_eq!(worker.host().called("proxy_http_call"), 0, "nothing is called before");
    exchange(&mut worker, |report| word(report, 0));
    assert_eq!(worker.counted("weir.sync.answered"), 1);
    assert_eq!(worker.allowed_of(5, &client(1)), 2);
}

#[test]
fn a_strict_rules_request_waits_and_goes_on_in_its_own_answer() {
    let mut worker = worker(&synced(&with(rule("5/m", 5), "strict", json!(true))));
    for (charged, goes_on) in [(1, true), (0, false)] {
        let waiting = worker.held(&client(1));
        let report = Report::decode(&waiting.call.body).unwrap();
        let grants = vec![Allowance::Leased(Leased::of(charged, 2_000)); report.keys.len()];
        let reply =
            Reply { sequence: report.sequence, pops: 1, settled: Settled::All, grants, ..Reply::default() };
        let served = worker.answer_waiting(&waiting, CallAnswer::new("200", reply.encode()));
        assert_eq!(served.allowed(), goes_on);
    }
}

#[test]
fn a_leaky_buckets_queue_is_refused_because_no_request_can_be_held() {
    let log = refusal(&plugin(&leaky(20)));
    let expected = "rules[0].queue: expected none, because nginx cannot hold a request until its turn";
    assert!(log.contains(expected), "{log}");
}

#[test]
fn a_cost_in_metadata_is_refused_because_nothing_would_ever_say_it() {
    let after = json!({"after": {"metadata": ["llm", "total_tokens"]}, "reserve": 1});
    let log = refusal(&plugin(&with(rule("1/h", 10), "cost", after)));
    let expected =
        "rules[0].cost.after.metadata: expected status, header or response_bytes_per, because nothing finds";
    assert!(log.contains(expected), "{log}");
}

/// A rule that sends requests on one by one.
fn leaky(queue: u32) -> Value {
    let rule =
        json!({"name": "even", "key": ["client_address"], "algorithm": "leaky_bucket", "rate": "10/s"});
    if queue > 0 { with(rule, "queue", json!(queue)) } else { rule }
}

#[test]
fn a_leaky_bucket_without_a_queue_limits_at_once() {
    assert_eq!(worker(&plugin(&leaky(0))).allowed_of(5, &client(1)), 1);
}

#[test]
fn a_pushed_queue_is_refused_and_what_ran_before_runs_on() {
    let mut worker = worker(&synced(&rule("1/h", 2)));
    push(&mut worker, 7, &json!({"rules": [leaky(20)]}));
    assert_eq!(worker.host().logged("rule set 7: rules[0].queue: expected none"), 1);
    assert_eq!(worker.allowed_of(5, &client(1)), 2);
    assert_eq!(worker.counted("weir.rule_set.refused"), 7);
}

/// Has `version` fetched and answered.
fn push(worker: &mut Worker, version: u64, document: &Value) {
    exchange(worker, |report| word(report, version));
    assert_eq!(worker.host().http_calls.len(), 0, "nothing is called from within an answer");
    worker.advance_ms(250);
    worker.tick();
    let calls = worker.host().http_calls.clone();
    let fetch = calls.iter().find(|call| call.path() == format!("/v1/rules?version={version}"));
    let token = fetch.expect("the next tick fetches it").token;
    worker.answer_call(token, CallAnswer::new("200", document.to_string().into()));
    for report in calls.iter().filter(|call| call.token != token) {
        worker.answer_call(report.token, CallAnswer::timeout());
    }
}

#[test]
fn a_pushed_rule_set_is_fetched_by_the_tick_and_enforced() {
    let mut worker = worker(&synced(&rule("1/h", 2)));
    push(&mut worker, 7, &json!({"rules": [rule("1/h", 3)]}));
    assert_eq!(worker.counted("weir.rule_set.running"), 7);
    assert_eq!(worker.allowed_of(9, &client(1)), 3);
}

#[test]
fn a_responses_size_is_charged_while_the_request_is_there() {
    let rule = with(rule("1/h", 10), "cost", json!({"after": {"response_bytes_per": 4}}));
    let mut worker = worker(&plugin(&rule));
    // Two of these have as many digits as a number of eight bytes has bytes.
    for (address, size, allowed) in [(1, 9u64, 4), (2, 12_345_678, 1), (3, 10_000_000, 1), (4, 0, 9)] {
        let mut ask = client(address);
        ask.properties.insert("response\0size".into(), size.to_le_bytes().into());
        assert_eq!(worker.allowed_of(9, &ask), allowed, "{size} bytes");
    }
}

#[test]
fn a_request_that_is_freed_unlogged_costs_nothing() {
    let rule = with(rule("1/h", 2), "cost", json!({"after": {"response_bytes_per": 4}}));
    let mut worker = worker(&plugin(&rule));
    for _ in 0..3 {
        let passing = worker.passing(&client(1));
        worker.freed(passing);
    }
}

#[test]
fn what_is_in_flight_is_released_when_it_ends() {
    let one = json!({"name": "one", "key": ["client_address"], "algorithm": "concurrency", "limit": 1});
    let mut worker = worker(&plugin(&one));
    for _ in 0..3 {
        let passing = worker.passing(&client(1));
        assert!(!worker.request(&client(1)).allowed());
        worker.respond(passing);
    }
}

#[test]
fn the_host_is_what_the_client_asked_for() {
    let of_one_host = with(rule("1/h", 1), "match", json!({"hosts": ["api.example.com"]}));
    let mut worker = worker(&plugin(&of_one_host));
    assert_eq!(worker.allowed_of(3, &client(1)), 1);
    assert_eq!(worker.allowed_of(3, &client(1).header(":authority", "www.example.com")), 3);
}

#[test]
fn each_host_has_a_bucket_of_its_own() {
    let mut worker = worker(&plugin(&with(rule("1/h", 2), "key", json!(["host"]))));
    for host in ["a.example.com", "b.example.com"] {
        assert_eq!(worker.allowed_of(5, &client(1).header(":authority", host)), 2, "{host}");
    }
    // HTTP/1.0 needs none: the server's own name is left.
    let mut bare = client(1);
    bare.headers.retain(|(name, _)| name != ":authority");
    assert_eq!(worker.allowed_of(5, &bare), 2);
}

/// Where it was the last slot alone that was looked for, it was there.
#[test]
fn a_store_that_drops_slots_is_not_used_and_the_log_says_what_it_needs() {
    let configuration = json!({"rules": [rule("1/h", 3)], "table": {"addresses": 6400}});
    let small = shared().with_room(300, WhenFull::Evicts);
    for _ in 0..2 {
        let mut worker = Worker::configured_on(Host::nginx(&small), &configuration);
        assert_eq!((1..=99).map(|n| worker.allowed_of(9, &client(n))).sum::<usize>(), 99 * 3);
        assert_eq!(worker.host().logged("400 slots of 512 bytes"), 1);
        assert_eq!(worker.host().logged("shm_kv * 1m"), 1);
    }
    let mut worker =
        Worker::configured_on(Host::nginx(&shared().with_room(420, WhenFull::Evicts)), &configuration);
    assert_eq!(worker.allowed_of(9, &client(1)), 3);
    assert_eq!(worker.host().logged("slots of 512 bytes"), 0);
}

#[test]
fn slots_that_are_dropped_later_are_counted() {
    let configuration = json!({"rules": [rule("1/h", 3)], "table": {"addresses": 1600}});
    let shared = shared().with_room(102, WhenFull::Evicts);
    let mut worker = Worker::configured_on(Host::nginx(&shared), &configuration);
    // Of this table, and nothing of the other: it takes the room of some.
    let _ = Worker::configured_on(
        Host::nginx(&shared),
        &json!({"rules": [rule("1/h", 3)], "table": {"addresses": 1920}}),
    );
    for n in 1..=99 {
        worker.allowed_of(1, &client(n));
    }
    assert!(worker.counted("weir.table.missing") > 0);
}

#[test]
fn a_refused_configuration_says_that_workers_end_with_it() {
    let log = refusal(&plugin(&rule("5 per second", 1)));
    assert!(log.contains("rules[0].rate: expected"), "{log}");
    assert!(log.contains("nginx's workers end with it") && log.contains("weir-sync check"), "{log}");
    assert!(!log.contains("what ran before runs on"), "{log}");
}

#[test]
fn a_limited_request_is_answered_without_a_status_for_grpc() {
    let mut worker = worker(&plugin(&rule("1/h", 1)));
    assert!(worker.request(&client(1)).allowed());
    let grpc = client(1).header("content-type", "application/grpc");
    assert_eq!(worker.request(&grpc).answer().status, 429);
}

#[test]
fn a_client_without_an_address_is_let_through() {
    assert_eq!(worker(&plugin(&rule("1/h", 1))).allowed_of(3, &Ask::from("unix:")), 3);
}
