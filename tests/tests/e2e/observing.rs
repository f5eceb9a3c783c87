//! The filter in Envoy's metrics.

use serde_json::json;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::load::repeat;

use crate::plugin::{rule, rules, with};

#[tokio::test]
async fn prometheus_metrics_separate_rules_with_similar_names() {
    let tiers = json!([{"name": "b", "when": {"path": {"exact": "/tier"}}, "unlimited": true}]);
    let of = |name: &str, path: &str| with(rule(name, "1/h", 2), "match", json!({"path": {"exact": path}}));
    let shadow = with(of("c", "/shadow"), "mode", json!("shadow"));
    let tiered = with(rule("a", "1/h", 20), "tiers", tiers);
    let rules = rules([of("a-b", "/dash"), of("a_b", "/line"), shadow, tiered]);
    let edge = Envoy::start(Setup::with(rules).as_shipped(&[])).await;
    let mut client = edge.client();
    for (path, count) in [("/dash", 1), ("/line", 5), ("/tier", 4), ("/shadow", 3)] {
        repeat(&mut client, &Ask::get(path).forwarded_for("203.0.113.7"), count).await;
    }
    for (counter, count) in [("a.allowed", 6), ("a.b.allowed", 4), ("a_b.limited", 3), ("c.shadow_limited", 1)] {
        edge.counter_reaches(&format!("weir.rule.{counter}"), count).await;
    }
    let mut lines = edge.prometheus("weir_rule_").await;
    lines.retain(|line| !line.ends_with(" 0"));
    lines.sort_unstable();
    let line = |outcome: &str, rule: &str, n: u32| format!("weir_rule_{outcome}{{rule=\"{rule}\"}} {n}");
    assert_eq!(
        lines,
        [
            line("allowed", "a", 6),
            line("allowed", "a-b", 1),
            line("allowed", "a.b", 4),
            line("allowed", "a_b", 2),
            line("allowed", "c", 2),
            line("limited", "a_b", 3),
            line("shadow_limited", "c", 1),
        ]
    );
    // What an alert asks for; a module has no VM.
    if edge.host() == Host::Wasm {
        assert_eq!(
            edge.prometheus("envoy_wasm_weir_vm_reload_success").await,
            ["envoy_wasm_weir_vm_reload_success{} 0"]
        );
    }
}
