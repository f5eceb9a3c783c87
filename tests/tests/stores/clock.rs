//! A Redis whose clock jumps ahead.

use std::time::{Duration, Instant};

use weir_budget::escrow::{Claim, Draw, Law};
use weir_budget::store_clock::MARGIN_US;
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

/// Draws all that there is of a budget of 1,000 tokens, one a second, for an epoch of its own.
async fn draw_all(store: &dyn Store, value: &[u8], epoch: u64) -> u64 {
    let claims = vec![Claim { epoch, admitted: 0, ahead: 1_000 }];
    let quota = quota(1, Period::Second, 1_000);
    let draw = Draw { id: id(value), quota, lease_us: 2_000_000, law: Law::Steady, claims };
    store.draw("fra1", &[draw]).await.remove(0).unwrap().given
}

/// The most tokens, one a second, that may have refilled since then, and a margin.
fn most_since(began: Instant) -> u64 {
    began.elapsed().as_secs() + 1 + MARGIN_US / 1_000_000
}

#[tokio::test]
async fn two_weir_syncs_in_turn_get_what_time_gives_though_one_started_after_the_jump() {
    let redis = with_own_clock().await;
    let early = connected(&redis).await;
    let began = Instant::now();
    let values = [b"a", b"b", b"c"];
    for value in values {
        assert_eq!(draw_all(&early, value, 1).await, 1_000);
    }
    redis.set_ahead(HOUR_S);
    let late = open(&redis.url());
    crate::in_reach(&late).await;
    let mut more = [0; 3];
    for epoch in 2..30_u32 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        for (turn, value) in (0_u32..).zip(values) {
            let store = if (epoch + turn).is_multiple_of(2) { &early } else { &late };
            more[turn as usize] += draw_all(store, value, epoch.into()).await;
        }
    }
    assert!(more.iter().all(|more| *more <= most_since(began)), "{more:?}");
    assert_eq!((early.clock_jumps(), late.clock_jumps()), (1, 1), "each warns once");
    // The clock is right again, and jumps once more.
    redis.set_ahead(0);
    let again = draw_all(&early, b"a", 100).await;
    redis.set_ahead(HOUR_S);
    let again = again + draw_all(&early, b"a", 101).await + draw_all(&late, b"a", 102).await;
    assert!(more[0] + again <= most_since(began) + MARGIN_US / 1_000_000, "{more:?}, then {again}");
    assert_eq!(early.clock_jumps(), 2);
}

/// Nobody's clock but weir-sync's can tell: the counts are a new POP's.
#[tokio::test]
async fn a_jump_pays_no_debt() {
    let redis = with_own_clock().await;
    let store = connected(&redis).await;
    let quota = quota(1, Period::Second, 100);
    for value in [b"a", b"b"] {
        charge(&store, entry(value, quota, vec![count(1, 500, 500)])).await.unwrap();
    }
    redis.set_ahead(HOUR_S);
    let late = open(&redis.url());
    crate::in_reach(&late).await;
    for (store, value) in [(&store, b"a"), (&late, b"a"), (&late, b"b"), (&store, b"b")] {
        let member = if std::ptr::eq(store, &raw const late) { "syd" } else { "iad" };
        let of = entry(value, quota, vec![count(1, 1, 1)]);
        let account = charge_as(store, member, &format!("{member}1"), of).await.unwrap();
        assert!(account.deficit_ns > 490 * quota.token_ns(), "{account:?}");
    }
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
    server.report(&report()).await;
    redis.set_ahead(HOUR_S);
    server.report(&report()).await;
    until("the jump to be counted", async || jumps(1).await).await;
}
