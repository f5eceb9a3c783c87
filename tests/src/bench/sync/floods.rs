//! Reports of 100 keys, as many as go: POPs in a closed loop, which report again as soon as they are answered.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;
use weir_protocol::quota::Quota;

use super::pop::{Pop, quota};
use super::{Figures, Plan, cpu, progress};
use crate::bench::stats::{Spread, float};
use crate::bench::summary::{REDIS_COUNT, REDIS_KEY, SYNC_CLUSTER, SYNC_EVEN, SYNC_MEMORY};
use crate::redis::{Redis, in_a_group};
use crate::redis_cluster::Cluster;
use crate::weir_sync::WeirSync;

/// The POPs of the closed loop, and so the reports under way at a time.
const POPS: u64 = 8;
/// The number of keys in each report.
const KEYS: u64 = 100;
/// At how many POPs a key is asked for.
const SHARED_BY: u64 = 4;
/// Time that a POP waits after a report that was not charged.
const PAUSE: Duration = Duration::from_millis(50);

/// The POPs, of `weir_sync`, where a key is asked for at `shared_by` of them.
fn pops_of(weir_sync: &WeirSync, shared_by: u64) -> Vec<Pop> {
    let of = |n| {
        let first = n / shared_by * KEYS;
        Pop::with_quota(weir_sync, &format!("pop-{n}"), first..first + KEYS, flooded())
    };
    (0..POPS).map(of).collect()
}

/// The quota of each key: large enough that reports have something to charge, however soon they follow on each
/// other, and less than it is asked for.
fn flooded() -> Quota {
    quota(60_000, 1_000)
}

/// Lets all POPs report for this time; returns how many reports were charged, and how long it took. Panics where most
/// were answered and not charged, because the store was too slow for weir-sync's time-out: that is no figure.
async fn flood(pops: &mut Vec<Pop>, lasts: Duration) -> (u64, Duration) {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for mut pop in std::mem::take(pops) {
        tasks.spawn(async move {
            let (mut charged, mut unsettled) = (0, 0);
            while began.elapsed() < lasts {
                if pop.exchange().await.is_settled {
                    charged += 1;
                } else {
                    unsettled += 1;
                    // weir-sync answers at once while it waits for its store.
                    sleep(PAUSE).await;
                }
            }
            (pop, charged, unsettled)
        });
    }
    let (mut charged, mut unsettled) = (0, 0);
    while let Some(done) = tasks.join_next().await {
        let (pop, of_charged, of_unsettled) = done.unwrap_or_else(|e| panic!("a POP failed: {e}"));
        pops.push(pop);
        (charged, unsettled) = (charged + of_charged, unsettled + of_unsettled);
    }
    assert!(
        unsettled <= charged,
        "bench-sync: {unsettled} reports of a flood were not charged, {charged} were: look at \
         weir_sync_report_limits_exceeded_total and weir_sync_store_errors_total"
    );
    (charged, began.elapsed())
}

/// POPs of a region that are asked for one key.
const SHARING: u64 = 10;

/// A round of a flood: reports and keys that were charged, seconds by the wall, and of weir-sync's and of the store's
/// CPU time.
struct Round {
    reports: u64,
    keys: f64,
    wall_s: f64,
    sync_s: f64,
    store_s: f64,
}

async fn round(plan: Plan, weir_sync: &WeirSync, servers: &[Redis], pops: &mut Vec<Pop>) -> Round {
    let servers: Vec<u32> = servers.iter().map(Redis::id).collect();
    let before = [cpu(&[weir_sync.id()]), cpu(&servers)];
    let (reports, wall) = flood(pops, plan.round).await;
    let after = [cpu(&[weir_sync.id()]), cpu(&servers)];
    let [sync_s, store_s] = [0, 1].map(|n| after[n].saturating_sub(before[n]).as_secs_f64());
    Round { reports, keys: float(reports * KEYS), wall_s: wall.as_secs_f64(), sync_s, store_s }
}

/// The figures of each round: what comes first, which is not measured, is a flood.
async fn rounds<const N: usize>(
    plan: Plan,
    figures: impl AsyncFn(&mut Vec<Pop>) -> [f64; N],
    mut pops: Vec<Pop>,
) -> [Spread; N] {
    flood(&mut pops, plan.round).await;
    let mut all = vec![];
    for _ in 0..plan.rounds {
        all.push(figures(&mut pops).await);
    }
    std::array::from_fn(|n| super::spread(all.iter().map(|round| round[n])))
}

