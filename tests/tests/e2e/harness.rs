//! The harness itself, without the filter: when these fail, no other result means anything.

use std::time::Duration;

use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{open_loop, repeat};
use weir_tests::server::Server;
use weir_tests::wait::until;

#[tokio::test]
async fn an_edge_without_the_filter_lets_everything_through() {
    let upstream = Server::upstream().await;
    let edge = Envoy::start(Setup::plain().upstream(upstream.address()).access_log("%REQ(X-TEST)%")).await;
    let tally = repeat(&mut edge.client(), &Ask::get("/").header("x-test", "yes"), 20).await;
    assert_eq!((tally.admitted(), tally.total(), upstream.count()), (20, 20, 20));
    assert_eq!(edge.access_log(20).await, vec!["yes"; 20]);
}

#[tokio::test]
async fn connections_spread_over_the_workers() {
    let edge = Envoy::start(Setup::plain().concurrency(2)).await;
    let mut clients = edge.clients(6);
    for client in &mut clients {
        assert_eq!(client.send(&Ask::get("/")).await.text(), "through\n");
    }
    let workers = until("connections on both workers", async || {
        let workers = edge.connections_per_worker().await;
        (workers.iter().sum::<u64>() == 6).then_some(workers)
    });
    assert_eq!(workers.await, [3, 3]);
}

#[tokio::test]
async fn an_open_loop_keeps_its_rate() {
    let edge = Envoy::start(Setup::plain()).await;
    let run = open_loop(&mut edge.client(), &Ask::get("/"), 100, Duration::from_secs(1)).await;
    let rate = run.admitted_per_second();
    assert!((95.0..=105.0).contains(&rate), "100 a second were to be sent: {run:?}");
}
