//! Faults of a store outside this process: it forgets, expires, vanishes, hangs, asks for a password.

use std::time::Instant;

use redis::AsyncCommands;
use weir_budget::budget::{GRACE_US, KEPT_US_MAX, REPLICAS_MAX};
use weir_budget::hot::HotKey;
use weir_protocol::quota::Period;
use weir_protocol::sharing::Sharing;
use weir_store::{Store, StoreError};
use weir_tests::redis::{Redis, Setup, budget_key};
use weir_tests::wait::until;

use crate::{assert_hardly_any_waited, charge, charge_as, connected, count, entry, id, in_reach, open, quota, slow};

#[tokio::test]
async fn lost_scripts_are_loaded_again() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    redis::cmd("SCRIPT").arg("FLUSH").query_async::<()>(&mut connection).await.unwrap();
    assert_eq!(charge(&store, entry(b"a", slow(), vec![count(1, 5, 5)])).await.unwrap().charged, 5);
    redis::cmd("SCRIPT").arg("FLUSH").query_async::<()>(&mut connection).await.unwrap();
    assert_eq!(store.register("fra1").await.unwrap(), 1);
}

#[tokio::test]
async fn a_full_budget_expires_after_a_grace() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let account = charge(&store, entry(b"a", slow(), vec![count(1, 3, 3)])).await.unwrap();
    let ttl_ms: u64 = connection.pttl(budget_key(&id(b"a"))).await.unwrap();
    let expected_ms = (account.deficit_ns / 1_000 + GRACE_US) / 1_000;
    assert!(ttl_ms <= expected_ms && ttl_ms > expected_ms - 10_000, "{ttl_ms} of {expected_ms}");
    store.register("fra1").await.unwrap();
    let keys: Vec<String> = connection.keys("*").await.unwrap();
    for key in keys {
        let ttl_ms: i64 = connection.pttl(&key).await.unwrap();
        assert!(ttl_ms > 0, "{key} stays forever");
    }
}

// I2
#[tokio::test]
async fn made_up_keys_expire() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let slowest = quota(1, Period::Day, 400);
    for tokens in [400, 1_000_000, u64::MAX] {
        charge(&store, entry(b"a", slowest, vec![count(1, tokens, tokens)])).await.unwrap();
        let ttl_ms: u64 = connection.pttl(budget_key(&id(b"a"))).await.unwrap();
        let expected_ms = KEPT_US_MAX / 1_000;
        assert!(ttl_ms <= expected_ms && ttl_ms > expected_ms - 10_000, "{tokens}: {ttl_ms} of {expected_ms}");
    }
}

#[tokio::test]
async fn an_invalid_hot_key_is_left_out() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let key = HotKey { id: id(b"a"), quota: slow(), sharing: Sharing::of(slow()), rests: false, rank: 0 };
    store.hot(std::slice::from_ref(&key)).await.unwrap();
    let rank: f64 = connection.zscore("weir:hot", key.to_string()).await.unwrap();
    for odd in ["", "1:2:3", "10000000:100:0aff:per-address", "\u{e9}"] {
        let () = connection.zadd("weir:hot", odd, rank).await.unwrap();
    }
    assert_eq!(connected(&redis).await.hot(&[]).await.unwrap(), [key], "to one that asks for all of it");
}

// I2
#[tokio::test]
async fn a_budget_is_one_key_with_a_hash_tag() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let mut replicas = 0;
    for region in 0..REPLICAS_MAX * 2 {
        let of = entry(&[10, 0xff], slow(), vec![]);
        replicas = charge_as(&store, &format!("region-{region}"), "fra1", of).await.unwrap().replicas.len();
    }
    assert_eq!(replicas, REPLICAS_MAX);
    let keys: Vec<String> = connection.keys("*budget*").await.unwrap();
    assert_eq!(keys, ["weir:budget:{per-address:0aff}"]);
}

#[tokio::test]
async fn a_killed_redis_fails_quickly_and_recovers() {
    let mut redis = Redis::start().await;
    let store = open(&redis.url());
    in_reach(&store).await;
    charge(&store, entry(b"a", slow(), vec![count(1, 10, 10)])).await.unwrap();
    redis.kill();
    let mut took = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        let error = charge(&store, entry(b"a", slow(), vec![count(1, 11, 1)])).await.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable(_) | StoreError::Slow(_)), "{error:?}");
        took.push(start.elapsed());
    }
    assert_hardly_any_waited(&took);
    until("the store to know", async || store.ping().await.err()).await;
    redis.restart().await;
    in_reach(&store).await;
    // Nothing of these has been confirmed since the 10.
    assert_eq!(charge(&store, entry(b"a", slow(), vec![count(1, 12, 2)])).await.unwrap().charged, 2);
}

#[tokio::test]
async fn a_hung_redis_times_out_once() {
    let redis = Redis::start().await;
    let store = open(&redis.url());
    in_reach(&store).await;
    redis.freeze().await;
    let error = charge(&store, entry(b"a", slow(), vec![count(1, 10, 10)])).await.unwrap_err();
    assert!(matches!(error, StoreError::Slow(_) | StoreError::Unreachable(_)), "{error:?}");
    let mut took = Vec::new();
    for _ in 0..100 {
        let start = Instant::now();
        charge(&store, entry(b"a", slow(), vec![count(1, 10, 10)])).await.unwrap_err();
        took.push(start.elapsed());
    }
    assert_hardly_any_waited(&took);
    redis.thaw();
    in_reach(&store).await;
    let again = charge(&store, entry(b"a", slow(), vec![count(1, 10, 10)])).await.unwrap();
    // The first try may have been charged when Redis woke up; either way it is charged once.
    assert!(again.deficit_ns > 9 * slow().token_ns() && again.deficit_ns <= 10 * slow().token_ns());
}

#[tokio::test]
async fn a_store_started_before_redis_connects_later() {
    let mut redis = Redis::start().await;
    redis.kill();
    let store = open(&redis.url());
    assert_eq!(charge(&store, entry(b"a", slow(), vec![])).await.unwrap_err().kind(), "unreachable");
    redis.restart().await;
    in_reach(&store).await;
    charge(&store, entry(b"a", slow(), vec![])).await.unwrap();
}

/// Redis with a password for its default user.
pub(crate) fn with_a_password(password: &str) -> Setup {
    Setup { password: Some(password.into()), ..Setup::default() }
}

/// Redis with a user of its own for weir-sync.
pub(crate) fn with_a_user() -> Setup {
    Setup { user: Some("weir-user".into()), password: Some("correct-horse".into()), ..Setup::default() }
}
