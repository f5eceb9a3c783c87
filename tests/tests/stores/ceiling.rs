//! The ceiling of a rule's keys in Redis, whatever clients make up.

use redis::AsyncCommands;
use weir_budget::budget::{BudgetId, PlanEntry};
use weir_budget::escrow::Claim;
use weir_protocol::quota::Period;
use weir_store::redis::{Options, Redis as RedisStore};
use weir_store::{ChargeBatch, Store, StoreError};
use weir_tests::redis::Redis;

use crate::{count, entry, in_reach, options, quota, strict};

/// The most keys of a rule in these tests.
const MOST: usize = 50;

async fn bounded(redis: &Redis) -> RedisStore {
    let store = RedisStore::new(&redis.url(), Options { keys_max: MOST, ..options() }).unwrap();
    in_reach(&store).await;
    store
}

fn flood(values: std::ops::Range<u64>) -> Vec<PlanEntry> {
    let quick = quota(1_000, Period::Second, 1_000);
    values.map(|value| entry(&value.to_be_bytes(), quick, vec![count(1, 1, 1)])).collect()
}

fn batch(entries: &[PlanEntry]) -> ChargeBatch<'_> {
    ChargeBatch { replica: "eu", pop: "fra1", entries }
}

// I2
#[tokio::test]
async fn a_flood_of_keys_stays_below_the_ceiling_and_expires() {
    let redis = Redis::start().await;
    let (store, mut connection) = (bounded(&redis).await, redis.connection().await);
    let known = flood(0..1);
    assert!(store.charge(&batch(&known)).await[0].is_ok());
    let mut refused = 0;
    for first in (1..1_001).step_by(100) {
        let entries = flood(first..first + 100);
        let answers = store.charge(&batch(&entries)).await;
        refused += answers.iter().filter(|answer| matches!(answer, Err(StoreError::Full(MOST)))).count();
        let names: Vec<String> = connection.keys("weir:*{per-address:*").await.unwrap();
        assert!(names.len() <= MOST, "{} keys after {first}", names.len());
    }
    assert_eq!(refused, 1_001 - MOST);
    assert!(store.charge(&batch(&known)).await[0].is_ok(), "one that is there stays");
    let names: Vec<String> = connection.keys("weir:*{per-address:*").await.unwrap();
    assert_eq!(names.len(), MOST);
    // A budget that lacks a token is full within a millisecond, and kept for a minute.
    for name in names {
        let ttl_ms: i64 = connection.pttl(&name).await.unwrap();
        assert!((50_000..=60_001).contains(&ttl_ms), "{name}: {ttl_ms} ms");
    }
    // Another rule has a ceiling of its own.
    let mut other = flood(0..1);
    other[0].id = BudgetId::new("other".into(), other[0].id.value.clone());
    assert!(store.charge(&batch(&other)).await[0].is_ok());
}

// I2
#[tokio::test]
async fn strict_keys_stay_below_the_ceiling() {
    let redis = Redis::start().await;
    let (store, mut connection) = (bounded(&redis).await, redis.connection().await);
    let claim = Claim::of(1, 0, 1);
    let acquire =
        |value: u64| strict::acquire(&value.to_be_bytes(), quota(1, Period::Second, 10), 2_000_000, vec![claim]);
    let acquires: Vec<_> = (0..200).map(acquire).collect();
    let answers = store.acquire("fra1", &acquires).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), MOST);
    let names: Vec<String> = connection.keys("weir:*{per-address:*").await.unwrap();
    assert!(names.len() <= MOST, "{}", names.len());
    for name in names {
        let ttl_ms: i64 = connection.pttl(&name).await.unwrap();
        assert!((5_000..=20_000).contains(&ttl_ms), "{name}: {ttl_ms} ms");
    }
}
