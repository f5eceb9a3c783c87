//! Regions that share a budget through Redis, and what happens when Redis goes.

use std::time::{Duration, Instant};

use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{open_loop, repeat};
use weir_tests::redis::Redis;
use weir_tests::weir_sync::WeirSync;

use crate::plugin::one;
use crate::sync::{Traffic, fast_and_slow, synced};

/// What the tests' rule admits per second.
const RATE: f64 = 50.0;
/// And at once.
const BURST: f64 = 50.0;
/// What each region is asked for per second: twice the quota.
const ASKED: u32 = 100;

/// A point of presence of the region `name`.
async fn region(name: &str, weir_sync: &WeirSync, burst: u32) -> Envoy {
    region_at(name, weir_sync, "50/s", burst).await
}

/// The same with another rate.
async fn region_at(name: &str, weir_sync: &WeirSync, rate: &str, burst: u32) -> Envoy {
    let plugin = synced(one("per-address", rate, burst), name);
    Envoy::start(Setup::with(plugin).node(name).cluster("weir-sync", weir_sync.address())).await
}

/// Asks both for the same address, each `asked` times a second, for `seconds`; what they admitted together
/// per second.
async fn admitted_together(edges: [&Envoy; 2], asked: u32, seconds: u64) -> f64 {
    let ask = Ask::from("203.0.113.7");
    let span = Duration::from_secs(seconds);
    let [mut a, mut b] = edges.map(Envoy::client);
    let (a, b) = tokio::join!(open_loop(&mut a, &ask, asked, span), open_loop(&mut b, &ask, asked, span));
    a.assert_only_decisions();
    b.assert_only_decisions();
    a.admitted_per_second() + b.admitted_per_second()
}

// I5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_regions_share_one_budget() {
    let redis = Redis::start().await;
    let sync_a = WeirSync::start("fra1", &redis.url()).await;
    let sync_b = WeirSync::start("nyc1", &redis.url()).await;
    let (a, b) = (region("fra1", &sync_a, 50).await, region("nyc1", &sync_b, 50).await);
    // By then each knows that there are two.
    tokio::join!(a.counter_grows("weir.sync.answered", 4), b.counter_grows("weir.sync.answered", 4));
    // The first seconds hold two bursts and their repayment; what counts is what they settle at.
    let settling = admitted_together([&a, &b], ASKED, 4).await;
    let together = admitted_together([&a, &b], ASKED, 8).await;
    assert!(
        (0.9 * RATE..=1.1 * RATE).contains(&together),
        "one quota, {RATE} a second, to within 10 %: {together:.1} after {settling:.1}"
    );
    // Two bursts were let through at first. A loan, not a gift: the second one has been paid back.
    let all = 4.0 * settling + 8.0 * together;
    let ideal = 12.0 * RATE + BURST;
    assert!(all <= 1.03 * ideal, "{all:.0} admitted since the beginning, {ideal:.0} were allowed");
}

// I5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_at_two_points_of_presence_is_paid_back() {
    let redis = Redis::start().await;
    let sync_a = WeirSync::start("fra1", &redis.url()).await;
    let sync_b = WeirSync::start("nyc1", &redis.url()).await;
    let (a, b) = (region_at("fra1", &sync_a, "10/s", 50).await, region_at("nyc1", &sync_b, "10/s", 50).await);
    tokio::join!(a.counter_grows("weir.sync.answered", 4), b.counter_grows("weir.sync.answered", 4));
    let (ask, [mut a, mut b]) = (Ask::from("203.0.113.7"), [&a, &b].map(Envoy::client));
    let began = Instant::now();
    let (at_a, at_b) = tokio::join!(repeat(&mut a, &ask, 100), repeat(&mut b, &ask, 100));
    let burst = at_a.admitted() + at_b.admitted();
    assert!(burst > 75, "both were to admit a burst, or there is nothing to pay back: {at_a:?}, {at_b:?}");
    // Four times the rate: all that the quota has to give finds a taker.
    let span = Duration::from_secs(15);
    let (at_a, at_b) = tokio::join!(open_loop(&mut a, &ask, 20, span), open_loop(&mut b, &ask, 20, span));
    let all = burst + at_a.tally.admitted() + at_b.tally.admitted();
    let ideal = 50.0 + 10.0 * began.elapsed().as_secs_f64();
    let all = f64::from(u32::try_from(all).unwrap_or(u32::MAX));
    assert!(
        (0.9 * ideal..=1.1 * ideal).contains(&all),
        "{all} admitted since the beginning, {ideal:.0} were allowed; {burst} of them at once"
    );
}

