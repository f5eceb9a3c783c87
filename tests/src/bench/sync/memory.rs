//! How much memory hot keys take: in weir-sync, and in Redis.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::pop::Pop;
use super::{Figures, progress};
use crate::bench::stats::{float, grouped};
use crate::redis::Redis;
use crate::weir_sync::WeirSync;

/// How many hot keys: nearly as many as weir-sync keeps.
const HOT: u64 = 4_000;
/// At how many POPs each.
const POPS: u64 = 4;
/// Budgets beyond what may be hot.
const MANY: u64 = 50_000;
/// The most keys of a report.
const OF_A_REPORT: u64 = 1_000;
/// For how many intervals each POP reports.
const INTERVALS: usize = 12;

/// What Redis says that it uses, in bytes.
const USED: &str = "used_memory:";

/// Measures both.
pub(super) async fn run(figures: &mut Figures) {
    progress("memory of hot keys");
    let weir_sync = WeirSync::start("bench", "memory").await;
    let grown = grown(&weir_sync, HOT, POPS).await;
    let figure =
        format!("memory of a hot key, {} of them at {POPS} POPs each, memory store", grouped(float(HOT)));
    figures.row(&figure, &format!("{} B", grouped(grown)));
    drop(weir_sync);

    let weir_sync = WeirSync::start("bench", "memory").await;
    let grown_by_budget = grown_once(&weir_sync).await;
    let figure = format!("memory of a budget, {} of them at one POP, memory store", grouped(float(MANY)));
    figures.row(&figure, &format!("{} B", grouped(grown_by_budget)));
    drop(weir_sync);

    let redis = Redis::start().await;
    let weir_sync = WeirSync::start("bench", &redis.url()).await;
    let before = redis.info::<f64>("memory", USED).await;
    let grown = self::grown(&weir_sync, HOT, POPS).await;
    let in_redis = (redis.info::<f64>("memory", USED).await - before) / float(HOT);
    figures.row(
        "memory of the same hot key over Redis: in weir-sync, and in Redis",
        &format!("{} B, {} B", grouped(grown), grouped(in_redis)),
    );
}

/// By how many bytes a key weir-sync grows when `keys` keys are reported by so many POPs, every 250 ms.
async fn grown(weir_sync: &WeirSync, keys: u64, pops: u64) -> f64 {
    let mut workers: Vec<Pop> = Vec::new();
    for pop in 0..pops {
        let starts = (0..keys / OF_A_REPORT).map(|n| n * OF_A_REPORT);
        // A POP's workers each report a part of its keys.
        workers
            .extend(starts.map(|from| Pop::new(weir_sync, &format!("pop-{pop}"), from..from + OF_A_REPORT)));
    }
    // Connections and buffers are there before.
    for worker in &mut workers {
        worker.greet().await;
    }
    let before = weir_sync.resident_kib();
    let mut ticks = interval(Duration::from_millis(250));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..INTERVALS {
        ticks.tick().await;
        for worker in &mut workers {
            worker.exchange().await;
        }
    }
    float((weir_sync.resident_kib() - before) * 1_024) / float(keys)
}

/// The same for many keys at one POP, each reported twice.
async fn grown_once(weir_sync: &WeirSync) -> f64 {
    let starts = (0..MANY / OF_A_REPORT).map(|n| n * OF_A_REPORT);
    let mut workers: Vec<Pop> =
        starts.map(|from| Pop::new(weir_sync, "pop-0", from..from + OF_A_REPORT)).collect();
    for worker in &mut workers {
        worker.greet().await;
    }
    let before = weir_sync.resident_kib();
    for _ in 0..2 {
        for worker in &mut workers {
            worker.exchange().await;
        }
    }
    float((weir_sync.resident_kib() - before) * 1_024) / float(MANY)
}
