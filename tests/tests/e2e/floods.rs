//! Floods from ever new addresses: a client that comes for the first time is let through, however many came before.
//!
//! The table is one of a sixteenth of the default's room, so that few requests fill it.

use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Value, json};
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{Tally, together};
use weir_tests::redis::Redis;
use weir_tests::weir_sync::WeirSync;

use crate::deployments::rules_in;
use crate::plugin::{one, with};
use crate::sync::synced;

/// Addresses that the table has places for.
const PLACES: u32 = 4_000;
/// Addresses that come, one request each: two and a half for every place.
const NEWCOMERS: u32 = 10_000;
/// Connections that they come over, as through a load balancer.
const CONNECTIONS: u32 = 40;
/// A token of five a minute, and so how long an address that came once owes something.
const TOKEN: Duration = Duration::from_secs(12);

fn small(plugin: Value) -> Value {
    with(plugin, "table", json!({"addresses": PLACES}))
}

fn login(n: u32) -> Ask {
    let [_, b, c, d] = n.to_be_bytes();
    Ask::new(Method::POST, "/login").forwarded_for(&format!("10.{b}.{c}.{d}"))
}

/// One request of every newcomer, and how long that took.
async fn flood(edge: &Envoy) -> (Tally, Duration) {
    let clients = edge.clients(CONNECTIONS.try_into().expect("few"));
    let began = Instant::now();
    let tally = together(clients, |i| {
        let first = u32::try_from(i).expect("few");
        (first..NEWCOMERS).step_by(CONNECTIONS as usize).map(login)
    });
    let tally = tally.await;
    let took = began.elapsed();
    println!("{tally:?} of {NEWCOMERS} newcomers in {took:?}");
    assert_eq!(tally.total(), NEWCOMERS as usize);
    (tally, took)
}

/// The login rule as it is recommended, strict, with a Redis. A key of it keeps its place while it holds a token
/// that it has drawn.
// I6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_flood_locks_nobody_out_of_a_strict_login() {
    let redis = Redis::start().await;
    let weir_sync = WeirSync::start("fra1", &redis.url()).await;
    let setup = Setup::with(small(synced(rules_in("login"), "fra1"))).node("fra1");
    let edge = Envoy::start(setup.cluster("weir-sync", weir_sync.address())).await;
    edge.counter_grows("weir.sync.answered", 4).await;
    let (tally, took) = flood(&edge).await;
    assert!(took < 5 * TOKEN, "{took:?}: the first addresses have all their tokens again");
    assert_eq!(tally.admitted(), tally.total(), "in {took:?}");
}

// I6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_locks_few_newcomers_out_of_a_bounded_login() {
    let edge = Envoy::start(Setup::with(small(one("login", "5/m", 5)))).await;
    let (tally, took) = flood(&edge).await;
    assert!(took < TOKEN, "{took:?}: the first addresses owe nothing any more");
    tally.assert_only_decisions();
    assert!(20 * tally.limited() <= tally.total(), "in {took:?}: {tally:?}");
}
