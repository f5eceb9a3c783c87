//! Quotas of the calendar: what every store does, and what only Redis can: keep them through crashes.

use std::time::SystemTime;

use redis::AsyncCommands;
use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim};
use weir_protocol::calendar::Calendar;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;
use weir_store::Store;
use weir_tests::redis::{Redis, Setup, escrow_key};
use weir_tests::wait::until;

use crate::{POP_TTL, connected, connected_with, id, memory_with, quota, strict};

const LEASE_US: u64 = 600_000_000;

for_every_store!(each_calendar_has_its_own_quota);

pub(crate) fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}

fn hundred() -> Quota {
    quota(100, Period::Day, 100)
}

fn claim(epoch: u64, admitted: u64, ahead: u32) -> Claim {
    Claim::of(epoch, admitted, ahead)
}

/// An acquire from this month's quota of a hundred.
fn monthly(claims: &[Claim]) -> AcquireRequest {
    let window = Some(Calendar::MONTH.window(unix_us()));
    let refill_policy = RefillPolicy::Window(Calendar::MONTH);
    let acquire = strict::acquire(b"a", hundred(), LEASE_US, claims.to_vec());
    AcquireRequest { refill_policy, window, ..acquire }
}

async fn ask(store: &dyn Store, acquire: AcquireRequest) -> AcquireResult {
    store.acquire("fra1", &[acquire]).await.remove(0).unwrap()
}

async fn each_calendar_has_its_own_quota(store: &dyn Store) {
    let ten = Calendar::every(3_600, 0);
    let refill_policies = [Calendar::DAY, Calendar::MONTH, ten, ten.east(30)].map(RefillPolicy::Window);
    for refill_policy in refill_policies.into_iter().chain([
        RefillPolicy::Sliding(ten),
        RefillPolicy::Sliding(Calendar::DAY),
        RefillPolicy::Continuous,
    ]) {
        assert_eq!(
            ask(store, AcquireRequest { refill_policy, ..monthly(&[claim(1, 0, 60)]) }).await.given,
            60,
            "{refill_policy:?}"
        );
    }
}

#[tokio::test]
async fn a_quota_is_one_key_that_outlives_its_window() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let acquired = ask(&store, monthly(&[claim(1, 0, 1)])).await;
    let key = escrow_key(RefillPolicy::Window(Calendar::MONTH), &id(b"a"));
    assert_eq!(key, "weir:quota:month:{per-address:61}");
    let end_us = Calendar::MONTH.window(acquired.now_us).end_us;
    let expected_ms = (end_us - acquired.now_us + monthly(&[]).kept_us()).div_ceil(1_000);
    let ttl_ms: u64 = connection.pttl(&key).await.unwrap();
    assert!(ttl_ms <= expected_ms && ttl_ms > expected_ms - 5_000, "{ttl_ms} of {expected_ms}");
    // A POP that is given nothing leaves nothing behind.
    ask(&store, AcquireRequest { id: id(b"b"), ..monthly(&[claim(1, 7, 1)]) }).await;
    let keys: Vec<String> = connection.keys("weir:quota:*").await.unwrap();
    assert_eq!(keys, [key]);
}

/// Part of a quota is used; Redis is killed and started again on what it had written, and so is the weir-sync that
/// uses it.
// I6
#[tokio::test]
async fn a_count_survives_a_crash_of_redis() {
    let setup = Setup { append_only: true, ..Setup::default() };
    let mut redis = Redis::start_with(setup).await;
    let store = connected(&redis).await;
    assert_eq!(ask(&store, monthly(&[claim(1, 0, 40)])).await.given, 40);
    assert_eq!(ask(&store, monthly(&[claim(1, 30, 0)])).await.given, 0);
    for round in 0..2_u64 {
        redis.kill();
        redis.restart().await;
        let store = connected(&redis).await;
        let acquired = ask(&store, monthly(&[claim(10 + round, 0, 5)])).await;
        let used = 30 + 5 * (round + 1);
        assert_eq!((acquired.given, u64::from(acquired.leases[0].left)), (5, 100 - used));
    }
    // The store that lived through it goes on too.
    until("the store to be in reach", async || store.acquire("fra1", &[monthly(&[])]).await.remove(0).ok()).await;
    assert_eq!(ask(&store, monthly(&[claim(11, 5, 100)])).await.given, 60, "all that is left");
    assert_eq!(ask(&store, monthly(&[claim(12, 0, 100)])).await.given, 0);
}
