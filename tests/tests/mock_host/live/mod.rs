//! Rule sets that weir-sync pushes: fetched by one worker, shared, put in force, or refused.

mod refused;
mod switch;

use serde_json::{Value, json};
use weir_protocol::messages::{Allowance, Leased, Message, Reply, Report, RunningRules, Settled};
use weir_tests::mock_host::{Answer, CallAnswer, Host, HttpCall, Script, SharedData, Worker};

use crate::harness::{client, rule, shared, synced, with};

fn set(rules: &[Value]) -> Vec<u8> {
    json!({ "rules": rules }).to_string().into_bytes()
}

fn named(name: &str, rate: &str, burst: u32) -> Value {
    with(rule(rate, burst), "name", json!(name))
}

/// The reply to `report` of a fleet that is to run `version`.
fn word(report: &Report, version: u64) -> CallAnswer {
    let leased = Allowance::Leased(Leased::of(0, 2_000));
    let allowance = |key: &weir_protocol::messages::Key| {
        if report.rules[usize::from(key.rule)].sharing.strict { leased } else { Allowance::Warm }
    };
    let grants = report.keys.iter().map(allowance).collect();
    let (sequence, pops, settled, rule_set) = (report.sequence, 1, Settled::All, version);
    CallAnswer::new("200", Reply { sequence, pops, settled, grants, rule_set, ..Reply::default() }.encode())
}

/// A tick after an interval, whose report, if there is one, is answered so; the fetches that are under way.
fn tick(worker: &mut Worker, version: u64) -> Vec<HttpCall> {
    worker.advance_ms(250);
    worker.tick();
    let calls = worker.host().http_calls.clone();
    let (reports, fetches): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| !call.body.is_empty());
    for call in reports {
        let report = Report::decode(&call.body).expect("weir-sync could not read this report");
        worker.answer_call(call.token, word(&report, version));
    }
    fetches
}

/// The same, expecting a fetch after the word was heard; the call.
fn fetch(worker: &mut Worker, version: u64) -> HttpCall {
    tick(worker, version);
    let fetches = tick(worker, version);
    let [call] = fetches.as_slice() else { panic!("expected one fetch: {fetches:?}") };
    assert_eq!(call.path(), format!("/v1/rules?version={version}"));
    call.clone()
}

/// Fetches `document` as `version`.
fn push(worker: &mut Worker, version: u64, document: Vec<u8>) {
    let call = fetch(worker, version);
    worker.answer_call(call.token, CallAnswer::new("200", document));
}

/// What the worker's next report says of rule sets.
fn running(worker: &mut Worker) -> RunningRules {
    worker.advance_ms(2_500);
    worker.tick();
    let call =
        worker.host().http_calls.iter().find(|call| !call.body.is_empty()).cloned().expect("no report");
    worker.answer_call(call.token, CallAnswer::timeout());
    Report::decode(&call.body).expect("weir-sync could not read this report").running
}

/// One proxy has one clock: `worker` has no less of it than `other`.
fn at_the_time_of(other: &Worker, worker: &mut Worker) {
    let now = other.host().monotonic_ns.max(worker.host().monotonic_ns);
    worker.host_mut().monotonic_ns = now;
}

fn worker(shared: &SharedData) -> Worker {
    Worker::configured(shared, &synced(&rule("1/h", 5)))
}

