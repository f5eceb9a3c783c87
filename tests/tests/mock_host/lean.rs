//! The lean module, on an Envoy that tells it of no request's begin, response or end.

use serde_json::{Value, json};
use weir_tests::mock_host::{Ask, Begun, CallAnswer, Host, Worker};
use weir_wire::messages::{Allowance, Leased, Message, Reply, Report, Settled};

use crate::harness::{client, exchange, plugin, rule, shared, synced, with};

fn worker(configuration: &Value) -> Worker {
    Worker::configured_on(Host::lean(&shared()), configuration)
}

/// A request of the plugin of this name.
fn of(name: &str, n: u8) -> Ask {
    let mut ask = client(n);
    ask.properties.insert("plugin_name".into(), name.into());
    ask
}

/// One more plugin, of this name; the one before.
fn begin(worker: &mut Worker, name: &str, configuration: &Value) -> u32 {
    let before = worker.root();
    worker.host_mut().properties.insert("plugin_name".into(), name.into());
    assert!(worker.begin_plugin(configuration.to_string()));
    before
}

/// The reply to `report` of a fleet that is to run `version`.
fn word(report: &Report, version: u64) -> CallAnswer {
    let grants = report.keys.iter().map(|_| Allowance::Warm).collect();
    let (sequence, pops, settled, rule_set) = (report.sequence, 1, Settled::All, version);
    CallAnswer::new("200", Reply { sequence, pops, settled, grants, rule_set, ..Reply::default() }.encode())
}

/// Strict: the first request waits for an exchange.
fn strict() -> Value {
    synced(&with(rule("5/m", 5), "strict", json!(true)))
}

