//! A limit that callers name is one limit, whichever weir-sync they ask.

use std::fs;

use futures_util::future::join_all;
use hyper::Method;
use serde_json::json;
use weir_tests::client::{Ask, Client};
use weir_tests::redis::Redis;
use weir_tests::wait::until;
use weir_tests::weir_sync::WeirSync;

const TOKEN: &str = "a-token-for-limits-of-the-tests";
/// The limit, in a window in which hardly any comes back.
const LIMIT: usize = 60;
const WINDOW_MS: u32 = 86_400_000;

/// How many of so many checks are let through by a weir-sync, asked one after the other.
async fn allowed(weir_sync: &WeirSync, count: usize) -> usize {
    let mut client = Client::of_port(weir_sync.address().port());
    let ask = Ask::new(Method::POST, "/ratelimit/check").header("content-type", "application/json");
    let ask = ask.header("authorization", &format!("Bearer {TOKEN}"));
    let ask = ask.body(json!({"key": "job:7", "limit": LIMIT, "window_ms": WINDOW_MS}).to_string());
    let mut allowed = 0;
    for _ in 0..count {
        let answer = client.send(&ask).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        allowed += usize::from(answer.json()["allowed"] == true);
    }
    allowed
}

#[tokio::test]
async fn two_weir_syncs_of_two_regions_let_through_what_the_caller_named_and_no_more() {
    let redis = Redis::start().await;
    let tokens = tempfile::NamedTempFile::new().expect("a file");
    fs::write(tokens.path(), format!("jobs limit {TOKEN}\n")).expect("a file that can be written");
    let path = tokens.path().to_str().expect("a path");
    let arguments = ["--gateway", "on", "--check-token-file", path];
    let mut two = Vec::new();
    for region in ["fra", "nyc"] {
        let weir_sync = WeirSync::start_with(region, &redis.url(), &arguments).await;
        until("it to be ready", async || (weir_sync.status_of("/readyz").await == Some(200)).then_some(()))
            .await;
        two.push(weir_sync);
    }
    // Four callers at each, who ask at once.
    let asked = (0..8).map(|caller| allowed(&two[caller % 2], LIMIT / 4));
    let allowed: usize = join_all(asked).await.into_iter().sum();
    assert_eq!(allowed, LIMIT);
}
