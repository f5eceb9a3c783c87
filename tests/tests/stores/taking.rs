//! Takes: all or nothing, spent at once, however many ask at the same moment.

use std::time::Duration;

use redis::AsyncCommands;
use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim};
use weir_protocol::messages::Leased;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;
use weir_store::Store;
use weir_tests::redis::{Redis, escrow_key};

use crate::strict::{LONG_US, acquire, ask, claim};
use crate::{POP_TTL, connected, connected_with, id, memory_with, quota, slow};

for_every_store!(
    a_consume_takes_all_or_nothing,
    a_consume_respects_leases,
    consumes_are_in_order_while_a_lease_delays_the_refill,
    many_keys_are_consumed_at_once,
    consumed_tokens_are_not_refunded,
);

pub(crate) fn taking(value: &[u8], quota: Quota, tokens: u32) -> AcquireRequest {
    acquire(value, quota, 0, vec![Claim::take(tokens)])
}

pub(crate) async fn take(store: &dyn Store, value: &[u8], tokens: u32) -> AcquireResult {
    ask(store, "gateway/fra/a", taking(value, slow(), tokens)).await.unwrap()
}

async fn a_consume_takes_all_or_nothing(store: &dyn Store) {
    let first = take(store, b"a", 70).await;
    assert_eq!((first.leases, first.given, first.outstanding), (vec![Leased { left: 30, ..Leased::of(70, 0) }], 70, 0));
    assert_eq!(first.deficit_ns, 70 * slow().token_ns());
    let second = take(store, b"a", 31).await;
    assert_eq!((second.leases[0].charged, second.given), (0, 0));
    // A token is worth a day.
    assert!((86_000_000..=86_400_000).contains(&second.leases[0].wait_ms), "{second:?}");
    assert_eq!(take(store, b"a", 30).await.given, 30);
    assert_eq!(take(store, b"b", 101).await.given, 0, "more than there ever is");
    assert_eq!(take(store, b"b", 100).await.given, 100, "which has cost nothing");
}

async fn a_consume_respects_leases(store: &dyn Store) {
    assert_eq!(take(store, b"a", 10).await.given, 10);
    let leased = ask(store, "fra1", acquire(b"a", slow(), LONG_US, vec![claim(1, 0, 60)])).await.unwrap();
    assert_eq!((leased.leases[0].charged, leased.outstanding), (60, 60));
    let short = take(store, b"a", 31).await;
    assert_eq!((short.given, short.outstanding), (0, 60));
    let [Leased { charged: 0, wait_ms: 86_000_000..=86_400_000, left: 30, .. }] = short.leases[..] else {
        panic!("whatever may be given back: {short:?}")
    };
    let taken = take(store, b"a", 30).await;
    assert_eq!((taken.given, taken.outstanding), (30, 60));
    ask(store, "fra1", acquire(b"a", slow(), LONG_US, vec![claim(1, 5, 0)])).await.unwrap();
    assert_eq!((take(store, b"a", 56).await.given, take(store, b"a", 55).await.given), (0, 55));
}

/// The consumed tokens have refilled; only the lease keeps the budget from being full.
async fn consumes_are_in_order_while_a_lease_delays_the_refill(store: &dyn Store) {
    let quick = quota(1_000_000, Period::Second, 100);
    ask(store, "fra1", acquire(b"a", quick, LONG_US, vec![claim(1, 0, 60)])).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2)).await;
    let [short, taken] = [41, 40].map(|tokens| taking(b"a", quick, tokens));
    let given: Vec<_> = store.acquire("gateway/fra/a", &[short, taken]).await;
    let [short, taken] = given.try_into().expect("two answers");
    let (short, taken) = (short.unwrap(), taken.unwrap());
    assert_eq!((short.given, short.leases[0].left, taken.given), (0, 40, 40), "{short:?}, {taken:?}");
    assert!(short.now_us <= taken.now_us, "{short:?}, {taken:?}");
}

async fn many_keys_are_consumed_at_once(store: &dyn Store) {
    let acquires: Vec<AcquireRequest> =
        (0..400_u32).map(|n| taking(&(n % 100).to_be_bytes(), slow(), 30 + n / 100)).collect();
    let given = store.acquire("gateway/fra/a", &acquires).await;
    for (acquire, acquired) in acquires.iter().zip(given) {
        let given = acquired.unwrap();
        // Of 30, 31, 32 and 33 the first three are there.
        let expected = if acquire.claims[0].ahead == 33 { 0 } else { acquire.claims[0].ahead };
        assert_eq!(given.given, u64::from(expected), "{acquire:?}");
    }
}

async fn consumed_tokens_are_not_refunded(store: &dyn Store) {
    take(store, b"a", 100).await;
    ask(store, "gateway/fra/a", acquire(b"a", slow(), LONG_US, vec![claim(0, 0, 0)])).await.unwrap();
    assert_eq!(take(store, b"a", 1).await.given, 0);
}

#[tokio::test]
async fn a_consumed_budget_is_one_key_that_expires_when_full() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let (key, quota) = (escrow_key(RefillPolicy::Continuous, &id(b"a")), quota(1, Period::Minute, 100));
    let mut kept_ms = 0;
    for n in 1..=3_u64 {
        ask(&store, "gateway/fra/a", taking(b"a", quota, 10)).await.unwrap();
        let ttl_ms: u64 = connection.pttl(&key).await.unwrap();
        assert!(ttl_ms > n * 600_000 && ttl_ms <= n * 4 * 600_000 + 10_001, "{ttl_ms} ms");
        assert!(ttl_ms > kept_ms);
        kept_ms = ttl_ms;
    }
    let fields: u64 = connection.hlen(&key).await.unwrap();
    assert_eq!(fields, 7, "no epoch is on record");
    let () = connection.del(&key).await.unwrap();
    ask(&store, "gateway/fra/a", taking(b"a", quota, 101)).await.unwrap();
    assert!(!connection.exists::<_, bool>(&key).await.unwrap(), "nothing was taken");
}