/// The memory store: keys a second of weir-sync's own CPU time, and by the wall.
pub(super) async fn memory(plan: Plan, figures: &mut Figures) {
    progress("the memory store");
    let weir_sync = WeirSync::start("bench", "memory").await;
    let one = async |pops: &mut Vec<Pop>| {
        let Round { reports, keys, wall_s, sync_s, .. } = round(plan, &weir_sync, &[], pops).await;
        [keys / sync_s, float(reports) / wall_s]
    };
    let [by_core, by_wall] = rounds(plan, one, pops_of(&weir_sync, SHARED_BY)).await;
    let figure = "weir-sync, memory store, reports of 100 keys: keys/s per core";
    figures.spread(figure, Some(SYNC_MEMORY), by_core, 0);
    figures.spread("the same, reports/s by the wall, the load on the same machine", None, by_wall, 0);
}

/// Keys that are each asked for at ten POPs of the region, which report them at once.
pub(super) async fn shared(plan: Plan, figures: &mut Figures) {
    progress("keys at ten POPs each");
    let redis = Redis::start().await;
    let weir_sync = WeirSync::start("bench", &redis.url()).await;
    let of = |n| Pop::with_quota(&weir_sync, &format!("pop-{n}"), 0..KEYS, flooded());
    let one = async |pops: &mut Vec<Pop>| {
        let Round { keys, store_s, .. } = round(plan, &weir_sync, std::slice::from_ref(&redis), pops).await;
        [store_s * 1e6 / keys]
    };
    let [counts] = rounds(plan, one, (0..SHARING).map(of).collect()).await;
    let figure = "one key at ten POPs of a region: Redis's CPU time per count, in us";
    figures.spread(figure, Some(REDIS_COUNT), counts, 1);
}

/// Redis: charges a second through weir-sync, and their CPU time.
pub(super) async fn redis(plan: Plan, figures: &mut Figures) {
    progress("a real Redis");
    let redis = Redis::start().await;
    let weir_sync = WeirSync::start("bench", &redis.url()).await;
    // A key at one POP each: what several ask for goes in one call (`shared`).
    let one = async |pops: &mut Vec<Pop>| {
        let Round { reports, keys, wall_s, sync_s, store_s } =
            round(plan, &weir_sync, std::slice::from_ref(&redis), pops).await;
        [float(reports) / wall_s, keys / wall_s, keys / sync_s, store_s * 1e6 / keys]
    };
    let [reports, charges, by_core, by_key] = rounds(plan, one, pops_of(&weir_sync, 1)).await;
    figures.spread("weir-sync on Redis, reports of 100 keys: reports/s", None, reports, 0);
    figures.spread("the same, keys/s", None, charges, 0);
    figures.spread("the same, keys/s per core of weir-sync", None, by_core, 0);
    figures.spread("Redis's CPU time for a key of weir-sync's, in us", Some(REDIS_KEY), by_key, 1);
}

/// A Redis Cluster of three masters, beside one Redis: rounds of one and of the other in turn, with the same keys.
pub(super) async fn cluster(plan: Plan, figures: &mut Figures) {
    progress("a Redis Cluster of three masters, beside one Redis");
    let (redis, cluster) = (Redis::start_with(in_a_group(&[])).await, Cluster::start_masters().await);
    let single = WeirSync::start("bench", &redis.url()).await;
    let three = WeirSync::start("bench", &cluster.url()).await;
    let mut pops_of_one = pops_of(&single, 1);
    flood(&mut pops_of_one, plan.round).await;
    let pops_of_one = tokio::sync::Mutex::new(pops_of_one);
    let before = calls(&cluster).await;
    let one = async |pops: &mut Vec<Pop>| {
        let servers = std::slice::from_ref(&redis);
        let of_one = round(plan, &single, servers, &mut *pops_of_one.lock().await).await;
        let Round { keys, wall_s, sync_s, store_s, .. } = round(plan, &three, cluster.masters(), pops).await;
        let by_cpu = keys / (sync_s + store_s);
        [by_cpu * (of_one.sync_s + of_one.store_s) / of_one.keys, by_cpu, keys / wall_s]
    };
    let [ratios, by_cpu, by_wall] = rounds(plan, one, pops_of(&three, 1)).await;
    let after = calls(&cluster).await;
    let calls: Vec<f64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let even = calls.iter().sum::<f64>() / float(calls.len() as u64);
    let busiest = calls.iter().copied().fold(0.0, f64::max);
    let figure = "a Redis Cluster of three masters : one Redis, keys per second of all CPU used (weir-sync's and \
        Redis's)";
    figures.spread(figure, Some(SYNC_CLUSTER), ratios, 2);
    figures.spread("the same cluster: keys per second of all CPU used", None, by_cpu, 0);
    figures.spread("the same, keys/s by the wall", None, by_wall, 0);
    let figure = "script calls of the busiest of three masters : a third of all, 800 keys";
    figures.spread(figure, Some(SYNC_EVEN), super::spread([busiest / even]), 3);
}

/// The script calls that each master has answered.
async fn calls(cluster: &Cluster) -> Vec<f64> {
    let mut calls = Vec::new();
    for server in cluster.masters() {
        calls.push(server.info("commandstats", "cmdstat_evalsha:calls=").await);
    }
    calls
}
