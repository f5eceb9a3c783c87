//! Penalties in a fleet: a client that is banned at one POP is refused at all.

use std::time::Instant;

use serde_json::json;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::drain;
use weir_tests::redis::Redis;
use weir_tests::wait::until;
use weir_tests::weir_sync::WeirSync;

use crate::plugin::{rule, rules, with};
use crate::sync::synced;

/// For how long a key is banned, in seconds; the rule says `1h`.
const DENY_FOR_S: u64 = 3_600;
/// More than a client is told that only asked too fast.
const BANNED_S: u64 = DENY_FOR_S - 60;

async fn edge(pop: &str, weir_sync: &WeirSync) -> Envoy {
    let penalty = json!({"after": 5, "within": "1m", "deny_for": "1h"});
    let plugin = synced(rules([with(rule("some", "50/s", 10), "penalty", penalty)]), pop);
    let edge = Envoy::start(Setup::with(plugin).node(pop).cluster("weir-sync", weir_sync.address())).await;
    edge.counter_grows("weir.sync.answered", 4).await;
    edge
}

/// Asks once; whether the answer is that of a ban.
async fn is_banned(edge: &Envoy, ask: &Ask) -> bool {
    let answer = edge.client().send(ask).await;
    assert!([200, 429].contains(&answer.status), "{answer:?}");
    answer.status == 429 && (BANNED_S..=DENY_FOR_S).contains(&answer.number("retry-after"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_banned_at_one_point_of_presence_is_refused_at_another_of_another_region() {
    let redis = Redis::start().await;
    let sync_a = WeirSync::start("fra1", &redis.url()).await;
    let sync_b = WeirSync::start("nyc1", &redis.url()).await;
    let (a, b) = (edge("fra1", &sync_a).await, edge("nyc1", &sync_b).await);
    let (culprit, bystander) = (Ask::from("203.0.113.7"), Ask::from("203.0.113.8"));
    assert_eq!(b.client().send(&culprit).await.status, 200, "it did nothing yet");

    let mut client = a.client();
    while !is_banned(&a, &culprit).await {
        drain(&mut client, &culprit, 2_000).await;
    }
    let banned_at = Instant::now();
    until("the other to hear of it", async || is_banned(&b, &culprit).await.then_some(())).await;
    println!("banned at the other point of presence {:?} later", banned_at.elapsed());
    for edge in [&a, &b] {
        assert_eq!(
            edge.client().send(&bystander).await.status,
            200,
            "a client that did nothing is not banned"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_point_of_presence_that_comes_later_hears_which_clients_are_banned() {
    let redis = Redis::start().await;
    let sync_a = WeirSync::start("fra1", &redis.url()).await;
    let a = edge("fra1", &sync_a).await;
    let culprit = Ask::from("203.0.113.7");
    let mut client = a.client();
    while !is_banned(&a, &culprit).await {
        drain(&mut client, &culprit, 2_000).await;
    }
    a.counter_grows("weir.sync.answered", 4).await;
    let sync_b = WeirSync::start("nyc1", &redis.url()).await;
    let b = edge("nyc1", &sync_b).await;
    until("the newcomer to hear of it", async || is_banned(&b, &culprit).await.then_some(())).await;
}
