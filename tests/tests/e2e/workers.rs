//! The workers of one Envoy share their buckets, and no request holds one of them for long.

use std::time::{Duration, Instant};

use serde_json::json;
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

/// Prints the time for which the dearest expressions and value that are accepted hold a worker; docs/rules.md states it.
#[tokio::test]
async fn no_search_for_expressions_holds_a_worker_for_long() {
    let dear = json!({"headers": [{"name": "x-long", "regex": "(?:a|a|a|a|a|a|a|a|a|a)*z$"}]});
    let plain = Ask::from("203.0.113.7");
    let dearest = plain.clone().header("x-long", &"a".repeat(1_020));
    for host in Host::BOTH {
        let mut plugin = one("per-address", "1000000/s", 1_000_000);
        plugin["deny"] = vec![dear.clone(); 40].into();
        let edge = Envoy::start(Setup::with(plugin).host(host)).await;
        let mut client = edge.client();
        let mut times = [Duration::MAX; 2];
        // Searches that would cost more are not made, so that the request is refused.
        for (least, ask, status) in [(0, &plain, 200), (1, &dearest, 403)] {
            for _ in 0..30 {
                let sent = Instant::now();
                assert_eq!(client.send(ask).await.status, status, "{host:?}");
                times[least] = times[least].min(sent.elapsed());
            }
        }
        println!("{host:?}: {:.1?}, without a value to search {:.1?}", times[1], times[0]);
    }
}
