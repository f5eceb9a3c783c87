//! Takes: all or nothing, spent at once, however many ask at the same moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use redis::AsyncCommands;
use tokio::task::JoinSet;
use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim};
use weir_protocol::messages::Leased;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;
use weir_store::Store;
use weir_store::redis::escrow_key;
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::refusing::Log;
use crate::strict::{LONG_US, acquire, ask, claim};
use crate::{POP_TTL, connected, connected_with, id, memory_with, quota, slow};

for_every_store!(
    a_consume_takes_all_or_nothing,
    a_consume_respects_leases,
    consumes_are_in_order_while_a_lease_delays_the_refill,
    many_keys_are_consumed_at_once,
    consumed_tokens_are_not_refunded,
);

fn taking(value: &[u8], quota: Quota, tokens: u32) -> AcquireRequest {
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

#[tokio::test]
async fn an_invalid_record_grants_nothing_and_blocks_nobody() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let key = |value: &[u8]| escrow_key(RefillPolicy::Continuous, &id(value));
    let () = connection.set(key(b"text"), "something else").await.unwrap();
    let () = connection.hset(key(b"part"), "deficit_us", 0).await.unwrap();
    let acquires = [b"text".as_slice(), b"part", b"good"].map(|value| taking(value, slow(), 1));
    let given: Vec<_> =
        store.acquire("gateway/fra/a", &acquires).await.into_iter().map(|acquired| acquired.unwrap().given).collect();
    assert_eq!(given, [0, 0, 1], "what was given is unknown: it may have been everything");
}

#[tokio::test]
async fn an_abandoned_consume_is_not_sent() {
    let (log, _guard) = Log::start();
    let redis = Redis::start().await;
    let store = connected(&redis).await;
    let acquires = [taking(b"a", slow(), 1)];
    // It is given up when it has been asked for, before it is sent.
    assert!(store.acquire("gateway/fra/a", &acquires).now_or_never().is_none());
    // The error is returned before the next probe.
    let probes = async || redis.info::<u32>("commandstats", "cmdstat_evalsha:calls=").await;
    let before = probes().await;
    until("two probes", async || (probes().await >= before + 2).then_some(())).await;
    assert_eq!(log.lines("", "refused"), Vec::<String>::new());
    assert_eq!(take(&store, b"a", 100).await.given, 100, "nothing was taken");
}

/// Two gateways, each with many requests at a time, for longer than the budget takes to refill.
#[tokio::test]
async fn two_greedy_gateways_share_the_quota() {
    let redis = Redis::start().await;
    let stores = [Arc::new(connected(&redis).await), Arc::new(connected(&redis).await)];
    let quota = quota(200, Period::Second, 100);
    let (began, mut takers) = (Instant::now(), JoinSet::new());
    for n in 0..40 {
        let store = Arc::clone(&stores[n % 2]);
        takers.spawn(async move {
            let mut given = 0;
            while began.elapsed() < Duration::from_secs(2) {
                let acquired = ask(&*store, "gateway/fra/a", taking(b"a", quota, 1)).await.unwrap();
                given += acquired.given;
                if acquired.given == 0 {
                    tokio::time::sleep(Duration::from_millis(acquired.leases[0].wait_ms)).await;
                }
            }
            given
        });
    }
    let given: u64 = takers.join_all().await.into_iter().sum();
    let most = 100 + u64::try_from(began.elapsed().as_millis()).unwrap() / 5 + 1;
    assert!(given <= most, "{given} of {most}");
    assert!(given * 100 >= 95 * 500, "{given} of 500 in two seconds");
}
