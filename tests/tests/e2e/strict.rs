//! Strict rules in real Envoys: requests are held for one exchange, and the quota is never overshot.

use serde_json::{Value, json};
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::repeat;
use weir_tests::redis::Redis;
use weir_tests::weir_sync::WeirSync;

use crate::plugin::one;
use crate::sync::synced;

/// Five a minute for each address, never more.
fn login(pop: &str) -> Value {
    let mut plugin = one("login", "5/m", 5);
    plugin["rules"][0]["strict"] = json!(true);
    synced(plugin, pop)
}

async fn edge(pop: &str, weir_sync: &WeirSync) -> Envoy {
    Envoy::start(Setup::with(login(pop)).node(pop).cluster("weir-sync", weir_sync.address())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_points_of_presence_admit_one_burst_together() {
    let redis = Redis::start().await;
    let (sync_a, sync_b) =
        (WeirSync::start("fra1", &redis.url()).await, WeirSync::start("nyc1", &redis.url()).await);
    let (a, b) = (edge("fra1", &sync_a).await, edge("nyc1", &sync_b).await);
    tokio::join!(a.counter_grows("weir.sync.answered", 4), b.counter_grows("weir.sync.answered", 4));
    let (ask, [mut a_client, mut b_client]) = (Ask::from("203.0.113.7"), [&a, &b].map(Envoy::client));
    let (at_a, at_b) = tokio::join!(repeat(&mut a_client, &ask, 20), repeat(&mut b_client, &ask, 20));
    at_a.assert_only_decisions();
    at_b.assert_only_decisions();
    assert_eq!(at_a.admitted() + at_b.admitted(), 5, "{at_a:?}, {at_b:?}");
    a.counter_reaches("weir.strict.paused", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_weir_sync_a_strict_rule_is_closed_and_says_so() {
    let mut weir_sync = WeirSync::start("fra1", "memory").await;
    let edge = edge("fra1", &weir_sync).await;
    edge.counter_grows("weir.sync.answered", 4).await;
    let mut client = edge.client();
    assert_eq!(client.send(&Ask::from("203.0.113.1")).await.status, 200);
    weir_sync.kill();
    for n in 2..=5 {
        let answer = client.send(&Ask::from(&format!("203.0.113.{n}"))).await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{answer:?}");
    }
    weir_sync.restart().await;
    edge.counter_grows("weir.sync.answered", 4).await;
    assert_eq!(client.send(&Ask::from("203.0.113.9")).await.status, 200);
}
