//! A contended key while the budget is out of reach: what a point of presence rightly admits meanwhile
//! is no debt that locks its client out once the budget is back.
//!
//! Tests of I5.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::link::Link;
use weir_tests::load::{Run, open_loop_until};
use weir_tests::redis::Redis;
use weir_tests::weir_sync::WeirSync;

use crate::plugin::one;
use crate::sync::{Traffic, fast_and_slow, synced};

/// Requests per second that the rule admits.
const RATE: f64 = 50.0;
/// And at once.
const BURST: f64 = 50.0;
/// Requests per second: twice the quota.
const ASKED: u32 = 100;
/// Time for which the budget is out of reach. Its admissions are worth six bursts.
const OUTAGE: Duration = Duration::from_secs(6);
/// Time for which the rate is measured afterwards.
const AFTER: Duration = Duration::from_secs(5);

/// An edge whose one client asks for more than its quota all the time.
struct Contended {
    edge: Envoy,
    stop: watch::Sender<bool>,
    load: JoinHandle<Run>,
}

impl Contended {
    /// Starts it, and waits until the budget has been charged for a while.
    async fn start(weir_sync: &WeirSync) -> Self {
        let plugin = synced(one("per-address", "50/s", 50), "fra1");
        let edge = Envoy::in_touch(Setup::with(plugin).pop("fra1", weir_sync)).await;
        let (stop, stopped) = watch::channel(false);
        let mut client = edge.client();
        let load =
            tokio::spawn(async move { open_loop_until(&mut client, &Ask::from("203.0.113.7"), ASKED, stopped).await });
        edge.counter_grows("weir.rule.per-address.limited", 50).await;
        edge.counter_grows("weir.sync.answered", 4).await;
        Self { edge, stop, load }
    }

    /// Waits until weir-sync has answered once more, goes on for a while, and panics unless the client had
    /// its rate then, and never more than its quota since the beginning.
    async fn kept_its_rate(self) {
        self.edge.counter_grows("weir.sync.answered", 1).await;
        let back = Instant::now();
        sleep(AFTER).await;
        self.stop.send_replace(true);
        let run = self.load.await.unwrap_or_else(|e| panic!("the load broke off: {e}"));
        run.assert_only_decisions();
        let rate = run.admitted_per_second_from(back, AFTER);
        assert!(rate >= 0.9 * RATE, "{rate:.1} of {RATE} a second after the outage");
        // One for the instant between a decision and the arrival of its answer.
        let ahead = run.most_ahead(RATE, BURST);
        assert!(ahead <= 1.0, "{ahead:.1} more than the quota: {:?}", run.tally);
    }
}

// I1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_pass_while_redis_is_killed_or_hung() {
    let mut redis = Redis::start().await;
    let mut weir_sync = WeirSync::start("fra1", &redis.url()).await;
    let plugin = synced(fast_and_slow(), "fra1");
    let edge = Envoy::start(Setup::with(plugin).cluster("weir-sync", weir_sync.address())).await;
    let traffic = Traffic::start_both(&edge).await;
    weir_sync.answers("/readyz", 200).await;
    edge.counter_reaches("weir.sync.answered", 3).await;

    redis.kill();
    weir_sync.answers("/readyz", 503).await;
    weir_sync.answers("/healthz", 200).await;
    // The filter goes on reporting, though nobody can grant it anything.
    edge.counter_grows("weir.sync.reported", 5).await;

    redis.restart().await;
    weir_sync.answers("/readyz", 200).await;
    edge.counter_grows("weir.sync.answered", 5).await;

    // Gone in the way that is harder to notice: connections stay open, answers do not come.
    redis.freeze().await;
    weir_sync.answers("/readyz", 503).await;
    redis.thaw();
    weir_sync.answers("/readyz", 200).await;
    edge.counter_grows("weir.sync.answered", 5).await;
    for traffic in traffic {
        traffic.stop().await;
    }
}

// I8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_keeps_its_rate_when_redis_restores_old_data() {
    let redis = Redis::start().await;
    let mut weir_sync = WeirSync::start("fra1", &redis.url()).await;
    let contended = Contended::start(&weir_sync).await;
    redis.freeze().await;
    sleep(OUTAGE).await;
    redis.thaw();
    weir_sync.answers("/readyz", 200).await;
    contended.kept_its_rate().await;
}

/// Time that a message takes to a store that is far away.
const FAR: Duration = Duration::from_millis(60);

/// Its replies are the store's state, from the first one on: a POP that is sent to it at once gets its
/// acquires.
#[tokio::test]
async fn weir_sync_answers_once_it_has_reached_its_store() {
    let redis = Redis::start().await;
    let mut link = Link::start(redis.address(), Duration::ZERO).await;
    link.slow_down(FAR);
    // Returns at its first answer.
    let weir_sync = WeirSync::start("fra", &format!("redis://{}", link.address())).await;
    assert_eq!(weir_sync.status_of("/readyz").await, Some(200));
}
