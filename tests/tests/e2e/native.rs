//! The filter as a dynamic module of Envoy: it does what the wasm does. `WEIR_HOST=native` runs all other tests
//! with it.

use hyper::Method;
use serde_json::{Value, json};
use weir_tests::client::{Answer, Ask, Client};
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::operator::Operator;
use weir_tests::wait::until;
use weir_tests::weir_sync::WeirSync;

use crate::plugin::{one, rule, rules, with};
use crate::sync::synced;

/// A rule for one path.
fn at(path: &str, rule: Value) -> Value {
    with(rule, "match", json!({"path": {"exact": path}}))
}

/// A client's response, with its numbers hidden: they count seconds.
async fn response(client: &mut Client, ask: &Ask) -> (u16, Vec<String>, String) {
    let Answer { status, headers, body } = client.send(ask).await;
    let hidden = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "#");
    let line = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        format!("{name}: {}", hidden(value.to_str().unwrap_or("?")))
    };
    let mut lines: Vec<String> = headers.iter().map(line).collect();
    lines.retain(|line| !line.starts_with("date:"));
    lines.sort_unstable();
    (status, lines, hidden(&String::from_utf8_lossy(&body)))
}

#[tokio::test]
async fn the_module_and_the_wasm_respond_alike() {
    let mut plugin = rules([
        at("/plain", rule("plain", "1/h", 1)),
        at("/loud", with(rule("loud", "1/h", 2), "response", json!({"on_allowed": true}))),
        at("/other", with(rule("other", "1/h", 1), "response", json!({"status": 503, "headers": []}))),
        with(rule("by-headers", "1/h", 1), "match", json!({"headers": [{"name": "x-plan", "equals": "free,trial"}]})),
    ]);
    plugin["rules"][0]["key"] = json!([{"header": "x-user"}, "method", "host"]);
    plugin["deny"] = json!([{"addresses": ["198.51.100.0/24"]}]);
    plugin["filter_state"] = json!(true);
    let setup = Setup::with(plugin).access_log(
        "%RESPONSE_CODE% %RESPONSE_CODE_DETAILS% %FILTER_STATE(wasm.weir.decision:PLAIN)% \
         %FILTER_STATE(wasm.weir.rule:PLAIN)%",
    );
    let edges = [Envoy::start(setup.clone().host(Host::Wasm)).await, Envoy::start(setup.host(Host::Native)).await];
    let to = |path: &str| Ask::get(path).forwarded_for("203.0.113.7").header("x-user", "alice");
    let grpc = Ask::new(Method::POST, "/plain")
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body("\0\0\0\0\0");
    let asks = [
        to("/plain"),
        to("/loud"),
        to("/other"),
        Ask::from("203.0.113.7").header("x-plan", "free,trial"),
        Ask::from("198.51.100.1"),
        grpc.clone().forwarded_for("203.0.113.7"),
        grpc.forwarded_for("198.51.100.1"),
        to("/nowhere"),
    ];
    for ask in asks.iter().flat_map(|ask| [ask; 3]) {
        let [wasm, native] = &edges;
        let (mut wasm, mut native) = (wasm.client().over_http2(), native.client().over_http2());
        assert_eq!(response(&mut wasm, ask).await, response(&mut native, ask).await, "{ask:?}");
    }
    let [wasm, native] = [edges[0].access_log(24).await, edges[1].access_log(24).await];
    assert_eq!(wasm, native);
    assert!(native.iter().any(|line| line == "429 weir_limited:loud limit loud"), "{native:?}");
}

#[tokio::test]
async fn the_module_refuses_rules_by_attributes_it_cannot_read() {
    let claim = with(rule("by-subject", "1/h", 1), "key", json!([{"jwt_claim": ["payload", "sub"]}]));
    let cost = json!({"after": {"metadata": ["space", "name", "inner"], "max": 5}});
    let plugin = rules([claim, with(rule("by-cost", "1/h", 9), "cost", cost)]);
    let (status, log) = Envoy::start_refused(Setup::with(plugin).host(Host::Native)).await;
    assert!(!status.success(), "{status}");
    for place in [r#"weir: jwt_claim ["payload", "sub"]: expected "#, "weir: rules[1].cost.after.metadata: expected "] {
        assert!(log.contains(place), "no {place:?} in {log}");
    }
}

/// A rule set that weir-sync takes, and a POP does not: weir-sync shows the operator the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weir_sync_shows_why_the_module_refused_a_rule_set() {
    let weir_sync = WeirSync::start("fra1", "memory").await;
    let setup = Setup::with(synced(one("per-address", "100/d", 100), "fra1")).host(Host::Native).concurrency(2);
    let edge = Envoy::start(setup.cluster("weir-sync", weir_sync.address())).await;
    edge.counter_grows("weir.sync.answered", 2).await;
    let cost = json!({"after": {"metadata": ["space", "name", "inner"], "max": 5}});
    let mut operator = Operator::of(&weir_sync);
    operator.put_good(&rules([with(rule("by-cost", "1/h", 9), "cost", cost)])).await;
    let refusal = until("the reason to show", async || {
        let page = operator.get("/v1/fleet").await.json();
        page["pops"][0]["refusal"].as_str().map(str::to_owned)
    })
    .await;
    assert!(refusal.starts_with("rules[0].cost.after.metadata: expected "), "{refusal}");
}

/// Two generations of 200 listeners at a time, whose filters have one name.
#[tokio::test]
async fn replaced_listeners_share_the_modules_buckets() {
    const LISTENERS: usize = 200;
    let setup = Setup::with(one("per-address", "1/h", 300)).host(Host::Native).drain_seconds(20);
    let mut edge = Envoy::start(setup.from_file().listeners(LISTENERS)).await;
    let ask = Ask::from("203.0.113.7");
    for round in 1..=2 {
        edge.stat_reaches("listener_manager.total_listeners_active", LISTENERS as u64).await;
        let mut clients = edge.clients_of_listeners().await;
        assert_eq!(clients.len(), LISTENERS);
        let mut admitted = 0;
        for client in &mut clients {
            admitted += usize::from(client.send(&ask).await.status == 200);
        }
        assert_eq!(admitted, if round == 1 { LISTENERS } else { 300 - LISTENERS }, "round {round}");
        if round == 1 {
            edge.reconfigure(with(one("per-address", "1/h", 300), "filter_state", json!(true)));
            edge.stat_reaches("listener_manager.listener_modified", LISTENERS as u64).await;
            edge.stat_reaches("listener_manager.lds.update_success", 2).await;
        }
    }
    assert_eq!(edge.stat("listener_manager.lds.update_rejected").await, Some(0), "{}", edge.log());
}

/// One table of 36 MB for each name.
#[tokio::test]
async fn a_table_without_a_listener_is_freed() {
    let plugin = with(one("per-address", "1/h", 3), "table", json!({"addresses": 1_000_000}));
    let mut edge = Envoy::start(Setup::with(plugin).host(Host::Native).from_file()).await;
    let before = edge.resident_kib();
    for round in 1..=8 {
        edge.rename_filter(&format!("weir-{round}"));
        edge.stat_reaches("listener_manager.listener_modified", round).await;
        until("the one before to end", async || {
            (edge.stat("listener_manager.total_filter_chains_draining").await == Some(0)).then_some(())
        })
        .await;
    }
    let grown = edge.resident_kib().saturating_sub(before);
    assert!(grown < 3 * 36_000, "{grown} KiB more");
}