#[test]
fn a_new_version_is_fetched_and_enforced() {
    let mut worker = worker(&shared());
    assert_eq!(running(&mut worker), RunningRules::default());
    let call = fetch(&mut worker, 7);
    let headers = [
        (":method", "GET"),
        (":path", "/v1/rules?version=7"),
        (":authority", "weir-sync"),
        ("authorization", "Bearer secret"),
    ];
    assert_eq!(call.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!((call.upstream.as_str(), call.timeout_ms), ("weir-sync", 500));
    assert_eq!(worker.allowed_of(1, &client(1)), 1, "decided by the rules there are");
    let document = set(&[named("other", "1/h", 2)]);
    worker.answer_call(call.token, CallAnswer::new("200", document));
    assert_eq!(worker.allowed_of(9, &client(1)), 2);
    let answer = worker.request(&client(1)).answer().clone();
    assert_eq!(answer.header("ratelimit-policy"), "\"other\";q=2;w=7200");
    assert!(answer.body.contains("[\"other\"]"));
    assert_eq!(worker.counted("weir.rule.per-address.allowed"), 1);
    assert_eq!(worker.counted("weir.rule.other.limited"), 8);
    assert_eq!(worker.counted("weir.rule_set.running"), 7);
    assert_eq!(running(&mut worker), RunningRules { version: 7, refused: 0 });
    assert!(tick(&mut worker, 7).is_empty() && tick(&mut worker, 7).is_empty(), "it is fetched once");
    // Nobody knows of any: what ran last runs on.
    assert!(tick(&mut worker, 0).is_empty() && tick(&mut worker, 0).is_empty());
    assert_eq!(running(&mut worker).version, 7);
}

#[test]
fn a_version_may_be_taken_back() {
    let mut worker = worker(&shared());
    push(&mut worker, 7, set(&[rule("1/h", 2)]));
    push(&mut worker, 8, set(&[rule("1/h", 3)]));
    // A weir-sync that has not heard of it yet does not count for a second.
    assert!(tick(&mut worker, 7).is_empty() && tick(&mut worker, 8).is_empty());
    worker.advance_ms(1_000);
    push(&mut worker, 7, set(&[rule("1/h", 2)]));
    assert_eq!(worker.allowed_of(9, &client(1)), 2);
}

#[test]
fn the_other_workers_take_it_from_shared_data_without_a_fetch() {
    let shared = shared();
    let (mut first, mut second) = (worker(&shared), worker(&shared));
    push(&mut first, 7, set(&[rule("1/h", 2)]));
    assert_eq!(second.allowed_of(1, &client(1)), 1);
    at_the_time_of(&first, &mut second);
    assert!(tick(&mut second, 7).is_empty());
    assert_eq!(second.allowed_of(9, &client(2)), 2);
    assert!(tick(&mut second, 7).is_empty() && tick(&mut second, 7).is_empty());
    // And one that starts later, or again, at once.
    let mut third = worker(&shared);
    at_the_time_of(&second, &mut third);
    assert_eq!(third.allowed_of(9, &client(3)), 2);
    assert_eq!(running(&mut third).version, 7);
    assert!(tick(&mut third, 7).is_empty());
    // Of another version, one key is enough.
    let keys = shared.keys();
    at_the_time_of(&third, &mut second);
    push(&mut second, 8, set(&[rule("1/h", 3)]));
    tick(&mut first, 8);
    assert_eq!(first.allowed_of(9, &client(4)), 3);
    assert_eq!(shared.keys(), keys);
}

#[test]
fn a_tick_reads_one_value_for_it() {
    let mut worker = worker(&shared());
    push(&mut worker, 7, set(&[rule("1/h", 2)]));
    tick(&mut worker, 7);
    worker.host_mut().follow(Script::work());
    // Too early for a report: what was heard is not looked at.
    worker.tick();
    let reads = worker.host().called("proxy_get_shared_data");
    let (word, exchange, clock, slots) = (1, 4, 1, 4);
    assert_eq!(
        reads,
        word + exchange + clock + slots,
        "of the table all its slots, few as they are, for the gauge"
    );
}

#[test]
fn one_worker_at_a_time_fetches() {
    let shared = shared();
    let (mut first, mut second) = (worker(&shared), worker(&shared));
    tick(&mut first, 7);
    second.advance_ms(250);
    tick(&mut second, 7);
    assert_eq!(tick(&mut first, 7).len(), 1);
    second.advance_ms(250);
    assert!(tick(&mut second, 7).is_empty());
    assert_eq!(tick(&mut first, 7).len(), 1, "the same call");
    // A worker that is gone does not keep the others from it.
    second.advance_ms(6_250);
    tick(&mut second, 7);
    assert_eq!(tick(&mut second, 7).len(), 1);
}

#[test]
fn without_shared_data_each_worker_fetches_for_itself() {
    for function in ["proxy_get_shared_data", "proxy_set_shared_data"] {
        let shared = shared();
        let mut workers = [1, 2].map(|_| {
            let script = Script::always(function, Answer::Status(12));
            Worker::configured_on(Host::new(&shared).with(script), &synced(&rule("1/h", 5)))
        });
        for worker in &mut workers {
            push(worker, 7, set(&[rule("1/h", 2)]));
            assert_eq!(worker.allowed_of(9, &client(1)), 2);
            assert!(tick(worker, 7).is_empty());
        }
    }
}

#[test]
fn shared_data_that_takes_no_document_makes_each_worker_fetch() {
    let shared = shared();
    let mut workers = [1, 2].map(|_| worker(&shared));
    for (n, worker) in (1u8..).zip(&mut workers) {
        worker.advance_ms(u64::from(n) * 10_000);
        let call = fetch(worker, 7);
        worker.host_mut().follow(Script::only("proxy_set_shared_data", 1, Answer::Status(10)));
        worker.answer_call(call.token, CallAnswer::new("200", set(&[rule("1/h", 2)])));
        assert_eq!((worker.allowed_of(9, &client(n)), shared.size_of(b"weir.rules")), (2, None));
    }
}

#[test]
fn it_is_fetched_as_soon_as_it_is_heard_of() {
    let mut worker = worker(&shared());
    tick(&mut worker, 7);
    assert_eq!(worker.host().http_calls.len(), 1);
    assert_eq!(worker.host().http_calls[0].path(), "/v1/rules?version=7");
}

#[test]
fn the_tick_follows_rules_that_hold_requests() {
    let mut worker = Worker::configured(&shared(), &synced(&rule("1/h", 3)));
    assert_eq!(worker.host().tick_period_ms, Some(250));
    let leaky = json!({"name": "shaped", "key": ["client_address"], "algorithm": "leaky_bucket", "rate": "10/s", "queue": 5});
    push(&mut worker, 7, set(&[leaky]));
    assert_eq!(worker.host().tick_period_ms, Some(10));
    // It reports as often as before.
    let before = worker.host().http_calls.len();
    for _ in 0..24 {
        worker.advance_ms(10);
        worker.tick();
    }
    assert!(worker.host().http_calls.len() <= before + 1, "{:?}", worker.host().http_calls);
    for _ in 0..25 {
        tick(&mut worker, 8);
    }
    let fetches: Vec<_> =
        worker.host().http_calls.iter().filter(|call| call.body.is_empty()).cloned().collect();
    let [call] = fetches.as_slice() else { panic!("expected one fetch: {fetches:?}") };
    worker.answer_call(call.token, CallAnswer::new("200", set(&[rule("1/h", 3)])));
    assert_eq!(worker.host().tick_period_ms, Some(250));
}
