//! A Redis whose clock jumps ahead.
//!
//! Tests of I8.

use std::time::{Duration, Instant};

use weir_budget::escrow::Claim;
use weir_budget::store_clock::MARGIN_US;
use weir_protocol::quota::Period;
use weir_store::{ChargeBatch, Store};
use weir_tests::redis::{Redis, Setup};
use weir_tests::wait::until;

use crate::server::{Server, report_of};
use crate::{charge, charge_as, connected, count, entry, in_reach, open, quota, slow, strict};

const HOUR_S: u64 = 3_600;

async fn with_own_clock() -> Redis {
    Redis::start_with(Setup { has_own_clock: true, ..Setup::default() }).await
}

/// Acquires all that there is of a budget of 1,000 tokens, one a second, for an epoch of its own.
async fn acquire_all(store: &dyn Store, value: &[u8], epoch: u64) -> u64 {
    let claims = vec![Claim::of(epoch, 0, 1_000)];
    let acquire = strict::acquire(value, quota(1, Period::Second, 1_000), 2_000_000, claims);
    strict::ask(store, "fra1", acquire).await.unwrap().given
}

/// The most tokens, one a second, that may have refilled since then, and a margin.
fn most_since(began: Instant) -> u64 {
    began.elapsed().as_secs() + 1 + MARGIN_US / 1_000_000
}

#[tokio::test]
async fn weir_syncs_get_the_true_refill_across_a_jump() {
    let redis = with_own_clock().await;
    let early = connected(&redis).await;
    let began = Instant::now();
    let values = [b"a", b"b", b"c"];
    for value in values {
        assert_eq!(acquire_all(&early, value, 1).await, 1_000);
    }
    redis.set_ahead(HOUR_S);
    let late = open(&redis.url());
    in_reach(&late).await;
    let mut more = [0; 3];
    for epoch in 2..30_u32 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        for (turn, value) in (0_u32..).zip(values) {
            let store = if (epoch + turn).is_multiple_of(2) { &early } else { &late };
            more[turn as usize] += acquire_all(store, value, epoch.into()).await;
        }
    }
    assert!(more.iter().all(|more| *more <= most_since(began)), "{more:?}");
    assert_eq!((early.clock_jumps(), late.clock_jumps()), (1, 1), "each warns once");
    // The clock is right again, and jumps once more.
    redis.set_ahead(0);
    let again = acquire_all(&early, b"a", 100).await;
    redis.set_ahead(HOUR_S);
    let again = again + acquire_all(&early, b"a", 101).await + acquire_all(&late, b"a", 102).await;
    assert!(more[0] + again <= most_since(began) + MARGIN_US / 1_000_000, "{more:?}, then {again}");
    assert_eq!(early.clock_jumps(), 2);
}

/// Only weir-sync's clock can show it: the counts are a new POP's.
#[tokio::test]
async fn a_clock_jump_pays_no_debt() {
    let redis = with_own_clock().await;
    let store = connected(&redis).await;
    let quota = quota(1, Period::Second, 100);
    for value in [b"a", b"b"] {
        charge(&store, entry(value, quota, vec![count(1, 500, 500)])).await.unwrap();
    }
    redis.set_ahead(HOUR_S);
    let late = open(&redis.url());
    in_reach(&late).await;
    for (store, value) in [(&store, b"a"), (&late, b"a"), (&late, b"b"), (&store, b"b")] {
        let region = if std::ptr::eq(store, &raw const late) { "syd" } else { "iad" };
        let of = entry(value, quota, vec![count(1, 1, 1)]);
        let account = charge_as(store, region, &format!("{region}1"), of).await.unwrap();
        assert!(account.deficit_ns > 490 * quota.token_ns(), "{account:?}");
    }
}

/// The number of calls that it refused, as its clock was later than their latest time.
async fn refused(redis: &Redis) -> u32 {
    if redis.section("errorstats").await.contains("errorstat_LATE") {
        return redis.info("errorstats", "errorstat_LATE:count=").await;
    }
    0
}

#[tokio::test]
async fn only_a_call_that_finds_a_jump_is_repeated() {
    let redis = with_own_clock().await;
    let store = connected(&redis).await;
    let quota = quota(1, Period::Second, 100);
    let charge_all = async |admitted| {
        let entries: Vec<_> = (0..20).map(|key| entry(&[key], quota, vec![count(1, admitted, admitted)])).collect();
        let accounts = store.charge(&ChargeBatch { replica: "fra", pop: "fra1", entries: &entries }).await;
        accounts.into_iter().map(|account| account.unwrap().charged).sum::<u64>()
    };
    assert_eq!(charge_all(200).await, 4_000);
    assert_eq!(refused(&redis).await, 0);
    redis.set_ahead(HOUR_S);
    assert_eq!(charge_all(205).await, 100, "each once");
    // A call charges up to sixteen budgets.
    assert_eq!(refused(&redis).await, 2, "each call once");
    assert_eq!(charge_all(210).await, 100);
    assert_eq!((refused(&redis).await, store.clock_jumps()), (2, 1));
}

/// Calls to a Redis that hangs are carried out when it goes on.
// I8
#[tokio::test]
async fn a_budget_refills_while_redis_hangs() {
    let redis = with_own_clock().await;
    let store = connected(&redis).await;
    let quota = quota(10, Period::Second, 1_000);
    let look = async |pop| charge_as(&store, "fra", pop, entry(b"a", quota, vec![])).await;
    charge(&store, entry(b"a", quota, vec![count(1, 900, 900)])).await.unwrap();
    let (before, began) = (look("fra1").await.unwrap().deficit_ns, Instant::now());
    redis.freeze().await;
    look("fra1").await.unwrap_err();
    tokio::time::sleep_until((began + 3 * Duration::from_micros(MARGIN_US)).into()).await;
    redis.thaw();
    in_reach(&store).await;
    until("it to have been refused", async || (refused(&redis).await == 1).then_some(())).await;
    let after = look("fra1").await.unwrap().deficit_ns;
    let refilled = Duration::from_nanos(before - after);
    assert!(refilled >= 3 * Duration::from_micros(MARGIN_US), "{refilled:?}");
    assert_eq!((refused(&redis).await, store.clock_jumps()), (1, 0));
}

#[tokio::test]
async fn metrics_show_a_clock_jump() {
    let redis = with_own_clock().await;
    let server = Server::start("fra", &redis.url()).await;
    server.ready().await;
    let jumps = async |count: u32| {
        let page = server.page("/metrics").await.text();
        page.contains(&format!(r#"weir_sync_store_clock_jumps_total{{region="fra"}} {count}"#)).then_some(())
    };
    until("the metric", async || jumps(0).await).await;
    let report = || report_of(1, slow(), 1);
    server.report(&report()).await;
    redis.set_ahead(HOUR_S);
    server.report(&report()).await;
    until("the jump to be counted", async || jumps(1).await).await;
}
