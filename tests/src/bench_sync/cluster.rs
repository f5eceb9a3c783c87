//! Reports of 100 keys over a Redis Cluster of three masters, beside the same over one Redis.

use super::cpu;
use super::flood::{KEYS, flood, pops_of};
use super::stats::{Spread, float, thousands};
use super::{Figures, Plan, progress};
use crate::bench::summary::{SYNC_CLUSTER, SYNC_EVEN};
use crate::redis::{Redis, in_a_group};
use crate::redis_cluster::Cluster;
use crate::weir_sync::WeirSync;

/// Rounds of one and of the other in turn, with the same keys.
pub(super) async fn run(plan: Plan, figures: &mut Figures) {
    progress("a Redis Cluster of three masters, beside one Redis");
    let (redis, cluster) = (Redis::start_with(in_a_group(&[])).await, Cluster::start_masters().await);
    let one = WeirSync::start("bench", &redis.url()).await;
    let three = WeirSync::start("bench", &cluster.url()).await;
    let (mut pops_of_one, mut pops_of_three) = (pops_of(&one, 1), pops_of(&three, 1));
    flood(&mut pops_of_one, plan.round).await;
    flood(&mut pops_of_three, plan.round).await;
    let before = calls(&cluster).await;
    let (mut ratios, mut by_cpu, mut by_wall) = (vec![], vec![], vec![]);
    for _ in 0..plan.rounds {
        let (single, _) = round(plan, &one, std::slice::from_ref(&redis), &mut pops_of_one).await;
        let (keys, wall) = round(plan, &three, cluster.masters(), &mut pops_of_three).await;
        ratios.push(keys / single);
        by_cpu.push(keys);
        by_wall.push(wall);
    }
    let after = calls(&cluster).await;
    let calls: Vec<f64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let even = calls.iter().sum::<f64>() / float(calls.len() as u64);
    let busiest = calls.iter().copied().fold(0.0, f64::max);
    let figure = "a Redis Cluster of three masters : one Redis, keys per second of all CPU used (weir-sync's and Redis's)";
    figures.target(SYNC_CLUSTER, figure, &Spread::of(&ratios, 2));
    figures.row("the same cluster: keys per second of all CPU used", &Spread::of(&by_cpu, 0).to_string());
    figures.row("the same, keys/s by the wall", &Spread::of(&by_wall, 0).to_string());
    let figure = "script calls of the busiest of three masters : a third of all, 800 keys";
    figures.target(SYNC_EVEN, figure, &Spread::of(&[busiest / even], 3));
    progress(&format!(
        "script calls of each: {}",
        calls.iter().map(|n| thousands(*n)).collect::<Vec<_>>().join(", ")
    ));
}

/// Keys a second of all CPU time that `weir_sync` and `servers` used, and by the wall.
async fn round(
    plan: Plan,
    weir_sync: &WeirSync,
    servers: &[Redis],
    pops: &mut Vec<super::pop::Pop>,
) -> (f64, f64) {
    let used = || servers.iter().map(|server| cpu::time(server.id())).sum::<std::time::Duration>();
    let before = used() + cpu::time(weir_sync.id());
    let reached = flood(pops, plan.round).await;
    let spent = (used() + cpu::time(weir_sync.id())).saturating_sub(before);
    let keys = float(reached.reports * KEYS);
    (keys / spent.as_secs_f64(), keys / reached.wall.as_secs_f64())
}

/// The script calls that each master has answered.
async fn calls(cluster: &Cluster) -> Vec<f64> {
    let mut calls = Vec::new();
    for server in cluster.masters() {
        calls.push(server.info("commandstats", "cmdstat_evalsha:calls=").await);
    }
    calls
}
