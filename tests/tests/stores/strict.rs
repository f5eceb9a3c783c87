//! Strict budgets: what every store does, and what only a store outside this process can do.

use redis::AsyncCommands;
use weir_budget::budget::BudgetId;
use weir_budget::escrow::{AcquireRequest, AcquireResult, Claim, ENDED_KEPT_US, HOLDERS_MAX, NO_LEASE};
use weir_protocol::messages::Leased;
use weir_protocol::quota::{Period, Quota};
use weir_protocol::refill_policy::RefillPolicy;
use weir_store::{Store, StoreError};
use weir_tests::redis::{Redis, escrow_key};
use weir_tests::wait::until;

use crate::taking::taking;
use crate::{POP_TTL, all, charge, connected, connected_with, count, entry, id, memory_with, quota, slow};

/// Longer than any test: a lease that does not end.
pub(crate) const LONG_US: u64 = 10_000_000;

for_every_store!(
    an_acquire_gets_at_most_the_level,
    a_repeated_acquire_is_granted_once,
    an_unknown_epoch_is_refused,
    a_budget_refills_from_the_end_of_a_lease,
    unused_tokens_are_refunded,
    acquires_and_claims_are_answered_in_order,
    the_epochs_of_a_budget_are_bounded,
    strict_budgets_are_separate_from_counted_ones,
    any_strict_budget_name_is_accepted,
    a_strict_budget_is_forgotten_by_its_policy,
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

/// Claims once for "fra1", of a budget that does not refill, on a lease that does not end.
async fn claims(store: &dyn Store, claims: &[Claim]) -> AcquireResult {
    ask(store, "fra1", acquire(b"a", slow(), LONG_US, claims.to_vec())).await.unwrap()
}

async fn an_acquire_gets_at_most_the_level(store: &dyn Store) {
    let first = claims(store, &[claim(1, 0, 10)]).await;
    assert_eq!(first.leases, [Leased { left: 90, ..Leased::of(10, 10_000) }]);
    assert_eq!((first.given, first.outstanding, first.deficit_ns), (10, 10, 10 * slow().token_ns()));
    let second = claims(store, &[claim(1, 8, 10)]).await;
    assert_eq!((second.leases[0].charged, second.given, second.outstanding), (18, 8, 10));
    let third = claims(store, &[claim(2, 0, 1_000)]).await;
    assert_eq!((third.leases[0].charged, third.outstanding), (82, 92), "all that is left of 100");
    let none = claims(store, &[claim(3, 0, 1)]).await;
    let [empty] = none.leases[..] else { panic!("{none:?}") };
    assert_eq!((empty.charged, empty.lease_ms, empty.left), (0, 10_000, 0), "and not refused");
    let token_ms = slow().token_ns() / 1_000_000;
    assert!((token_ms / 2..=token_ms).contains(&empty.wait_ms) && empty.may_return, "{empty:?}");
}

async fn a_repeated_acquire_is_granted_once(store: &dyn Store) {
    let mut given = 0;
    // Sent: 0 + 5, 5 + 5, 8 + 5. Arrives: 0 + 5, 5 + 5 twice, 0 + 5 again, 8 + 5.
    for (admitted, charged) in [(0, 5), (5, 10), (5, 10), (0, 10), (8, 13)] {
        let acquired = claims(store, &[claim(1, admitted, 5)]).await;
        given += acquired.given;
        assert_eq!(acquired.leases[0].charged, charged);
    }
    assert_eq!(given, 13);
}

async fn an_unknown_epoch_is_refused(store: &dyn Store) {
    let acquired = claims(store, &[claim(1, 5, 5)]).await;
    assert_eq!((acquired.leases.as_slice(), acquired.deficit_ns), ([NO_LEASE].as_slice(), 0));
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

async fn a_budget_refills_from_the_end_of_a_lease(store: &dyn Store) {
    // The whole burst for 200 ms; a token a millisecond.
    let (quota, lease_us) = (quota(1_000, Period::Second, 1_000), 200_000);
    let held_us = acquire(b"a", quota, lease_us, vec![]).held_us();
    let leased = ask(store, "fra1", acquire(b"a", quota, lease_us, vec![claim(1, 0, 1_000)])).await.unwrap();
    assert_eq!((leased.given, leased.outstanding), (1_000, 1_000));
    let ended = until("the lease to end", async || {
        let acquired = ask(store, "fra2", acquire(b"a", quota, lease_us, vec![])).await.unwrap();
        let ends_us = leased.now_us + held_us;
        assert_eq!(acquired.outstanding == 0, acquired.now_us >= ends_us);
        let refilled_ns = acquired.now_us.saturating_sub(ends_us) * 1_000;
        assert_eq!(acquired.deficit_ns, quota.fill_ns().saturating_sub(refilled_ns));
        (refilled_ns > 0).then_some(acquired)
    })
    .await;
    assert!(ended.now_us > leased.now_us);
    let late = ask(store, "fra1", acquire(b"a", quota, lease_us, vec![claim(1, 900, 50)])).await.unwrap();
    assert_eq!(late.leases, [NO_LEASE], "the epoch is over");
}

async fn unused_tokens_are_refunded(store: &dyn Store) {
    claims(store, &[claim(1, 0, 80)]).await;
    for _ in 0..2 {
        let back = claims(store, &[claim(1, 30, 0)]).await;
        assert_eq!((back.leases.as_slice(), back.outstanding), ([NO_LEASE].as_slice(), 0));
        assert!(back.deficit_ns > 29 * slow().token_ns() && back.deficit_ns <= 30 * slow().token_ns());
    }
    assert_eq!(claims(store, &[claim(1, 10, 50)]).await.leases, [NO_LEASE], "an old report");
    assert_eq!(claims(store, &[claim(2, 0, 100)]).await.given, 70);
}

async fn acquires_and_claims_are_answered_in_order(store: &dyn Store) {
    let acquires: Vec<AcquireRequest> = (1..=50_u32)
        .map(|n| acquire(&n.to_be_bytes(), slow(), LONG_US, vec![claim(1, 0, n), claim(2, 0, 1), claim(1, 0, n + 1)]))
        .collect();
    let answers = all(store.acquire("fra1", &acquires).await);
    for (n, acquired) in (1_u64..).zip(&answers) {
        let charged: Vec<u64> = acquired.leases.iter().map(|lease| lease.charged).collect();
        assert_eq!((charged, acquired.given), (vec![n, 1, n + 1], n + 2));
    }
    assert_eq!(answers.len(), 50);
    assert!(store.acquire("fra1", &[]).await.is_empty());
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
