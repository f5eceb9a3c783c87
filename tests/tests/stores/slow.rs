//! A Redis that is far away, for which weir-sync allows, and one that is near and answers late: nothing waits longer
//! for it than for one that is in time, and what comes of a connection that was replaced since does not describe the
//! present one.

use std::time::Duration;

use tokio::time::Instant;
use weir_protocol::messages::{Reply, Report};
use weir_store::Store;
use weir_tests::link::Link;
use weir_tests::redis::Redis;
use weir_tests::wait::until;

use crate::server::{Server, report_of};
use crate::{TIMEOUT, assert_hardly_any_waited, charge, count, entry, in_reach, open, slow};

/// Late, and in time.
const LATE: Duration = TIMEOUT.saturating_mul(4).checked_div(5).unwrap();

/// The number of tries of which the quickest time counts: a busy machine delays some.
const TRIES: usize = 3;

/// A Redis, and a link that makes it slow.
async fn behind_a_link() -> (Redis, Link) {
    let redis = Redis::start().await;
    let link = Link::start(redis.address(), Duration::ZERO).await;
    (redis, link)
}

/// The store connects anew, and so measures the way there again.
async fn reconnect(store: &dyn Store, link: &mut Link) {
    link.cut().await;
    charge(store, entry(b"a", slow(), vec![])).await.unwrap_err();
    link.heal().await;
    in_reach(store).await;
}

#[tokio::test]
async fn a_slow_redis_gets_no_more_time() {
    let (_redis, mut link) = behind_a_link().await;
    let store = open(&format!("redis://{}", link.address()));
    in_reach(&store).await;
    link.slow_down(LATE / 2);
    reconnect(&store, &mut link).await;
    until("a late reply in time", async || charge(&store, entry(b"a", slow(), vec![count(1, 1, 1)])).await.ok()).await;
    let mut tries = Vec::new();
    for _ in 0..TRIES {
        link.silence();
        let asked_at = Instant::now();
        charge(&store, entry(b"a", slow(), vec![count(1, 2, 2)])).await.unwrap_err();
        tries.push(asked_at.elapsed());
        reconnect(&store, &mut link).await;
    }
    let quickest = tries.iter().min().unwrap();
    assert!((TIMEOUT..TIMEOUT + LATE / 2).contains(quickest), "{tries:?}");
}

/// The reply, and how long it took.
async fn timed(server: &Server, report: &Report) -> (Reply, Duration) {
    let asked_at = Instant::now();
    (server.report(report).await, asked_at.elapsed())
}

#[tokio::test]
async fn weir_sync_answers_while_redis_is_slow() {
    let (redis, mut link) = behind_a_link().await;
    let server = Server::start("fra", &format!("redis://{}", link.address())).await;
    server.ready().await;
    assert!(server.report(&report_of(1, slow(), 1)).await.settled.is_all());

    link.slow_down(LATE / 2);
    until("a reply late and in time", async || {
        let (reply, took) = timed(&server, &report_of(1, slow(), 2)).await;
        (reply.settled.is_all() && took >= LATE).then_some(())
    })
    .await;

    // Too late for any answer, and yet each comes at last.
    link.slow_down(TIMEOUT * 2);
    let (reply, took) = timed(&server, &report_of(1, slow(), 3)).await;
    assert!(!reply.settled.is_all() && took < 4 * TIMEOUT, "it gave up before the answer: {took:?}");
    let mut others = Vec::new();
    for _ in 0..20 {
        let (reply, took) = timed(&server, &report_of(1, slow(), 4)).await;
        assert!(!reply.settled.is_all());
        others.push(took);
    }
    assert_hardly_any_waited(&others);
    assert_eq!(server.page("/readyz").await.status, 503);

    link.slow_down(Duration::ZERO);
    server.ready().await;
    until("a report to settle", async || server.report(&report_of(1, slow(), 5)).await.settled.is_all().then_some(()))
        .await;
    let store = open(&redis.url());
    in_reach(&store).await;
    let owed_ns = charge(&store, entry(&[0; 4], slow(), vec![])).await.unwrap().deficit_ns;
    assert_eq!(owed_ns.div_ceil(slow().token_ns()), 5, "each token once");
}

/// Time that a charge takes that fails, as Redis does not answer.
async fn gives_up(store: &dyn Store, redis: &Redis) -> Duration {
    redis.freeze().await;
    let asked_at = Instant::now();
    charge(store, entry(b"a", slow(), vec![count(1, 2, 2)])).await.unwrap_err();
    let took = asked_at.elapsed();
    redis.thaw();
    took
}

#[tokio::test]
async fn a_distant_redis_gets_time_for_the_round_trip() {
    let (redis, round_trip) = (Redis::start().await, TIMEOUT * 8 / 5);
    let link = Link::start(redis.address(), round_trip / 2).await;
    let store = open(&format!("redis://{}", link.address()));
    in_reach(&store).await;
    charge(&store, entry(b"a", slow(), vec![count(1, 1, 1)])).await.unwrap();
    // A busy machine delays some.
    let mut tries = Vec::new();
    for _ in 0..3 {
        tries.push(gives_up(&store, &redis).await);
        in_reach(&store).await;
        charge(&store, entry(b"a", slow(), vec![count(1, 1, 1)])).await.unwrap();
    }
    let quickest = tries.iter().min().unwrap();
    assert!((round_trip + TIMEOUT..round_trip * 3 / 2 + TIMEOUT).contains(quickest), "{tries:?}");
}
