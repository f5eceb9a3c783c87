//! A Redis that is far away: weir-sync with its defaults reaches it, and allows for the way there and back.

use std::time::Duration;

use weir_tests::link::Link;
use weir_tests::redis::Redis;

use crate::server::Server;

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
            assert_eq!((reply.settled, reply.pops), (true, 2), "at {round_trip:?}");
        }
    }
}

#[tokio::test]
async fn two_regions_share_a_fleet_200_ms_from_their_store() {
    regions_meet_over(Duration::from_millis(200)).await;
}

#[tokio::test]
async fn two_regions_share_a_fleet_400_ms_from_their_store() {
    regions_meet_over(Duration::from_millis(400)).await;
}

#[tokio::test]
async fn two_regions_share_a_fleet_800_ms_from_their_store() {
    regions_meet_over(Duration::from_millis(800)).await;
}
