//! A Redis whose clock jumps ahead.

use std::time::Duration;

use weir_budget::escrow::{Claim, Draw, Law};
use weir_sync::store::Store;
use weir_tests::redis::{Redis, Setup};
use weir_tests::wait::until;
use weir_wire::quota::Period;

use crate::server::Server;
use crate::{charge, charge_as, connected, count, entry, id, open, quota};

const HOUR_S: u64 = 3_600;

async fn with_own_clock() -> Redis {
    Redis::start_with(Setup { has_own_clock: true, ..Setup::default() }).await
}

#[tokio::test]
async fn a_jump_refills_no_strict_budget() {
    let redis = with_own_clock().await;
    let store = connected(&redis).await;
    let quota = quota(1, Period::Second, 1_000);
    let claims = |epoch, ahead| vec![Claim { epoch, admitted: 0, ahead }];
    let draw = |claims| Draw { id: id(b"a"), quota, lease_us: 2_000_000, law: Law::Steady, claims };
    let all = store.draw("fra1", &[draw(claims(1, 1_000))]).await.remove(0).unwrap();
    assert_eq!(all.given, 1_000);
    redis.set_ahead(HOUR_S);
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let more = store.draw("fra2", &[draw(claims(2, 1_000))]).await.remove(0).unwrap();
        assert!(more.leases[0].charged <= 10, "{:?}", more.leases);
    }
    assert_eq!(store.clock_jumps(), 1);
    // The clock is right again.
    redis.set_ahead(0);
    store.draw("fra2", &[draw(claims(2, 1_000))]).await.remove(0).unwrap();
    redis.set_ahead(HOUR_S);
    store.draw("fra2", &[draw(claims(2, 1_000))]).await.remove(0).unwrap();
    assert_eq!(store.clock_jumps(), 2);
}

/// Nobody's clock but weir-sync's can tell: the counts are a new POP's.
#[tokio::test]
async fn a_jump_pays_no_debt() {
    let redis = with_own_clock().await;
    let store = connected(&redis).await;
    let quota = quota(1, Period::Second, 100);
    charge(&store, entry(b"a", quota, vec![count(1, 500, 500)])).await.unwrap();
    redis.set_ahead(HOUR_S);
    let account = charge_as(&store, "iad", "iad1", entry(b"a", quota, vec![count(1, 1, 1)])).await.unwrap();
    assert!(account.deficit_ns > 490 * quota.token_ns(), "{account:?}");
    // One that is started now cannot know.
    let late = open(&redis.url());
    crate::in_reach(&late).await;
    let account = charge_as(&late, "syd", "syd1", entry(b"a", quota, vec![count(1, 1, 1)])).await.unwrap();
    assert!(account.deficit_ns < 10 * quota.token_ns(), "{account:?}");
}

#[tokio::test]
async fn a_jump_is_on_the_page_of_metrics() {
    let redis = with_own_clock().await;
    let server = Server::start("fra", &redis.url()).await;
    server.ready().await;
    let jumps = async |count: u32| {
        let page = server.page("/metrics").await.text();
        page.contains(&format!(r#"weir_sync_store_clock_jumps_total{{region="fra"}} {count}"#)).then_some(())
    };
    until("the metric", async || jumps(0).await).await;
    let report = || crate::failover::report(1, 1);
    assert!(server.report(&report()).await.settled);
    redis.set_ahead(HOUR_S);
    assert!(server.report(&report()).await.settled);
    until("the jump to be counted", async || jumps(1).await).await;
}
