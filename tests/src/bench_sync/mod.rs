//! What weir-sync costs, measured at the real binary: reports over HTTP as the filter sends them, with the
//! memory store and with a real Redis, on loopback.
//!
//! Only ratios of one run are worth comparing between machines. CPU time is what the kernel says each thread
//! was given (`/proc/<pid>/task/*/schedstat`), so a busy machine makes a figure slower by the wall and leaves
//! it nearly alone by the core.

mod bucket;
mod captured;
mod cluster;
mod cpu;
mod flood;
mod hot_keys;
mod interval;
mod large;
mod lists;
mod pop;
mod stats;
mod throughput;

use std::fmt::Write;
use std::time::Duration;

use crate::bench::machine;
use crate::bench::page::Part;
use crate::bench::summary::{Reached, Target};

use stats::Spread;

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
pub const PARTS: [&str; 9] =
    ["memory", "redis", "shared", "cluster", "large", "hot", "lists", "fleet", "fleets"];

/// Measures `parts` (none is all of [`PARTS`]); progress, and each figure as it comes, go to standard error.
pub async fn run(plan: Plan, parts: &[String]) -> Part {
    let mut figures = Figures::begin(plan);
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|named| named == part);
    if wanted("memory") {
        throughput::memory(plan, &mut figures).await;
    }
    if wanted("redis") {
        throughput::redis(plan, &mut figures).await;
    }
    if wanted("shared") {
        throughput::shared(plan, &mut figures).await;
    }
    if wanted("cluster") {
        cluster::run(plan, &mut figures).await;
    }
    if wanted("large") {
        large::run(plan, &mut figures).await;
    }
    if wanted("hot") {
        hot_keys::run(&mut figures).await;
    }
    if wanted("lists") {
        lists::run(plan, &mut figures).await;
    }
    if wanted("fleet") {
        interval::run(plan, &mut figures).await;
    }
    if wanted("fleets") {
        interval::grow(&mut figures).await;
    }
    Part { reached: figures.reached, figures: figures.page }
}

/// Says what is being measured.
fn progress(text: &str) {
    eprintln!("bench-sync: {text}");
}

/// What was measured so far.
struct Figures {
    page: String,
    reached: Vec<Reached>,
}

impl Figures {
    fn begin(plan: Plan) -> Self {
        let page = format!(
            "{} {} rounds of {} s; median, and quartiles in brackets.\n\n| figure | must | aim | reached |\n|---|---|---|---|\n",
            machine::name(),
            plan.rounds,
            plan.round.as_secs()
        );
        Self { page, reached: vec![] }
    }

    /// A figure that nothing is asked of.
    fn row(&mut self, figure: &str, reached: &str) {
        self.line(figure, "", "", reached);
    }

    /// A figure that has a must.
    fn target(&mut self, target: Target, figure: &str, reached: &Spread) {
        self.line(figure, target.must, target.aim, &reached.to_string());
        self.reached.push(target.reached(reached.median(), reached.to_string()));
    }

    fn line(&mut self, figure: &str, must: &str, aim: &str, reached: &str) {
        assert!(stats::has_only_numbers(reached), "bench-sync: \"{figure}\" came to no number: {reached}");
        progress(&format!("{figure}: {reached}"));
        let _ = writeln!(self.page, "| {figure} | {must} | {aim} | {reached} |");
    }
}
