//! A rolling restart of a region's weir-syncs under load, as an operator does it with a new build of the same version.

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{Run, open_loop_until};
use weir_tests::redis::Redis;
use weir_tests::wait::until;
use weir_tests::weir_sync::{TOKEN, WeirSync};

/// Tokens that each quota gives a second, and at once.
const RATE: u32 = 40;
/// Requests a second at each POP, for each quota.
const ASKED: u32 = 45;

/// Each weir-sync is replaced while the other serves: the first by its own drain, the second after Envoy has taken
/// it out of the cluster by EDS. No request fails, no strict one is denied, and both quotas are kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_of_weir_syncs_loses_no_request() {
    let redis = Redis::start().await;
    let mut syncs = [WeirSync::start("fra", &redis.url()).await, WeirSync::start("fra", &redis.url()).await];
    let addresses = syncs.each_ref().map(WeirSync::address);
    let mut edges = Vec::new();
    for pop in ["fra0", "fra1"] {
        let rule = |name: &str, strict: bool| {
            json!({"name": name, "key": ["client_address"], "rate": format!("{RATE}/s"), "burst": RATE,
                   "match": {"path": {"exact": format!("/{name}")}}, "strict": strict})
        };
        let sync = json!({"cluster": "weir-sync", "pop": pop, "token": TOKEN, "interval_ms": 100,
                          "timeout_ms": 2_000});
        let plugin = json!({"rules": [rule("bounded", false), rule("strict", true)], "sync": sync});
        edges.push(Envoy::start(Setup::with(plugin).node(pop).as_shipped(&addresses).from_file()).await);
    }
    for sync in &syncs {
        until("both POPs to be known", async || (sync.metric("weir_sync_pops").await? > 1.5).then_some(())).await;
    }

    let (stop, stopped) = watch::channel(false);
    let load = |path: &'static str| {
        let load = edges.iter().map(|edge| {
            let (mut client, stopped) = (edge.client(), stopped.clone());
            let ask = Ask::get(path).forwarded_for("203.0.113.7");
            tokio::spawn(async move { open_loop_until(&mut client, &ask, ASKED, stopped).await })
        });
        load.collect::<Vec<JoinHandle<Run>>>()
    };
    let (bounded, strict) = (load("/bounded"), load("/strict"));
    let [first, second] = &mut syncs;
    first.end().await;
    first.restart().await;
    serves(first).await;
    for edge in &mut edges {
        edge.take_out(second.address()).await;
    }
    second.end().await;
    second.restart().await;
    for edge in &mut edges {
        edge.put_back(second.address()).await;
    }
    serves(second).await;
    stop.send_replace(true);

    let (bounded, strict) = (admitted(bounded).await, admitted(strict).await);
    println!("admitted of the quota: bounded {bounded:.3}, strict {strict:.3}");
    assert!((0.95..1.05).contains(&bounded), "{bounded}");
    assert!((0.95..1.001).contains(&strict), "{strict}");
}

/// Waits until POPs use a weir-sync that has just been started.
async fn serves(sync: &WeirSync) {
    until("reports", async || (sync.metric("weir_sync_grants_total").await? > 20.0).then_some(())).await;
}

/// The tokens admitted, as a part of what the quota gave. Panics if a request failed.
async fn admitted(load: Vec<JoinHandle<Run>>) -> f64 {
    let (mut admitted, mut lasted) = (0, Duration::ZERO);
    for run in load {
        let run = run.await.unwrap_or_else(|error| panic!("the load broke off: {error}"));
        run.assert_only_decisions();
        admitted += run.tally.admitted();
        lasted = lasted.max(run.lasted);
    }
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let admitted = admitted as f64;
    admitted / (f64::from(RATE) * (1.0 + lasted.as_secs_f64()))
}