/// What each of these rules needs, and no lean module hears.
fn refused() -> [(Value, &'static str); 4] {
    let concurrency =
        json!({"name": "slots", "key": ["client_address"], "algorithm": "concurrency", "limit": 5});
    let after = json!({"after": {"response_bytes_per": 4}});
    [
        (
            with(rule("1/h", 3), "response", json!({"on_allowed": true})),
            "response.on_allowed: expected false",
        ),
        (with(rule("1/h", 3), "cost", after), "cost.after: expected none"),
        (concurrency.clone(), "algorithm: expected another than concurrency"),
        (with(concurrency, "mode", json!("shadow")), "algorithm: expected another than concurrency"),
    ]
}

#[test]
fn the_host_is_asked_for_no_more_than_the_address_and_the_bucket() {
    let mut worker = worker(&plugin(&rule("1/h", 3)));
    for callback in [
        "proxy_on_context_create",
        "proxy_on_response_headers",
        "proxy_on_log",
        "proxy_on_done",
        "proxy_on_delete",
    ] {
        assert!(!worker.has(callback), "{callback} costs every request a call");
    }
    let asked = worker.host().called("proxy_get_property");
    assert_eq!(worker.allowed_of(5, &client(1)), 3);
    assert_eq!(worker.host().called("proxy_get_property") - asked, 5, "the name of the only plugin is known");
}

#[test]
fn a_rule_that_needs_a_response_or_an_end_is_refused_with_what_to_load() {
    for (refused, why) in refused() {
        let mut worker = Worker::try_start(Host::lean(&shared())).unwrap();
        let name = refused["name"].as_str().unwrap();
        let configuration = json!({"rules": [with(rule("9/h", 9), "name", json!("first")), refused], "table": {"addresses": 64}});
        assert!(!worker.configure(configuration.to_string()));
        let said = format!("rules[1].{why}, because weir_filter_lean.wasm ");
        let then = format!(": load weir_filter.wasm for the rule {name}");
        let lines: Vec<_> = worker.host().logs.iter().map(|(_, line)| line.as_str()).collect();
        assert!(
            lines.iter().any(|line| line.contains(&said) && line.ends_with(&then)),
            "{said} in {lines:?}"
        );
    }
}

#[test]
fn a_pushed_rule_set_that_needs_more_is_refused_and_what_ran_before_runs_on() {
    for (version, (refused, why)) in (7..).zip(refused()) {
        let mut worker = worker(&synced(&rule("1/h", 2)));
        exchange(&mut worker, |report| word(report, version));
        let fetch = worker.host().http_calls.first().expect("it is fetched").clone();
        let document = json!({"rules": [refused]}).to_string();
        worker.answer_call(fetch.token, CallAnswer::new("200", document.into()));
        assert_eq!(worker.host().logged(&format!("rule set {version}: rules[0].{why}")), 1);
        assert_eq!(worker.counted("weir.rule_set.refused"), version);
        assert_eq!(worker.allowed_of(5, &client(1)), 2);
    }
}

#[test]
fn each_plugin_of_a_vm_decides_its_own_requests() {
    let mut worker = worker(&plugin(&rule("1/h", 1)));
    begin(&mut worker, "wide", &plugin(&with(rule("1/h", 3), "name", json!("wide"))));
    begin(&mut worker, "tight", &plugin(&with(rule("1/h", 2), "name", json!("tight"))));
    for (name, allowed) in [("wide", 3), ("tight", 2), ("", 1)] {
        assert_eq!(worker.allowed_of(5, &of(name, 1)), allowed, "{name}");
    }
}

#[test]
fn the_configuration_that_came_last_decides_while_the_one_before_drains() {
    let mut worker = worker(&plugin(&rule("1/h", 1)));
    let before = begin(&mut worker, "", &plugin(&rule("1/h", 4)));
    let asked = worker.host().called("proxy_get_property");
    assert_eq!(worker.allowed_of(5, &client(1)), 4);
    assert_eq!(worker.host().called("proxy_get_property") - asked, 5);
    worker.advance_ms(890_000);
    worker.tick();
    assert_eq!(worker.host().logged("give each a name"), 0);
    worker.advance_ms(20_000);
    for root in [before, worker.root()] {
        worker.turn_to(root);
        worker.tick();
    }
    assert_eq!(worker.host().logged("Give each a name of its own, or load weir_filter.wasm"), 1);
}

#[test]
fn a_configuration_that_is_refused_leaves_the_requests_of_its_name_to_the_one_before() {
    for other in [None, Some("other")] {
        let mut worker = worker(&plugin(&rule("1/h", 2)));
        if let Some(other) = other {
            begin(&mut worker, other, &plugin(&with(rule("1/h", 3), "name", json!("other"))));
        }
        worker.host_mut().properties.insert("plugin_name".into(), "".into());
        assert!(!worker.begin_plugin("{}"));
        assert_eq!(worker.allowed_of(5, &of("", 1)), 2, "beside {other:?}");
    }
}

#[test]
fn a_plugin_that_has_ended_hands_over_its_counts_and_reports_at_anothers_tick() {
    let mut worker = worker(&synced(&rule("1/h", 2)));
    exchange(&mut worker, |report| word(report, 0));
    assert_eq!(worker.allowed_of(5, &client(1)), 2);
    let before = begin(&mut worker, "", &synced(&with(rule("1/h", 9), "name", json!("other"))));
    worker.end_plugin(before);
    worker.tick();
    assert_eq!(worker.host().metric("weir.rule.per-address.allowed"), Some(2));
    // What it left to the others is in one of the next reports.
    let parted = worker.host().shared_keys().iter().any(|key| key.starts_with(b"weir.parted"));
    assert!(parted);
}

#[test]
fn neither_plugins_nor_requests_that_end_are_remembered() {
    let mut worker = worker(&strict());
    let mut sizes = Vec::new();
    for round in 0..60u32 {
        for n in 0..100 {
            // One by one they wait, and their clients leave.
            if let Begun::Waiting(waiting) = worker.begin_request(&Ask::from(format!("10.0.{round}.{n}:1"))) {
                worker.abandon(&waiting);
            }
        }
        assert!(worker.update(strict().to_string()));
        worker.tick();
        worker.host_mut().http_calls.clear();
        sizes.push(worker.memory_bytes());
    }
    assert_eq!(sizes[20], sizes[59], "{sizes:?}");
}

#[test]
fn a_request_that_waits_goes_on_in_its_answer_and_is_forgotten_then() {
    let mut worker = worker(&strict());
    for (charged, goes_on) in [(1, true), (0, false)] {
        let waiting = worker.held(&client(1));
        let report = Report::decode(&waiting.call.body).unwrap();
        let grants = vec![Allowance::Leased(Leased::of(charged, 2_000)); report.keys.len()];
        let reply =
            Reply { sequence: report.sequence, pops: 1, settled: Settled::All, grants, ..Reply::default() };
        let served = worker.answer_waiting(&waiting, CallAnswer::new("200", reply.encode()));
        assert_eq!(served.allowed(), goes_on);
    }
    worker.tick();
    // Nobody is asked whether it is still there.
    assert_eq!(worker.host().called("proxy_set_effective_context"), 2);
}
