//! Quotas of the calendar: one count for all POPs, kept in Redis whatever is restarted.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::repeat;
use weir_tests::redis::{self, Redis};
use weir_tests::weir_sync::WeirSync;

use crate::plugin::rules;
use crate::sync::synced;

/// Requests that the rule admits in a month.
const COUNT: usize = 40;
/// No test of a quota takes longer, in seconds.
const TEST_S: u64 = 120;
const DAY_S: u64 = 86_400;

/// Waits, if it must, so that no window of the calendar ends while a test lasts.
pub(crate) async fn away_from_midnight() {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970");
    let left_s = DAY_S - unix.as_secs() % DAY_S;
    if left_s <= TEST_S {
        tokio::time::sleep(Duration::from_secs(left_s + 1)).await;
    }
}

fn monthly() -> Value {
    let (key, rate) = (json!([{"header": "x-account-id"}]), format!("{COUNT}/month"));
    let on_allowed = json!({"on_allowed": true});
    json!({"name": "monthly", "key": key, "algorithm": "quota", "rate": rate, "response": on_allowed})
}

async fn edge(pop: &str, weir_sync: &WeirSync) -> Envoy {
    Envoy::in_touch(Setup::with(synced(rules([monthly()]), pop)).pop(pop, weir_sync)).await
}

fn account(name: &str) -> Ask {
    Ask::from("203.0.113.7").header("x-account-id", name)
}

/// The number of `count` requests that `edge` admitted; panics at any answer that is no decision.
async fn admitted(edge: &Envoy, name: &str, count: usize) -> usize {
    let tally = repeat(&mut edge.client(), &account(name), count).await;
    tally.assert_only_decisions();
    tally.admitted()
}

// I6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_pops_share_a_quota_that_outlives_restarts() {
    away_from_midnight().await;
    let mut redis = Redis::start_with(redis::Setup { append_only: true, ..redis::Setup::default() }).await;
    let mut syncs = [WeirSync::start("fra1", &redis.url()).await, WeirSync::start("nyc1", &redis.url()).await];
    let (a, b) = (edge("fra1", &syncs[0]).await, edge("nyc1", &syncs[1]).await);
    let half = COUNT / 2;
    assert_eq!(admitted(&a, "acme", half).await, half, "the first half, where nobody else asks");

    // Everything that could have kept the count by heart.
    for weir_sync in &mut syncs {
        weir_sync.kill();
    }
    redis.kill();
    redis.restart().await;
    for weir_sync in &mut syncs {
        weir_sync.restart().await;
        weir_sync.answers("/readyz", 200).await;
    }
    tokio::join!(a.counter_grows("weir.sync.answered", 4), b.counter_grows("weir.sync.answered", 4));

    let at_b = admitted(&b, "acme", 2 * COUNT).await;
    let at_a = admitted(&a, "acme", 2 * COUNT).await;
    println!("{half} before; after all was restarted {at_b} at the other, {at_a} at the first");
    // What was on hand at the first when its weir-sync went is still its own; nothing is lost, for no Envoy was.
    assert_eq!(half + at_b + at_a, COUNT, "the quota, once: {at_b} at the other, {at_a} at the first");
    assert!(at_b >= half / 2, "the other was left most of the second half: {at_b}");
    for edge in [&a, &b] {
        let limited = edge.client().send(&account("acme")).await;
        assert_eq!((limited.status, limited.header("x-ratelimit-limit")), (429, "40"), "{limited:?}");
        let other = edge.client().send(&account("other")).await;
        assert_eq!(other.status, 200, "an account has its own: {other:?}");
    }
}