// I4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_each_region_alone_would_admit_is_still_charged_to_both() {
    let redis = Redis::start().await;
    let sync_a = WeirSync::start("fra1", &redis.url()).await;
    let sync_b = WeirSync::start("nyc1", &redis.url()).await;
    let (a, b) = (region("fra1", &sync_a, 100).await, region("nyc1", &sync_b, 100).await);
    tokio::join!(a.counter_grows("weir.sync.answered", 4), b.counter_grows("weir.sync.answered", 4));
    // Below the quota in each region, so that no bucket ever runs low, and nearly twice it together.
    let seconds = 10;
    let all = admitted_together([&a, &b], 45, seconds).await * 10.0;
    let ideal = 10.0 * RATE + 100.0;
    assert!(all <= 1.03 * ideal, "{all:.0} admitted in {seconds} s, {ideal:.0} were allowed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_regions_without_a_budget_loop_admit_twice_the_quota() {
    let plugin = one("per-address", "50/s", 50);
    let (a, b) = (Envoy::start(Setup::with(plugin.clone())).await, Envoy::start(Setup::with(plugin)).await);
    admitted_together([&a, &b], ASKED, 1).await;
    let together = admitted_together([&a, &b], ASKED, 4).await;
    assert!((1.9 * RATE..=2.1 * RATE).contains(&together), "a quota each: {together:.1}");
}

// I1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_killed_or_hung_is_not_noticed_by_requests() {
    let mut redis = Redis::start().await;
    let mut weir_sync = WeirSync::start("fra1", &redis.url()).await;
    let plugin = synced(fast_and_slow(), "fra1");
    let edge = Envoy::start(Setup::with(plugin).cluster("weir-sync", weir_sync.address())).await;
    let traffic = Traffic::start_both(&edge).await;
    weir_sync.answers("/readyz", 200).await;
    edge.counter_reaches("weir.sync.answered", 3).await;

    redis.kill();
    weir_sync.answers("/readyz", 503).await;
    weir_sync.answers("/healthz", 200).await;
    // The filter goes on reporting, though nobody can grant it anything.
    edge.counter_grows("weir.sync.reported", 5).await;

    redis.restart().await;
    weir_sync.answers("/readyz", 200).await;
    edge.counter_grows("weir.sync.answered", 5).await;

    // Gone in the way that is harder to notice: connections stay open, answers do not come.
    redis.freeze().await;
    weir_sync.answers("/readyz", 503).await;
    redis.thaw();
    weir_sync.answers("/readyz", 200).await;
    edge.counter_grows("weir.sync.answered", 5).await;
    for traffic in traffic {
        traffic.stop().await;
    }
}

// I5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_share_their_budget_again_after_redis_was_gone() {
    let mut redis = Redis::start().await;
    let mut sync_a = WeirSync::start("fra1", &redis.url()).await;
    let mut sync_b = WeirSync::start("nyc1", &redis.url()).await;
    let (a, b) = (region("fra1", &sync_a, 50).await, region("nyc1", &sync_b, 50).await);
    admitted_together([&a, &b], ASKED, 2).await;
    redis.kill();
    sync_a.answers("/readyz", 503).await;
    sync_b.answers("/readyz", 503).await;
    redis.restart().await;
    sync_a.answers("/readyz", 200).await;
    sync_b.answers("/readyz", 200).await;
    admitted_together([&a, &b], ASKED, 4).await;
    let together = admitted_together([&a, &b], ASKED, 6).await;
    assert!((0.9 * RATE..=1.1 * RATE).contains(&together), "one quota again: {together:.1}");
}
