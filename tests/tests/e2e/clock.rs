//! The monotonic clock of a machine steps back, as where a virtual machine is moved.

use std::fs;
use std::time::Duration;

use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Host, Setup};
use weir_tests::load::repeat;

use crate::panics::Clock;
use crate::plugin::one;

/// All of the Envoy sees the step. Time goes on from the last reading of the worker that notices it first: each worker
/// has a connection, and has read the clock since `client` began. Without that, a tick's refill could be lost.
// I8
#[tokio::test]
async fn a_clock_step_of_five_minutes_limits_no_honest_client() {
    for host in Host::BOTH {
        let clock = Clock::made();
        let setup = Setup::with(one("per-address", "12/m", 5)).host(host).concurrency(2);
        let edge = Envoy::start(clock.stepping(setup)).await;
        let (client, other) = (Ask::from("203.0.113.7"), Ask::from("203.0.113.8"));
        let mut workers = [edge.client(), edge.client()];
        assert_eq!(repeat(&mut workers[0], &client, 3).await.admitted(), 3, "{host:?}");
        assert!(repeat(&mut workers[1], &other, 9).await.limited() >= 3, "{host:?}");
        let served = edge.connections_per_worker().await;
        assert!(served.iter().all(|connections| *connections > 0), "{host:?}: {served:?}");
        fs::write(clock.file(), "").expect("a file");
        // What was left is left, and what was spent is spent, also at the other worker.
        for (worker, ask, admitted) in [(1, &client, 2..=3), (0, &other, 0..=1)] {
            let tally = repeat(&mut workers[worker], ask, 9).await;
            assert!(admitted.contains(&tally.admitted()), "{host:?}: {tally:?}");
        }
        tokio::time::sleep(Duration::from_millis(5_500)).await;
        for (worker, ask) in [(0, &client), (1, &other)] {
            let tally = repeat(&mut workers[worker], ask, 9).await;
            assert!((1..=3).contains(&tally.admitted()), "{host:?}: {tally:?}");
        }
    }
}
