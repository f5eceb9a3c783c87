//! Old and new versions side by side, as they are while a fleet is upgraded: real Envoys with the filter, real weir-syncs,
//! one Redis. The old ones are of the last commit with the wire version before; `make upgrade` builds them and says where
//! they are.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use weir_tests::artefact;
use weir_tests::client::Ask;
use weir_tests::envoy::{Envoy, Setup};
use weir_tests::load::{Run, open_loop, open_loop_until};
use weir_tests::redis::Redis;
use weir_tests::wait::until;
use weir_tests::weir_sync::{TOKEN, WeirSync};
use weir_wire::messages::Version;

/// What each quota gives a second, and at once.
const RATE: u32 = 40;
/// What each POP is asked for a second, of each quota.
const ASKED: u32 = 45;
/// How long the load lasts.
const SPAN: Duration = Duration::from_secs(8);

/// The weir-sync of a version.
fn weir_sync(version: Version) -> PathBuf {
    match version {
        Version::Before => artefact::weir_sync_before(),
        Version::Latest => artefact::weir_sync(),
    }
}

/// The filter of a version.
fn filter(version: Version) -> PathBuf {
    match version {
        Version::Before => artefact::filter_before(),
        Version::Latest => artefact::filter_wasm(),
    }
}

/// POPs and weir-syncs of one region, each POP with a way to each weir-sync.
struct Fleet {
    edges: Vec<Envoy>,
    syncs: Vec<WeirSync>,
    redis: Redis,
}

impl Fleet {
    /// Starts weir-syncs and POPs of these versions.
    async fn start(syncs: &[Version], pops: &[Version]) -> Self {
        let redis = Redis::start().await;
        let mut fleet = Self { edges: Vec::new(), syncs: Vec::new(), redis };
        for version in syncs {
            fleet.syncs.push(WeirSync::start_of(&weir_sync(*version), "fra", &fleet.redis.url(), &[]).await);
        }
        let addresses: Vec<_> = fleet.syncs.iter().map(WeirSync::address).collect();
        for (n, version) in pops.iter().enumerate() {
            let pop = format!("fra{n}");
            let rule = |name: &str, strict: bool| {
                json!({"name": name, "key": ["client_address"], "rate": format!("{RATE}/s"), "burst": RATE,
                       "match": {"path": {"exact": format!("/{name}")}}, "strict": strict})
            };
            let sync = json!({"cluster": "weir-sync", "pop": pop, "token": TOKEN, "interval_ms": 100,
                              "timeout_ms": 2_000});
            let plugin = json!({"rules": [rule("bounded", false), rule("strict", true)], "sync": sync});
            let setup = Setup::with(plugin)
                .node(&pop)
                .as_shipped(&addresses)
                .code(&filter(*version))
                .from_file()
                .drain_seconds(5);
            fleet.edges.push(Envoy::start(setup).await);
        }
        for edge in &fleet.edges {
            edge.counter_grows("weir.sync.answered", 4).await;
        }
        until("every weir-sync to know every POP", async || {
            for sync in &fleet.syncs {
                let known = sync.metric("weir_sync_pops").await?;
                (known > count(pops.len()) - 0.5).then_some(())?;
            }
            Some(())
        })
        .await;
        fleet
    }

    /// Tokens that the weir-syncs charged and leased.
    async fn charged(&self) -> f64 {
        let mut sum = 0.0;
        for sync in &self.syncs {
            sum += sync.metric("weir_sync_tokens_charged_total").await.unwrap_or_default();
        }
        sum
    }

    /// Load on `path` at every POP for [`SPAN`].
    async fn asked(&self, path: &str) -> Vec<Run> {
        let ask = Ask::get(path).forwarded_for("203.0.113.7");
        let load = self.edges.iter().map(|edge| {
            let (mut client, ask) = (edge.client(), ask.clone());
            tokio::spawn(async move { open_loop(&mut client, &ask, ASKED, SPAN).await })
        });
        ended(load.collect()).await
    }
}

/// What the load saw, once it has ended.
async fn ended(load: Vec<JoinHandle<Run>>) -> Vec<Run> {
    let mut runs = Vec::new();
    for run in load {
        runs.push(run.await.unwrap_or_else(|e| panic!("the load broke off: {e}")));
    }
    runs
}

/// A count of POPs or requests, which is far below 2^52.
#[allow(clippy::cast_precision_loss, reason = "see above")]
fn count(number: usize) -> f64 {
    number as f64
}

/// What was admitted, as a part of what the quota gave; panics if a request failed.
fn ratio(runs: &[Run]) -> f64 {
    for run in runs {
        run.assert_only_decisions();
    }
    let admitted = runs.iter().map(|run| run.tally.admitted()).sum();
    let lasted = runs.iter().map(|run| run.lasted).max().unwrap_or_default();
    count(admitted) / (f64::from(RATE) * (1.0 + lasted.as_secs_f64()))
}

