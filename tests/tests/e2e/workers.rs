//! The workers of one Envoy share their buckets.

use std::time::Duration;

use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::load::together;

use crate::plugin::one;

const CLIENTS: usize = 8;

// I3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_share_one_bucket() {
    for host in Host::BOTH {
        let edge = Envoy::start(Setup::with(one("per-address", "100/d", 20_000)).host(host).concurrency(2)).await;
        let tally = together(edge.clients(CLIENTS), |_| vec![Ask::from("203.0.113.7"); 3_000]).await;
        assert_eq!((tally.admitted(), tally.limited()), (20_000, 4_000), "{host:?}: {tally:?}");
        // What each worker decided adds up in the metrics too.
        let names = ["weir.rule.per-address.allowed", "weir.rule.per-address.limited"];
        assert_eq!(edge.counters_of(names, 24_000).await, [20_000, 4_000], "{host:?}");
        let workers = edge.connections_per_worker().await;
        assert!(workers.iter().all(|served| *served >= 4), "both workers served: {host:?}, {workers:?}");
    }
}

/// A burst of exactly the quota's, each time the bucket is full again.
// I3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_burst_passes_with_any_number_of_workers() {
    const BURST: usize = 118;
    for host in Host::BOTH {
        for workers in [1, 2, 4] {
            let setup = Setup::with(one("per-address", "159/s", 118)).host(host).concurrency(workers);
            let edge = Envoy::start(setup).await;
            for round in 0..5 {
                let asks = |client| vec![Ask::from("203.0.113.7"); (client..BURST).step_by(CLIENTS).len()];
                let tally = together(edge.clients(CLIENTS), asks).await;
                assert_eq!(tally.admitted(), BURST, "{host:?}, {workers} workers, round {round}: {tally:?}");
                // The bucket takes 0.75 s to be full.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}
