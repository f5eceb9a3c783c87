//! Reports of 100 keys, as many as go: by the core with the memory store, and over Redis beside
//! `redis-benchmark`.

use super::captured::Captured;
use super::flood::{KEYS, POPS, flood, flooded, pops, pops_of};
use super::pop::Pop;
use super::stats::{Spread, float, thousands};
use super::{Figures, Plan, cpu, progress};
use crate::bench::summary::{REDIS_COUNT, REDIS_KEY, SYNC_MEMORY, SYNC_REDIS};
use crate::redis::Redis;
use crate::weir_sync::WeirSync;

/// POPs that are asked for one key.
const SHARING: u64 = 10;

/// The memory store: keys a second of weir-sync's own CPU time, and by the wall.
pub(super) async fn memory(plan: Plan, figures: &mut Figures) {
    progress("the memory store");
    let weir_sync = WeirSync::start("bench", "memory").await;
    let mut pops = pops(&weir_sync);
    flood(&mut pops, plan.round).await;
    let (mut by_core, mut by_wall) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        let before = cpu::time(weir_sync.id());
        let reached = flood(&mut pops, plan.round).await;
        let spent = cpu::time(weir_sync.id()).saturating_sub(before);
        by_core.push(float(reached.reports * KEYS) / spent.as_secs_f64());
        by_wall.push(float(reached.reports) / reached.wall.as_secs_f64());
    }
    let figure = "weir-sync, memory store, reports of 100 keys: keys/s per core";
    figures.target(SYNC_MEMORY, figure, &Spread::of(&by_core, 0));
    let figure = "the same, reports/s by the wall, the load on the same machine";
    figures.row(figure, &Spread::of(&by_wall, 0).to_string());
}

/// Keys that are each asked for at ten POPs of the region, which report them at once.
pub(super) async fn shared(plan: Plan, figures: &mut Figures) {
    progress("keys at ten POPs each");
    let redis = Redis::start().await;
    let weir_sync = WeirSync::start("bench", &redis.url()).await;
    let of = |n| Pop::with_quota(&weir_sync, &format!("pop-{n}"), 0..KEYS, flooded());
    let mut pops: Vec<Pop> = (0..SHARING).map(of).collect();
    flood(&mut pops, plan.round).await;
    let mut counts = Vec::new();
    for _ in 0..plan.rounds {
        let before = cpu::time(redis.id());
        let reached = flood(&mut pops, plan.round).await;
        let spent = cpu::time(redis.id()).saturating_sub(before);
        counts.push(spent.as_secs_f64() * 1e6 / float(reached.reports * KEYS));
    }
    let figure = "one key at ten POPs of a region: Redis's CPU time per count, in us";
    figures.target(REDIS_COUNT, figure, &Spread::of(&counts, 1));
}

/// Redis: charges a second through weir-sync, beside the same script from a client that does nothing else.
pub(super) async fn redis(plan: Plan, figures: &mut Figures) {
    progress("a real Redis, beside a bare client");
    let redis = Redis::start().await;
    let weir_sync = WeirSync::start("bench", &redis.url()).await;
    // A key at one POP each: what several ask for goes in one call (`shared`).
    let mut pops = pops_of(&weir_sync, 1);
    let captured = Captured::charge(redis.address(), flood(&mut pops, plan.round)).await;
    let (mut ratios, mut alone, mut charges, mut reports) = (vec![], vec![], vec![], vec![]);
    let (mut ours, mut theirs, mut by_core) = (vec![], vec![], vec![]);
    let mut unsettled = 0;
    for _ in 0..plan.rounds {
        let before = (cpu::time(redis.id()), cpu::time(weir_sync.id()));
        let reached = flood(&mut pops, plan.round).await;
        let spent = cpu::time(redis.id()).saturating_sub(before.0);
        let spent_here = cpu::time(weir_sync.id()).saturating_sub(before.1);
        unsettled += reached.unsettled;
        let keys = float(reached.reports * KEYS);
        let rate = keys / reached.wall.as_secs_f64();
        let before = cpu::time(redis.id());
        let same = captured.replay(POPS, KEYS, POPS * KEYS, reached.reports * KEYS).await;
        theirs.push(cpu::time(redis.id()).saturating_sub(before).as_secs_f64() * 1e6 / same.charges);
        let one = captured.replay(1, KEYS, POPS * KEYS, reached.reports * KEYS / 2).await;
        charges.push(rate);
        reports.push(float(reached.reports) / reached.wall.as_secs_f64());
        ratios.push(rate / same.per_second);
        alone.push(rate / one.per_second);
        ours.push(spent.as_secs_f64() * 1e6 / keys);
        by_core.push(keys / spent_here.as_secs_f64());
    }
    let figure = format!(
        "weir-sync on Redis : a bare client, same call, {POPS} connections with {KEYS} keys under way at both"
    );
    figures.target(SYNC_REDIS, &figure, &Spread::of(&ratios, 2));
    let figure = "the same : a bare client over one connection";
    figures.row(figure, &Spread::of(&alone, 2).to_string());
    let figure = "weir-sync on Redis, reports of 100 keys: reports/s";
    figures.row(figure, &Spread::of(&reports, 0).to_string());
    figures.row("the same, keys/s", &Spread::of(&charges, 0).to_string());
    figures.row("the same, keys/s per core of weir-sync", &Spread::of(&by_core, 0).to_string());
    let figure = "Redis's CPU time for a key of weir-sync's, in us";
    figures.target(REDIS_KEY, figure, &Spread::of(&ours, 1));
    let figure = "the same of the bare client's, in us";
    figures.row(figure, &Spread::of(&theirs, 1).to_string());
    progress(&format!(
        "a script call has {} arguments and charges {} of {} keys; {unsettled} reports were not charged in time, and do not count",
        captured.arguments_len(),
        captured.keys_len(),
        thousands(float(POPS * KEYS))
    ));
}
