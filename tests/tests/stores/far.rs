//! A Redis that is far away: weir-sync with its defaults reaches it, and allows for the way there and back.

use std::time::Duration;

use tokio::time::Instant;
use weir_store::Store;
use weir_tests::link::Link;
use weir_tests::redis::Redis;

use crate::server::Server;
use crate::{TIMEOUT, charge, count, entry, in_reach, open, slow};

/// Two regions whose Redis is so far away share one fleet, report after report.
async fn regions_meet_over(round_trip: Duration) {
    let redis = Redis::start().await;
    let link = Link::start(redis.address(), round_trip / 2).await;
    let url = format!("redis://{}", link.address());
    let (fra, iad) = (Server::start("fra", &url).await, Server::start("iad", &url).await);
    for server in [&fra, &iad] {
        server.ready().await;
    }
    fra.greet("fra1").await;
    for _ in 0..5 {
        for (server, pop) in [(&iad, "iad1"), (&fra, "fra1")] {
            let reply = server.greet(pop).await;
            assert_eq!((reply.settled.is_all(), reply.pops), (true, 2), "at {round_trip:?}");
        }
    }
}

#[tokio::test]
async fn two_regions_share_a_fleet_far_from_their_store() {
    for ms in [200, 800] {
        regions_meet_over(Duration::from_millis(ms)).await;
    }
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
