//! Cost of weir-sync, measured at the real binary: reports over HTTP as the filter sends them, with the
//! memory store and with a real Redis, on loopback.
//!
//! Only ratios of one run are worth comparing between machines. CPU time is the kernel's figure for each
//! thread, so a busy machine makes a figure slower by the wall and leaves it nearly alone by the core.

mod fleets;
mod floods;
mod pop;

use std::time::Duration;

use super::cpu::Meter;
use super::machine;
use super::page::Part;
use super::stats::Spread;
use super::summary::Target;

/// The length of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds of what is compared, interleaved.
    rounds: usize,
    /// Time for which a round floods weir-sync, or Redis.
    round: Duration,
}

impl Plan {
    /// For a look, at most a minute; or for figures to keep, about four minutes.
    pub fn of(is_quick: bool) -> Self {
        let (rounds, round) = if is_quick { (5, 1) } else { (9, 4) };
        Self { rounds, round: Duration::from_secs(round) }
    }
}

/// Measures everything; progress, and each figure as it comes, go to standard error.
pub async fn run(plan: Plan) -> Part {
    let (machine, seconds) = (machine::name(), plan.round.as_secs());
    let text = format!("{machine} {} rounds of {seconds} s; median, and quartiles in brackets.", plan.rounds);
    let mut figures = Figures(Part::begin(&text, &["reached"]));
    floods::memory(plan, &mut figures).await;
    floods::redis(plan, &mut figures).await;
    floods::shared(plan, &mut figures).await;
    floods::cluster(plan, &mut figures).await;
    fleets::run(&mut figures).await;
    figures.0
}

/// Says what is being measured.
fn progress(text: &str) {
    eprintln!("bench-sync: {text}");
}

/// CPU time of these processes so far.
fn cpu(processes: &[u32]) -> Duration {
    let read = Meter::of(processes).read();
    Duration::from_nanos(read.unwrap_or_else(|e| panic!("no CPU time: {e}")))
}

/// The spread of some rounds; panics where one came to no number.
fn spread(rounds: impl IntoIterator<Item = f64>) -> Spread {
    let rounds: Vec<f64> = rounds.into_iter().collect();
    let are_numbers = !rounds.is_empty() && rounds.iter().all(|round| round.is_finite());
    assert!(are_numbers, "bench-sync: a round came to no number: {rounds:?}");
    Spread::of(rounds)
}

/// The measurements so far.
struct Figures(Part);

impl Figures {
    /// A figure of several rounds, with this number of digits behind the point, and what it must reach, if anything.
    fn spread(&mut self, figure: &str, target: Option<Target>, reached: Spread, digits: usize) {
        self.row(figure, target.map(|target| (target, reached.median)), format!("{reached:.digits$}"));
    }

    fn row(&mut self, figure: &str, target: Option<(Target, f64)>, reached: String) {
        progress(&format!("{figure}: {reached}"));
        self.0.figure(figure, target, &[reached]);
    }
}
