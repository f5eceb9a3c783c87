//! A bucket refills at its rate, measured.

use std::time::Duration;

use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{drain, open_loop};

use crate::plugin::one;

#[tokio::test]
async fn refills_at_the_rate() {
    let edge = Envoy::start(Setup::with(one("per-address", "50/s", 100))).await;
    let (mut client, ask) = (edge.client(), Ask::from("203.0.113.7"));
    drain(&mut client, &ask, 1_000).await;
    // Asked for four times as much as there is; a stall of up to two seconds loses no token.
    let run = open_loop(&mut client, &ask, 200, Duration::from_secs(4)).await;
    run.assert_only_decisions();
    let rate = run.admitted_per_second();
    assert!((49.0..=51.0).contains(&rate), "50 a second, to within 2 %: {rate:.2} in {run:?}");
}

#[tokio::test]
async fn an_idle_bucket_fills_to_its_burst_and_no_further() {
    let edge = Envoy::start(Setup::with(one("per-address", "100/s", 10))).await;
    let (mut client, ask) = (edge.client(), Ask::from("203.0.113.7"));
    drain(&mut client, &ask, 1_000).await;
    // Ten times what it needs to fill.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let start = std::time::Instant::now();
    let (_, admitted) = drain(&mut client, &ask, 1_000).await;
    // While it was being emptied, it refilled by one token every 10 ms.
    let refilled = start.elapsed().as_millis() / 10 + 1;
    let most = 10 + usize::try_from(refilled).unwrap_or(usize::MAX);
    assert!((10..=most).contains(&admitted), "{admitted} admitted, at most {most} could be");
}
