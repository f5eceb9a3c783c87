//! Strict budgets: what every store does, and what only a store outside this process can do.

use redis::AsyncCommands;
use weir_budget::budget::BudgetId;
use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, ENDED_KEPT_US, HOLDERS_MAX, NO_LEASE};
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;
use weir_store::{Store, StoreError};
use weir_tests::redis::{Redis, escrow_key};
use weir_tests::wait::until;

use crate::{POP_TTL, all, charge, connected, connected_with, count, entry, id, memory_with, quota, slow};

/// Longer than any test: a lease that does not end.
pub(crate) const LONG_US: u64 = 10_000_000;

for_every_store!(
    the_epochs_of_a_budget_are_bounded,
    strict_budgets_are_separate_from_counted_ones,
    any_strict_budget_name_is_accepted,
    a_strict_budget_is_forgotten_by_its_policy,
    many_keys_are_consumed_at_once,
);

pub(crate) fn claim(epoch: u64, admitted: u64, ahead: u32) -> Claim {
    Claim::of(epoch, admitted, ahead)
}

pub(crate) fn acquire(value: &[u8], quota: Quota, lease_us: u64, claims: Vec<Claim>) -> AcquireRequest {
    AcquireRequest { id: id(value), quota, lease_us, refill_policy: RefillPolicy::Continuous, window: None, claims }
}

pub(crate) async fn ask(store: &dyn Store, pop: &str, acquire: AcquireRequest) -> Result<AcquireResult, StoreError> {
    let mut acquired = store.acquire(pop, &[acquire]).await;
    assert_eq!(acquired.len(), 1);
    acquired.remove(0)
}

fn taking(value: &[u8], quota: Quota, tokens: u32) -> AcquireRequest {
    acquire(value, quota, 0, vec![Claim::take(tokens)])
}

pub(crate) async fn take(store: &dyn Store, value: &[u8], tokens: u32) -> AcquireResult {
    ask(store, "gateway/fra/a", taking(value, slow(), tokens)).await.unwrap()
}

/// Claims once for "fra1", of a budget that does not refill, on a lease that does not end.
async fn claims(store: &dyn Store, claims: &[Claim]) -> AcquireResult {
    ask(store, "fra1", acquire(b"a", slow(), LONG_US, claims.to_vec())).await.unwrap()
}

async fn a_strict_budget_is_forgotten_by_its_policy(store: &dyn Store) {
    let hourly = RefillPolicy::Log(3_600);
    let by = |refill_policy| AcquireRequest { refill_policy, ..acquire(b"a", slow(), LONG_US, vec![claim(1, 0, 100)]) };
    for refill_policy in [RefillPolicy::Continuous, hourly] {
        assert_eq!(ask(store, "fra1", by(refill_policy)).await.unwrap().given, 100);
    }
    store.forget(&id(b"a"), &[hourly]).await.unwrap();
    let again = |refill_policy| AcquireRequest { claims: vec![claim(2, 0, 100)], ..by(refill_policy) };
    assert_eq!(ask(store, "fra1", again(RefillPolicy::Continuous)).await.unwrap().given, 0, "of another law");
    let anew = ask(store, "fra1", again(hourly)).await.unwrap();
    assert_eq!((anew.given, anew.outstanding), (100, 100), "and nothing is leased of it");
    let late = AcquireRequest { claims: vec![claim(1, 40, 10)], ..by(hourly) };
    assert_eq!(ask(store, "fra1", late).await.unwrap().leases, [NO_LEASE], "an epoch of before is over");
}

// I2
async fn the_epochs_of_a_budget_are_bounded(store: &dyn Store) {
    let quota = quota(1, Period::Minute, 10_000);
    let all: Vec<u64> = (0..HOLDERS_MAX as u64).collect();
    for epochs in all.chunks(500) {
        let claims = epochs.iter().map(|epoch| claim(*epoch, 0, 1)).collect();
        let acquired = ask(store, "fra1", acquire(b"a", quota, LONG_US, claims)).await.unwrap();
        assert_eq!(acquired.given, epochs.len() as u64);
    }
    let more = |claims| ask(store, "fra1", acquire(b"a", quota, LONG_US, claims));
    assert_eq!(more(vec![claim(u64::MAX, 0, 1)]).await.unwrap().leases, [NO_LEASE]);
    assert_eq!(more(vec![claim(7, 1, 1)]).await.unwrap().given, 1, "one on record is served");
    let turn = more(vec![claim(7, 1, 0), claim(u64::MAX, 0, 1), claim(u64::MAX - 1, 0, 1)]).await.unwrap();
    assert_eq!((turn.given, turn.leases[2]), (1, NO_LEASE), "one that has ended makes room for one");
}

