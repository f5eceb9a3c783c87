//! Penalties in a fleet: a client that is banned at one POP is refused at all.

use std::time::{Duration, Instant};

use serde_json::json;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::drain;
use weir_tests::operator::Operator;
use weir_tests::redis::Redis;
use weir_tests::wait::until;
use weir_tests::weir_sync::WeirSync;

use crate::plugin::{rule, rules, with};
use crate::sync::synced;

/// For how long a key is banned, in seconds; the rule has `1h`.
const DENY_FOR_S: u64 = 3_600;
/// Longer than the wait of a client that only asked too fast.
const BANNED_S: u64 = DENY_FOR_S - 60;

async fn edge(pop: &str, weir_sync: &WeirSync) -> Envoy {
    let penalty = json!({"after": 5, "within": "1m", "deny_for": "1h"});
    let plugin = synced(rules([with(rule("some", "50/s", 10), "penalty", penalty)]), pop);
    Envoy::in_touch(Setup::with(plugin).pop(pop, weir_sync)).await
}

/// Asks once; whether the answer is that of a ban.
async fn is_banned(edge: &Envoy, ask: &Ask) -> bool {
    let answer = edge.client().send(ask).await;
    assert!([200, 429].contains(&answer.status), "{answer:?}");
    answer.status == 429 && (BANNED_S..=DENY_FOR_S).contains(&answer.number("retry-after"))
}

/// Asks every 10 ms until it is let through; how long after `since` that was.
async fn let_through(edge: &Envoy, ask: &Ask, since: Instant) -> Duration {
    let mut client = edge.client();
    until("it to be let through", async || (client.send(ask).await.status == 200).then(|| since.elapsed())).await
}

/// A client that is banned, in debt and remembered by the deny caches of two POPs in two regions; then one that a
/// strict rule has nothing left for.
// I4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_reaches_every_region_within_a_second() {
    let redis = Redis::start().await;
    let sync_a = WeirSync::start("fra1", &redis.url()).await;
    let sync_b = WeirSync::start("nyc1", &redis.url()).await;
    let penalty = json!({"after": 5, "within": "1m", "deny_for": "1h"});
    let some = with(rule("some", "1/m", 10), "penalty", penalty);
    let login =
        with(with(rule("login", "2/h", 2), "strict", json!(true)), "match", json!({"paths": [{"prefix": "/login"}]}));
    let start = async |pop: &str, weir_sync: &WeirSync| {
        let plugin = synced(rules([some.clone(), login.clone()]), pop);
        Envoy::in_touch(Setup::with(plugin).pop(pop, weir_sync)).await
    };
    let (a, b) = tokio::join!(start("fra1", &sync_a), start("nyc1", &sync_b));
    let (culprit, bystander) = (Ask::from("203.0.113.7"), Ask::from("203.0.113.8"));
    let mut operator = Operator::of(&sync_b);
    let mut took = Vec::new();
    for _ in 0..3 {
        for ask in [&culprit, &bystander] {
            until("both to ban it", async || {
                drain(&mut a.client(), ask, 50).await;
                (is_banned(&a, ask).await && is_banned(&b, ask).await).then_some(())
            })
            .await;
        }
        let since = Instant::now();
        operator.reset("some", "203.0.113.7").await;
        let (at_a, at_b) = tokio::join!(let_through(&a, &culprit, since), let_through(&b, &culprit, since));
        took.push(at_a.max(at_b));
        assert!(is_banned(&a, &bystander).await && is_banned(&b, &bystander).await, "another is not reset");
    }
    took.sort();
    println!("reset at both points of presence after {took:?}");
    assert!(took[1] < Duration::from_secs(1), "{took:?}");

    let login = Ask::get("/login").forwarded_for("203.0.113.9");
    drain(&mut a.client(), &login, 3).await;
    assert_eq!(b.client().send(&login).await.status, 429, "the budget is one");
    let since = Instant::now();
    operator.reset("login", "203.0.113.9").await;
    let took = let_through(&b, &login, since).await;
    println!("of a strict rule after {took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_pop_receives_the_bans() {
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
    until("the newcomer to have it", async || is_banned(&b, &culprit).await.then_some(())).await;
}
