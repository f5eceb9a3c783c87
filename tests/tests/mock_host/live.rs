//! Rule sets that weir-sync pushes: fetched by one worker, shared, put in force while requests are under way.

use serde_json::{Value, json};
use weir_protocol::messages::{Allowance, Message, Reply, Report, RunningRules, Settled};
use weir_tests::mock_host::{CallAnswer, HttpCall, SharedData, Worker};

use crate::harness::{client, plugin, rule, shared, synced, with};

fn set(rules: &[Value]) -> Vec<u8> {
    json!({ "rules": rules }).to_string().into_bytes()
}

fn named(name: &str, rate: &str, burst: u32) -> Value {
    with(rule(rate, burst), "name", json!(name))
}

/// The reply to `report` of a fleet that is to run `version`.
fn word(report: &Report, version: u64) -> CallAnswer {
    let grants = vec![Allowance::Warm; report.keys.len()];
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

/// The same, expecting a fetch after the announcement; the call.
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

/// The rule sets in the worker's next report.
fn running(worker: &mut Worker) -> RunningRules {
    worker.advance_ms(2_500);
    worker.tick();
    let call = worker.host().http_calls.iter().find(|call| !call.body.is_empty()).cloned().expect("no report");
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
fn other_workers_read_the_rule_set_from_shared_data() {
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
fn a_corrupt_rule_set_in_shared_data_is_fetched_again() {
    // Of the document, its version, and the word of it.
    for (is_word, at) in [(false, 8), (false, 2), (true, 0)] {
        let shared = shared();
        push(&mut worker(&shared), 7, set(&[rule("1/h", 2)]));
        shared.tamper(b"weir.rules", |value| {
            if is_word == (value.len() == 16) && value.len() > 8 {
                value[at] ^= 0x55;
            }
        });
        let mut late = worker(&shared);
        late.advance_ms(60_000);
        assert_eq!(late.allowed_of(9, &client(1)), 5);
        push(&mut late, 7, set(&[rule("1/h", 2)]));
        assert_eq!(late.allowed_of(9, &client(2)), 2);
        assert_eq!(worker(&shared).allowed_of(9, &client(3)), 2);
    }
}

// I2
#[test]
fn pushed_rule_sets_leak_neither_memory_nor_metrics() {
    let shared = shared();
    let mut worker = worker(&shared);
    let mut sizes = Vec::new();
    for version in 1..=40 {
        let rules: Vec<_> = (0..600).map(|i| named(&format!("v{version}-{i}"), "1/h", 9)).collect();
        push(&mut worker, version, set(&rules));
        sizes.push((worker.memory_bytes(), worker.host().metric_names().len()));
    }
    // The allocator may take a few pages more for the same once in a while, not for each: a set takes seven.
    assert!(sizes[39].0 - sizes[19].0 <= 3 * 65_536, "{sizes:?}");
    // Four for each of 4,000 rules, and those that are always there.
    assert!((16_000..16_100).contains(&sizes[39].1), "{sizes:?}");
    assert_eq!(worker.host().logged("rules have no metrics"), 34);
    assert_eq!(running(&mut worker).version, 40);
}

#[test]
fn a_pushed_set_outranks_a_changed_plugin_configuration() {
    let shared = shared();
    let mut worker = worker(&shared);
    push(&mut worker, 7, set(&[rule("1/h", 2)]));
    assert!(worker.update(synced(&rule("1/h", 50)).to_string()));
    assert_eq!(worker.allowed_of(9, &client(1)), 2);
    assert_eq!(running(&mut worker).version, 7);
    // Without weir-sync there is no fleet whose rules they were.
    assert!(worker.update(plugin(&rule("1/h", 4)).to_string()));
    assert_eq!(worker.allowed_of(9, &client(2)), 4);
}

// I1
#[test]
fn a_response_has_no_header_of_a_replaced_rule() {
    let advertised = with(rule("1/h", 5), "response", json!({"on_allowed": true}));
    for is_replaced in [false, true] {
        let mut worker = Worker::configured(&shared(), &synced(&advertised));
        let call = fetch(&mut worker, 7);
        let created = worker.created();
        let begun = worker.passes(created, &client(1)).unwrap();
        if is_replaced {
            let document = set(&[with(advertised.clone(), "name", json!("other"))]);
            worker.answer_call(call.token, CallAnswer::new("200", document));
        }
        let served = worker.respond(begun);
        assert_eq!(served.added_headers.is_empty(), is_replaced, "{served:?}");
    }
}
