//! What weir-sync costs, measured at the real binary: reports over HTTP as the filter sends them, with the
//! memory store and with a real Redis, on loopback.
//!
//! Only ratios of one run are worth comparing between machines. CPU time is what the kernel says each thread
//! was given (`/proc/<pid>/task/*/schedstat`), so a busy machine makes a figure slower by the wall and leaves
//! it nearly alone by the core.

mod captured;
mod cpu;
mod flood;
mod hot_keys;
mod interval;
mod large;
mod pop;
mod stats;
mod throughput;

use std::time::Duration;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds of what is compared, interleaved.
    rounds: usize,
    /// How long a round floods weir-sync, or Redis.
    round: Duration,
    /// How many reports of 1,000 keys are timed.
    large_reports: usize,
    /// How long the fleet of simulated POPs reports.
    fleet: Duration,
}

impl Plan {
    /// For figures to keep: about four minutes.
    pub const FULL: Self = Self {
        rounds: 9,
        round: Duration::from_secs(4),
        large_reports: 1_000,
        fleet: Duration::from_secs(20),
    };
    /// For a look: at most a minute.
    pub const QUICK: Self =
        Self { rounds: 5, round: Duration::from_secs(1), large_reports: 200, fleet: Duration::from_secs(4) };
}

/// The parts of a run, in order.
pub const PARTS: [&str; 5] = ["memory", "redis", "large", "hot", "fleet"];

/// Measures `parts` (none is all of [`PARTS`]) and prints what they reached as rows of a table; progress goes
/// to stderr.
pub async fn run(plan: Plan, parts: &[String]) {
    println!("{}", stats::machine());
    println!("\n| figure | reached | must | aim |\n|---|---|---|---|");
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|named| named == part);
    if wanted("memory") {
        throughput::memory(plan).await;
    }
    if wanted("redis") {
        throughput::redis(plan).await;
    }
    if wanted("large") {
        large::run(plan).await;
    }
    if wanted("hot") {
        hot_keys::run().await;
    }
    if wanted("fleet") {
        interval::run(plan).await;
    }
}

/// Says what is being measured.
fn progress(text: &str) {
    eprintln!("bench-sync: {text}");
}

/// Prints a figure; `must` and `aim` are empty where none is asked for.
fn row(figure: &str, reached: &str, must: &str, aim: &str) {
    println!("| {figure} | {reached} | {must} | {aim} |");
}