async fn strict_budgets_are_separate_from_counted_ones(store: &dyn Store) {
    claims(store, &[claim(1, 0, 100)]).await;
    assert_eq!(charge(store, entry(b"a", slow(), vec![count(1, 3, 3)])).await.unwrap().charged, 3);
    assert_eq!(claims(store, &[claim(1, 0, 100)]).await.outstanding, 100);
}

async fn any_strict_budget_name_is_accepted(store: &dyn Store) {
    let odd = "a=1,2,3;b:}{\r\n\0 \u{e9}";
    for charged in [5, 6] {
        let ahead = u32::try_from(charged).unwrap();
        let mut acquire = acquire(&[0, 255, b'}', b':'], slow(), LONG_US, vec![claim(u64::MAX, 0, ahead)]);
        acquire.id = BudgetId::new(odd.into(), acquire.id.value.clone());
        assert_eq!(ask(store, odd, acquire).await.unwrap().leases[0].charged, charged);
    }
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

// I2
#[tokio::test]
async fn a_strict_budget_is_one_expiring_key() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let quota = quota(1, Period::Second, 100);
    let five = acquire(&[10, 0xff], quota, LONG_US, vec![claim(1, 0, 5)]);
    let held_ms = five.held_us().div_ceil(1_000);
    ask(&store, "fra1", five).await.unwrap();
    assert_eq!(escrow_key(RefillPolicy::Continuous, &id(&[10, 0xff])), "weir:strict:{per-address:0aff}");
    let ttl_ms: u64 = connection.pttl("weir:strict:{per-address:0aff}").await.unwrap();
    // Four times the time until it is full: Redis drops keys by a clock that may jump ahead.
    let expected_ms = held_ms + 4 * 5_000 + ENDED_KEPT_US / 1_000;
    assert!(ttl_ms <= expected_ms && ttl_ms > expected_ms - 5_000, "{ttl_ms} of {expected_ms}");
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

/// Nobody knows what was given of it: so it is empty, where one never seen is full.
#[tokio::test]
async fn a_foreign_value_is_an_empty_strict_budget() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    let key = |value: &[u8]| escrow_key(RefillPolicy::Continuous, &id(value));
    for (text, part) in [(b"a", b"b"), (b"c", b"d")] {
        let () = connection.set(key(text), "no hash").await.unwrap();
        let () = connection.hset(key(part), "deficit_us", "no number").await.unwrap();
    }
    let takes = [b"c", b"d", b"e"].map(|value| taking(value, slow(), 1));
    let answers = all(store.acquire("gateway/fra/a", &takes).await);
    assert_eq!(answers.iter().map(|taken| taken.given).collect::<Vec<_>>(), [0, 0, 1], "taken at once");
    for value in [b"a", b"b"] {
        let quota = quota(1_000, Period::Second, 10);
        let first = ask(&store, "fra1", acquire(value, quota, LONG_US, vec![claim(1, 0, 1)])).await.unwrap();
        assert_eq!((first.given, first.deficit_ns), (0, quota.fill_ns()));
        until("a token", async || {
            let acquired = ask(&store, "fra1", acquire(value, quota, LONG_US, vec![claim(1, 0, 1)])).await.unwrap();
            (acquired.given == 1).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_flush_ends_epochs_that_have_spent() {
    let redis = Redis::start().await;
    let (store, mut connection) = (connected(&redis).await, redis.connection().await);
    claims(&store, &[claim(1, 0, 10)]).await;
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    assert_eq!(claims(&store, &[claim(1, 5, 10)]).await.leases, [NO_LEASE]);
    assert_eq!(claims(&store, &[claim(2, 0, 10)]).await.given, 10);
}
