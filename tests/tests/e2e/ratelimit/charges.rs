//! Charges that Envoy's filter sends when a stream is done: AI gateways charge tokens, and give hits back.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use weir_tests::client::{Ask, Client};
use weir_tests::envoy::Envoy;
use weir_tests::operator::Operator;
use weir_tests::server::Server;
use weir_tests::wait::until;

use super::{Gateway, in_force};

/// An Envoy in front of `upstream` that sends these actions for each request.
async fn edge(gateway: &Gateway, upstream: &Server, rate_limits: Value) -> Envoy {
    // Beside the route's own, Envoy takes no notice of hits.
    let of_route = json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute",
        "rate_limits": rate_limits});
    let of_filters = json!({"typed_per_filter_config": {"envoy.filters.http.ratelimit": of_route}});
    gateway.envoy("envoy.yaml", upstream, of_filters).await
}

/// The number of checks that the gateway has answered.
async fn checks(gateway: &Gateway) -> f64 {
    let port = gateway.weir_sync.address().port();
    let page = Client::of_port(port).send(&Ask::get("/metrics")).await.text();
    let rows = page.lines().filter(|line| line.starts_with("weir_sync_gateway_checks_total{"));
    let rows = rows.filter(|line| line.contains("api=\"grpc\""));
    rows.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// The actions for the client's address and the rule.
fn actions(rule: &str) -> Value {
    json!([{"remote_address": {}}, {"generic_key": {"descriptor_key": "x-rule", "descriptor_value": rule}}])
}

/// One entry of an Envoy's `rate_limits`.
#[allow(clippy::needless_pass_by_value, reason = "plainer to call")]
fn limit_action(rule: &str, hits: Value, at_the_end: bool) -> Value {
    json!({"actions": actions(rule), "hits_addend": hits, "apply_on_stream_done": at_the_end})
}

/// The statuses of `count` requests, each of which is charged before the next one: for one that passes, Envoy sends
/// a check before and afterwards.
async fn statuses(gateway: &Gateway, envoy: &Envoy, from: &str, count: usize) -> Vec<u16> {
    let mut client = envoy.client();
    let (mut statuses, mut seen) = (Vec::new(), settled(gateway).await);
    for _ in 0..count {
        let status = client.send(&Ask::from(from)).await.status;
        statuses.push(status);
        if status == 200 {
            seen += 2.0;
            until("its cost to be charged", async || (checks(gateway).await >= seen).then_some(())).await;
        } else {
            seen = settled(gateway).await;
        }
    }
    statuses
}

/// The number of checks that the gateway has answered, once its page is unchanged for as long as it is kept.
async fn settled(gateway: &Gateway) -> f64 {
    loop {
        let before = checks(gateway).await;
        sleep(Duration::from_secs(2)).await;
        if checks(gateway).await <= before {
            return before;
        }
    }
}

/// Ten tokens, of which none comes back while the test runs.
fn rules() -> Value {
    let rule = |name: &str, strict| {
        json!({"name": name, "match": {"headers": [{"name": "x-rule", "equals": name}]}, "key": ["client_address"],
            "rate": "10/d", "burst": 10, "strict": strict})
    };
    json!({"rules": [rule("bucket", false), rule("strict", true)]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_at_the_end_of_a_stream_becomes_debt() {
    let gateway = Gateway::start("fra", "memory", &[]).await;
    Operator::of(&gateway.weir_sync).put_good(&rules()).await;
    in_force(&gateway.weir_sync, &["gateway/fra"]).await;
    let upstream = Server::obedient().await;
    for rule in ["bucket", "strict"] {
        let of = |tokens| {
            let asks = limit_action(rule, json!({"number": 0}), false);
            json!([asks, limit_action(rule, json!({"number": tokens}), true)])
        };
        // At three each, ten tokens are four requests; a zone in a client's address makes it no other one.
        let envoy = edge(&gateway, &upstream, of(3)).await;
        let found = statuses(&gateway, &envoy, "fe80::7%1", 7).await;
        assert_eq!(found, [200, 200, 200, 200, 429, 429, 429], "{rule}");
        let same = statuses(&gateway, &envoy, "fe80::7", 1).await;
        assert_eq!(same, [429], "{rule}");
        let envoy = edge(&gateway, &upstream, of(100)).await;
        assert_eq!(statuses(&gateway, &envoy, "203.0.113.9", 3).await, [200, 429, 429], "{rule}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn negative_hits_are_refunded() {
    let gateway = Gateway::start("fra", "memory", &[]).await;
    Operator::of(&gateway.weir_sync).put_good(&rules()).await;
    in_force(&gateway.weir_sync, &["gateway/fra"]).await;
    let upstream = Server::obedient().await;
    // Four are taken at first, and all but one of them come back when it is over.
    let back = limit_action("strict", json!({"number": 3, "is_negative_hits": true}), true);
    let envoy = edge(&gateway, &upstream, json!([limit_action("strict", json!({"number": 4}), false), back])).await;
    let found = statuses(&gateway, &envoy, "203.0.113.7", 8).await;
    assert_eq!(found, [200, 200, 200, 200, 200, 200, 200, 429]);
}
