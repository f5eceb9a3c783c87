//! Gateways beside a real Envoy: whoever asks, and wherever, there is one quota.

use std::fs;

use hyper::Method;
use serde_json::{Value, json};
use weir_tests::client::{Ask, Client};
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::operator::Operator;
use weir_tests::redis::Redis;
use weir_tests::wait::until;
use weir_tests::weir_sync::{TOKEN, WeirSync};

use crate::plugin::one;
use crate::sync::synced;

/// All that one API key is let through, wherever it asks.
const QUOTA: usize = 30;

/// A gateway of this region, whose keys are hidden as those of the Envoys are.
async fn gateway(region: &str, redis: &Redis, key_secret: &str) -> WeirSync {
    let arguments = ["--gateway", "on", "--replica", "a", "--gateway-key-secret-file", key_secret];
    WeirSync::start_with(region, &redis.url(), &arguments).await
}

/// The number of checks that are let through, of `count`.
async fn checks(gateway: &WeirSync, count: usize) -> usize {
    let mut client = Client::of_port(gateway.address().port());
    let ask = Ask::new(Method::POST, "/v1/check").header("content-type", "application/json");
    let ask = ask.body(json!({"path": "/v1/orders", "headers": {"x-api-key": "alice"}}).to_string());
    let mut allowed = 0;
    for _ in 0..count {
        let answer = client.send(&ask).await.json();
        assert!(answer["decision"] == "allow" || answer["decision"] == "limit", "{answer}");
        allowed += usize::from(answer["decision"] == "allow");
    }
    allowed
}

/// The number of requests that an Envoy lets through, of `count`.
async fn requests(edge: &Envoy, count: usize) -> usize {
    let (mut client, ask) = (edge.client(), Ask::get("/v1/orders").header("x-api-key", "alice"));
    let mut allowed = 0;
    for _ in 0..count {
        let answer = client.send(&ask).await;
        assert!(answer.status == 200 || answer.status == 429, "{answer:?}");
        allowed += usize::from(answer.status == 200);
    }
    allowed
}

/// Waits until every POP of these names runs this version.
async fn all_run(operator: &mut Operator, version: u64, names: &[&str]) {
    until("every POP runs the rules", async || {
        let fleet = operator.fleet().await.1;
        names.iter().all(|name| fleet.contains(&((*name).to_owned(), version))).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_and_two_gateways_share_one_strict_quota() {
    let (redis, secret) = (Redis::start().await, tempfile::NamedTempFile::new().expect("a file"));
    fs::write(secret.path(), TOKEN).expect("a file that can be written");
    let path = secret.path().to_str().expect("a path");
    let (fra, nyc) = (gateway("fra", &redis, path).await, gateway("nyc", &redis, path).await);
    let plugin = synced(one("none", "1/s", 1), "fra1");
    let edge = Envoy::start(Setup::with(plugin).node("fra1").cluster("weir-sync", fra.address())).await;
    let mut operator = Operator::of(&fra);
    let rules: Value = json!({"rules": [{"name": "per-key", "key": [{"header": "x-api-key"}],
        "rate": format!("{QUOTA}/d"), "strict": true}]});
    let version = operator.put_good(&rules).await;
    all_run(&mut operator, version, &["fra1", "gateway/fra/a", "gateway/nyc/a"]).await;
    let (at_edge, at_fra, at_nyc) =
        tokio::join!(requests(&edge, 2 * QUOTA), checks(&fra, 2 * QUOTA), checks(&nyc, 2 * QUOTA));
    assert_eq!(at_edge + at_fra + at_nyc, QUOTA, "{at_edge}, {at_fra}, {at_nyc}");
}
