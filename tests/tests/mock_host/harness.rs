//! Configurations and addresses that the tests share.

use serde_json::{Value, json};
use weir_protocol::messages::{Allowance, Leased, Message, Reply, Report, Settled};
use weir_tests::mock_host::{Ask, CallAnswer, SharedData, Worker, ZeroCas};

/// Shared data as Envoy has it.
pub(crate) fn shared() -> SharedData {
    SharedData::new(ZeroCas::Overwrites)
}

/// A rule for every request.
pub(crate) fn rule(rate: &str, burst: u32) -> Value {
    json!({"name": "per-address", "key": ["client_address"], "rate": rate, "burst": burst})
}

/// `object` with one more field.
pub(crate) fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

/// One rule, and a table small enough to be made in no time.
pub(crate) fn plugin(rule: &Value) -> Value {
    json!({"rules": [rule], "table": {"addresses": 64}})
}

/// [`plugin`], with a weir-sync.
pub(crate) fn synced(rule: &Value) -> Value {
    let sync = json!({"cluster": "weir-sync", "pop": "fra1", "token": "secret", "interval_ms": 250, "timeout_ms": 700});
    with(plugin(rule), "sync", sync)
}

/// Client `n` of those reserved for documentation, as Envoy writes its address.
pub(crate) fn client(n: u8) -> Ask {
    Ask::from(format!("192.0.2.{n}:4321"))
}

/// The report that is under way, and its token.
pub(crate) fn report(worker: &Worker) -> (u32, Report) {
    let [call] = worker.host().http_calls.as_slice() else {
        panic!("expected one call, found {}", worker.host().http_calls.len())
    };
    (call.token, Report::decode(&call.body).expect("weir-sync could not read this report"))
}

/// Ticks, and answers the report of that tick.
pub(crate) fn exchange(worker: &mut Worker, answer: impl FnOnce(&Report) -> CallAnswer) -> Report {
    worker.tick();
    let (token, report) = report(worker);
    worker.answer_call(token, answer(&report));
    report
}

/// The answer to an acquire: this many tokens for each key.
pub(crate) fn leased(report: &Report, tokens: u64) -> CallAnswer {
    let grants = vec![Allowance::Leased(Leased::of(tokens, 2_000)); report.keys.len()];
    let (sequence, pops, settled) = (report.sequence, 3, Settled::All);
    CallAnswer::new("200", Reply { sequence, pops, settled, grants, ..Reply::default() }.encode())
}
