use hyper::Method;
use weir_tests::client::Ask;
use weir_tests::load::{Tally, repeat};

use super::Edge;
use crate::quotas::away_from_midnight;

/// What one address may shorten at once.
const PER_ADDRESS: usize = 100;

fn shorten(address: &str) -> Ask {
    Ask::new(Method::POST, "/shorten").forwarded_for(address)
}

fn follow(address: &str) -> Ask {
    Ask::get("/abc123").forwarded_for(address)
}

/// `count` links of `account`, no more than its address may make from each address.
async fn shortened(edge: &Edge, network: &str, ask: impl Fn(Ask) -> Ask, count: usize) -> Tally {
    let (mut client, mut tally) = (edge.envoy.client(), Tally::default());
    for n in 0..count.div_ceil(PER_ADDRESS) {
        let ask = ask(shorten(&format!("{network}.{n}")));
        tally.merge(&repeat(&mut client, &ask, PER_ADDRESS).await);
    }
    tally.assert_only_decisions();
    tally
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_shortens_100_an_hour_and_follows_1000_a_minute() {
    let edge = Edge::start("url-shortener").await;
    let address = "203.0.113.7";
    edge.assert_limited_after(&shorten(address), PER_ADDRESS, 100.0 / 3_600.0).await;
    assert_eq!(edge.status(&shorten("203.0.113.8")).await, 200, "another address");
    assert_eq!(edge.status(&follow(address)).await, 200, "to follow links is another matter");
    edge.assert_limited_after(&follow("203.0.113.9"), 1_000, 1_000.0 / 60.0).await;
    let elsewhere = Ask::get("/admin/links").forwarded_for("203.0.113.9");
    assert_eq!(edge.status(&elsewhere).await, 200, "no code: no rule counts it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_shortens_1000_a_day_from_all_addresses_together() {
    away_from_midnight().await;
    let edge = Edge::start("url-shortener").await;
    let acme = |ask: Ask| ask.header("x-account-id", "acme");
    let tally = shortened(&edge, "203.0.113", acme, 1_200).await;
    assert_eq!(tally.admitted(), 1_000, "{tally:?}");
    let limited = edge.envoy.client().send(&acme(shorten("198.51.100.1"))).await;
    assert_eq!((limited.status, limited.header("x-ratelimit-limit")), (429, "1000"), "{limited:?}");
    assert_eq!(edge.status(&shorten("198.51.100.1")).await, 200, "the address itself has links left");
    let other = shorten("198.51.100.1").header("x-account-id", "other");
    assert_eq!(edge.status(&other).await, 200, "and so has another account");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_are_followed_though_nobody_counts_accounts() {
    away_from_midnight().await;
    let mut edge = Edge::start("url-shortener").await;
    edge.weir_sync.kill();
    let acme = shorten("203.0.113.7").header("x-account-id", "acme");
    assert_eq!(edge.status(&acme).await, 503);
    assert_eq!(edge.status(&shorten("203.0.113.7")).await, 200, "without an account only the address counts");
    assert_eq!(edge.status(&follow("203.0.113.7")).await, 200);
}
