//! The lean module: no callback but the one for request headers, and all the same what rules need that it takes.

use serde_json::{Value, json};
use weir_tests::artefact;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup, wasm_filter};
use weir_tests::load::{drain, repeat};
use weir_tests::operator::Operator;
use weir_tests::wait::until;
use weir_tests::weir_sync::WeirSync;

use crate::plugin::{rule, rules, with};
use crate::sync::synced;

/// A rule for one path.
fn at(path: &str, rule: Value) -> Value {
    with(rule, "match", json!({"path": {"exact": path}}))
}

fn lean(plugin: Value) -> Setup {
    Setup::with(plugin).code(&artefact::lean_wasm())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lean_module_limits_reports_and_refuses_rules_that_need_a_response() {
    let weir_sync = WeirSync::start("fra1", "memory").await;
    let document = |plain: Value| {
        let strict = with(rule("strict", "5/h", 5), "strict", json!(true));
        rules([at("/plain", plain), at("/strict", strict)])
    };
    let plugin = synced(document(rule("plain", "1/h", 3)), "fra1");
    let edge = Envoy::start(lean(plugin).cluster("weir-sync", weir_sync.address())).await;
    edge.counter_grows("weir.sync.answered", 4).await;
    let (mut client, mut operator) = (edge.client(), Operator::of(&weir_sync));
    let [plain, strict] = ["/plain", "/strict"].map(|path| Ask::get(path).forwarded_for("203.0.113.7"));
    assert_eq!(drain(&mut client, &plain, 9).await.1, 3);
    let limited = client.send(&plain).await;
    assert_eq!((limited.status, limited.header("ratelimit")), (429, r#""plain";r=0;t=3600"#), "{limited:?}");
    let tally = repeat(&mut client, &strict, 9).await;
    assert_eq!((tally.admitted(), tally.limited()), (5, 4), "a request that waits goes on: {tally:?}");
    until("weir-sync to hear of them", async || {
        let page = operator.get("/v1/keys/plain/203.0.113.7").await.json();
        (page["level"].as_f64()? < 1.0).then_some(())
    })
    .await;

    let loud = with(rule("loud", "1/h", 3), "response", json!({"on_allowed": true}));
    let version = operator.put_good(&document(loud)).await;
    until("the refusal to show", async || {
        let page = operator.get("/v1/fleet").await.json();
        let pop = &page["pops"][0];
        let why =
            "rules[0].response.on_allowed: expected false, because weir_filter_lean.wasm does not take part";
        let is_told = pop["refusal"].as_str().is_some_and(|refusal| refusal.starts_with(why));
        (pop["refused"].as_u64() == Some(version) && is_told).then_some(())
    })
    .await;
    let refusal = format!(
        "rule set {version}: rules[0].response.on_allowed: expected false, because weir_filter_lean.wasm does not take part \
         in responses: load weir_filter.wasm for the rule loud"
    );
    assert!(edge.log().contains(&refusal), "{}", edge.log());
    assert_eq!(client.send(&plain).await.status, 429, "what ran before runs on");
    assert_eq!(operator.fleet().await.1, [("fra1".to_owned(), 0)]);
}

#[tokio::test]
async fn lean_plugins_of_one_vm_each_decide_their_own_requests_and_lose_no_counts() {
    let text = |plugin: &Value| json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": plugin.to_string()});
    let first = rules([at("/first", rule("first", "1/h", 2))]);
    let second = || at("/second", rule("second", "1/h", 3));
    let before = wasm_filter("first", &artefact::lean_wasm(), &text(&first));
    let mut edge = Envoy::start(lean(rules([second()])).before(before).from_file()).await;
    let to = |path: &str| Ask::get(path).forwarded_for("203.0.113.7");
    let mut client = edge.client();
    assert_eq!(drain(&mut client, &to("/first"), 6).await.1, 2);
    assert_eq!(drain(&mut client, &to("/second"), 6).await.1, 3);

    edge.reconfigure(rules([second(), at("/third", rule("third", "1/h", 1))]));
    let third = Ask::get("/third").forwarded_for("203.0.113.99");
    until("the new configuration", async || {
        // Also on the old connection, until that is closed: the configuration that came last decides.
        let _ = client.try_send(&to("/second")).await;
        (edge.client().send(&third).await.status == 429).then_some(())
    })
    .await;
    assert_eq!(drain(&mut edge.client(), &to("/first"), 3).await.1, 0);
    assert_eq!(drain(&mut edge.client(), &to("/second"), 3).await.1, 0);
    edge.stat_reaches("listener_manager.lds.update_success", 2).await;
    edge.counter_reaches("weir.rule.first.allowed", 2).await;
    edge.counter_reaches("weir.rule.second.allowed", 3).await;
    edge.assert_alive();
}
