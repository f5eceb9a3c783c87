//! What Envoy's filter says only when a stream is done: how AI gateways charge tokens, and how hits are given back.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use weir_tests::client::{Ask, Client};
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::operator::Operator;
use weir_tests::server::Server;
use weir_tests::wait::until;

use super::{Gateway, in_force, shipped};

/// An Envoy in front of `upstream` that says this of each request.
async fn edge(gateway: &Gateway, upstream: &Server, rate_limits: Value) -> Envoy {
    let (manager, cluster) = shipped("envoy.yaml");
    let setup = Setup::plain().upstream(upstream.address()).before(manager["http_filters"][0].clone());
    // Beside the route's own, Envoy takes no notice of hits.
    let of_route = json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute",
        "rate_limits": rate_limits});
    let of_filters = json!({"typed_per_filter_config": {"envoy.filters.http.ratelimit": of_route}});
    let setup = setup.more(Value::Null, of_filters);
    let envoy = Envoy::start(setup.shipped_cluster(cluster, gateway.grpc)).await;
    envoy.stat_reaches("cluster.weir-sync-grpc.membership_healthy", 1).await;
    envoy
}

/// How many checks the gateway has answered.
async fn checks(gateway: &Gateway) -> f64 {
    let port = gateway.weir_sync.address().port();
    let page = Client::of_port(port).send(&Ask::get("/metrics")).await.text();
    let rows = page.lines().filter(|line| line.starts_with("weir_sync_gateway_checks_total{"));
    let rows = rows.filter(|line| line.contains("api=\"grpc\""));
    rows.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Who asks, and under which rule.
fn actions(rule: &str) -> Value {
    json!([{"remote_address": {}}, {"generic_key": {"descriptor_key": "x-rule", "descriptor_value": rule}}])
}

/// One entry of an Envoy's `rate_limits`.
#[allow(clippy::needless_pass_by_value, reason = "plainer to call")]
fn says(rule: &str, hits: Value, at_the_end: bool) -> Value {
    json!({"actions": actions(rule), "hits_addend": hits, "apply_on_stream_done": at_the_end})
}

/// The statuses of so many requests, each of which is charged before the next one: of one that passes, Envoy says
/// something before and afterwards.
async fn statuses(gateway: &Gateway, envoy: &Envoy, from: &str, count: usize) -> Vec<u16> {
    let mut client = envoy.client();
    let (mut statuses, mut said) = (Vec::new(), settled(gateway).await);
    for _ in 0..count {
        let status = client.send(&Ask::from(from)).await.status;
        statuses.push(status);
        if status == 200 {
            said += 2.0;
            until("what it cost to be said", async || (checks(gateway).await >= said).then_some(())).await;
        } else {
            said = settled(gateway).await;
        }
    }
    statuses
}

/// How many checks the gateway has answered, once its page says the same for as long as it is kept.
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
async fn tokens_charged_when_the_stream_is_done_are_debt_where_they_do_not_fit() {
    let gateway = Gateway::start("fra", "memory", &[]).await;
    Operator::of(&gateway.weir_sync).put_good(&rules()).await;
    in_force(&gateway.weir_sync, &["gateway/fra"]).await;
    let upstream = Server::obedient().await;
    for rule in ["bucket", "strict"] {
        let of = |tokens| {
            let asks = says(rule, json!({"number": 0}), false);
            json!([asks, says(rule, json!({"number": tokens}), true)])
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
async fn negative_hits_give_back() {
    let gateway = Gateway::start("fra", "memory", &[]).await;
    Operator::of(&gateway.weir_sync).put_good(&rules()).await;
    in_force(&gateway.weir_sync, &["gateway/fra"]).await;
    let upstream = Server::obedient().await;
    // Four are taken at first, and all but one of them come back when it is over.
    let back = says("strict", json!({"number": 3, "is_negative_hits": true}), true);
    let envoy = edge(&gateway, &upstream, json!([says("strict", json!({"number": 4}), false), back])).await;
    let found = statuses(&gateway, &envoy, "203.0.113.7", 8).await;
    assert_eq!(found, [200, 200, 200, 200, 200, 200, 200, 429]);
}