/// Puts load on both quotas, and checks that each is kept and all of it is charged.
async fn keeps_its_quotas(fleet: &Fleet) {
    let before = fleet.charged().await;
    let runs = fleet.asked("/bounded").await;
    let bounded = ratio(&runs);
    let admitted: usize = runs.iter().map(|run| run.tally.admitted()).sum();
    // A key is not watched before it is busy: what refilled until then is not reported.
    let least = count(admitted) - f64::from(RATE) / 2.0;
    let charged = until("all that was admitted to be charged", async || {
        let charged = fleet.charged().await - before;
        assert!(charged < count(admitted) + 0.5, "{charged} of {admitted}: nothing is charged twice");
        (charged > least).then_some(charged)
    })
    .await;
    println!("charged: {charged} of {admitted}");
    let strict = ratio(&fleet.asked("/strict").await);
    println!("admitted of the quota: bounded {bounded:.3}, strict {strict:.3}");
    assert!((0.95..1.05).contains(&bounded), "{bounded}");
    assert!((0.95..1.001).contains(&strict), "{strict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by `make upgrade`, which builds the version before"]
async fn pops_of_before_are_served_by_a_new_weir_sync() {
    let fleet = Fleet::start(&[Version::Latest], &[Version::Before; 2]).await;
    keeps_its_quotas(&fleet).await;
    assert_eq!(fleet.edges[0].counter("weir.sync.failed").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by `make upgrade`, which builds the version before"]
async fn new_pops_are_served_by_a_weir_sync_of_before() {
    let fleet = Fleet::start(&[Version::Before], &[Version::Latest; 2]).await;
    keeps_its_quotas(&fleet).await;
    let [refused, sent] = ["weir.sync.failed", "weir.sync.reported"].map(|name| fleet.edges[0].counter(name));
    let (refused, sent) = (refused.await, sent.await);
    assert!((1..10).contains(&refused) && sent > 50 * refused, "{refused} of {sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by `make upgrade`, which builds the version before"]
async fn pops_and_weir_syncs_of_both_share_one_redis() {
    let both = [Version::Before, Version::Latest];
    let fleet = Fleet::start(&both, &both).await;
    keeps_its_quotas(&fleet).await;
}

/// weir-sync first, one replica after the other, then the filter, POP by POP; and back again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by `make upgrade`, which builds the version before"]
async fn an_upgrade_under_load_and_its_way_back_keep_the_quotas() {
    let mut fleet = Fleet::start(&[Version::Before; 2], &[Version::Before; 2]).await;
    let (stop, stopped) = watch::channel(false);
    let load: Vec<JoinHandle<Run>> = ["/bounded", "/strict"]
        .iter()
        .flat_map(|path| fleet.edges.iter().map(move |edge| (path, edge.client())))
        .map(|(path, mut client)| {
            let (ask, stopped) = (Ask::get(path).forwarded_for("203.0.113.7"), stopped.clone());
            tokio::spawn(async move { open_loop_until(&mut client, &ask, ASKED, stopped).await })
        })
        .collect();
    for version in [Version::Latest, Version::Before] {
        let is_upgrade = version == Version::Latest;
        if !is_upgrade {
            replace_filters(&mut fleet, version).await;
        }
        for n in 0..fleet.syncs.len() {
            replace_weir_sync(&mut fleet, n, version).await;
        }
        if is_upgrade {
            replace_filters(&mut fleet, version).await;
        }
    }
    stop.send_replace(true);
    let runs = ended(load).await;
    let (bounded, strict) = runs.split_at(2);
    let (bounded, strict) = (ratio(bounded), ratio(strict));
    println!("admitted of the quota over an upgrade and back: bounded {bounded:.3}, strict {strict:.3}");
    assert!((0.95..1.05).contains(&bounded), "{bounded}");
    assert!((0.95..1.001).contains(&strict), "{strict}");
}

/// Has `version` take the place of the `n`th weir-sync. One of before does not drain, so its POPs are told first; one of now
/// tells them itself. The next goes only once this one is in use.
async fn replace_weir_sync(fleet: &mut Fleet, n: usize, version: Version) {
    let sync = &mut fleet.syncs[n];
    let drains = version == Version::Before;
    if !drains {
        for edge in &mut fleet.edges {
            edge.take_out(sync.address()).await;
        }
        is_left_alone(sync).await;
    }
    sync.replace(&weir_sync(version)).await;
    if !drains {
        for edge in &mut fleet.edges {
            edge.put_back(sync.address()).await;
        }
    }
    until("reports", async || (sync.metric("weir_sync_grants_total").await? > 20.0).then_some(())).await;
}

/// Waits until nothing was reported to `sync` for several intervals.
async fn is_left_alone(sync: &WeirSync) {
    let mut before = None;
    until("nothing to be reported", async || {
        let granted = sync.metric("weir_sync_grants_total").await;
        let is_still = granted.is_some() && granted == before;
        before = granted;
        // The page is made once a second at most.
        sleep(Duration::from_millis(1_200)).await;
        is_still.then_some(())
    })
    .await;
}

async fn replace_filters(fleet: &mut Fleet, version: Version) {
    for (n, edge) in fleet.edges.iter_mut().enumerate() {
        let updates = edge.stat("listener_manager.lds.update_success").await.unwrap_or_default();
        edge.replace_code(&filter(version));
        edge.stat_reaches("listener_manager.lds.update_success", updates + 1).await;
        edge.counter_grows("weir.sync.answered", 20).await;
        println!("POP {n} runs {version:?}");
    }
}
