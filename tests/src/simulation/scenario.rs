//! A scenario, its run, and the table as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use weir_protocol::time::SECOND_NS;

use super::faults::Schedule;
use super::scenarios::SCENARIOS;
use super::setup::{RuleText, Setup};
use super::traffic::Traffic;
use super::world::World;
use super::{ideal, random, stretch};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub pops: usize,
    pub regions: usize,
}

/// The fleets that a scenario runs in.
pub const FLEETS: &[Size] =
    &[Size { pops: 3, regions: 3 }, Size { pops: 20, regions: 5 }, Size { pops: 330, regions: 30 }];

/// Time for which a row goes on without traffic until all admissions must be charged, in seconds.
const DRAIN_SECONDS: u64 = 15;

/// A world, and how long it runs.
pub struct Plan {
    pub setup: Setup,
    pub traffic: Traffic,
    pub faults: Schedule,
    /// Its length, in seconds.
    pub seconds: u64,
    /// Time for which it goes on without traffic, in seconds; then nothing admitted may be forgotten. If zero,
    /// that is not checked.
    pub drain_seconds: u64,
    /// True if admissions are compared with an ideal limiter while nothing is wrong.
    pub compares: bool,
}

impl Plan {
    /// The design's world in a fleet of this size, for `seconds`, with nothing wrong but 1 % loss.
    pub fn of(size: Size, seconds: u64, traffic: Traffic) -> Self {
        let setup = Setup { pops: size.pops, regions: size.regions, ..Setup::default() };
        Self { setup, traffic, faults: Schedule::new(), seconds, drain_seconds: 0, compares: false }
    }

    #[must_use]
    pub fn under(self, rule: RuleText) -> Self {
        self.with(|setup| setup.rules = vec![rule])
    }

    /// The same in a world that is changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Setup)) -> Self {
        change(&mut self.setup);
        self
    }

    #[must_use]
    pub fn hurt(self, faults: Schedule) -> Self {
        Self { faults, ..self }
    }

    /// The same; in the end, everything admitted must be charged.
    #[must_use]
    pub fn drained(self) -> Self {
        Self { drain_seconds: DRAIN_SECONDS, ..self }
    }
}

/// A figure and what it must reach.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub what: &'static str,
    pub of: fn(&World) -> f64,
    /// It must be at least this.
    pub least: f64,
    /// It must be at most this.
    pub most: f64,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub fleets: &'static [Size],
    pub plan: fn(Size) -> Plan,
    /// The figures that it must reach.
    pub limits: &'static [Limit],
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub name: String,
    /// The figures, in the order of the limits.
    pub reached: Vec<f64>,
    /// The reason why there are no figures.
    pub error: Option<String>,
    /// True if every limit is kept.
    pub holds: bool,
}

impl Scenario {
    pub fn label(&self, size: Size) -> String {
        format!("{} / {} POPs", self.name, size.pops)
    }

    /// The world after the run, of POPs with this number of workers unless the scenario has another.
    fn world(&self, size: Size, seed: u64, workers: usize) -> Result<World, String> {
        let plan = (self.plan)(size);
        let workers = if plan.setup.workers > 1 { plan.setup.workers } else { workers };
        let setup = Setup { seed, workers, scenario: self.label(size), ..plan.setup };
        run(Plan { setup, ..plan })
    }

    /// Runs it; a violated invariant becomes the outcome's error.
    pub fn run(&self, size: Size, seed: u64, workers: usize) -> Outcome {
        let name = self.label(size);
        let mut outcome = Outcome { name, reached: Vec::new(), error: None, holds: false };
        match caught(|| self.world(size, seed, workers)) {
            Ok(world) => {
                outcome.reached = self.limits.iter().map(|limit| (limit.of)(&world)).collect();
                outcome.holds = self.limits.iter().zip(&outcome.reached).all(|(limit, is)| limit.keeps(*is));
            }
            Err(error) => outcome.error = Some(error),
        }
        outcome
    }
}

impl Limit {
    /// True if a figure is within it; false for a NaN.
    pub fn keeps(&self, is: f64) -> bool {
        (self.least..=self.most).contains(&is)
    }
}

/// Runs a plan to its end; a violated invariant panics.
pub fn run(plan: Plan) -> Result<World, String> {
    let Plan { setup, traffic, faults, seconds, drain_seconds, compares } = plan;
    let end = seconds * SECOND_NS;
    let stretches = if compares { stretch::clean(&faults, &setup, end) } else { Vec::new() };
    let apart = if compares { ideal::foreseen(&faults, &setup) } else { Vec::new() };
    let mut world = World::new(setup, traffic, faults)?;
    world.apart = apart;
    for (from, to) in stretches {
        world.run_until(from);
        world.begin_stretch(from);
        world.run_until(to);
        world.end_stretch(to);
    }
    world.run_until(end);
    if drain_seconds > 0 {
        world.end_traffic();
        let end = (seconds + drain_seconds) * SECOND_NS;
        world.run_until(end);
        world.check_nothing_is_forgotten(end);
    }
    Ok(world)
}

pub fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // No state of a run that panicked is used again.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
    })
}

/// Limits beyond this count as no limit.
const NO_LIMIT: f64 = 1e8;

#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// The seed of the rows that are all printed.
    pub first: u64,
    /// Further seeds after it; only rows that fail are printed.
    pub more: u64,
    /// The most POPs of a fleet that runs every row, and with those seeds, too. Larger ones run what a mechanism is
    /// noticed by ([`ABLATIONS`]).
    pub pops_max: usize,
    /// Workers of each POP. If none, seeds take turns at [`WORKERS`] in fleets of at most [`SMALL_POPS`] POPs, and
    /// larger ones have one worker.
    pub workers: Option<usize>,
}

/// Failures without a mechanism of the budget loop, a tab between the columns.
const ABLATIONS: &str = include_str!("ablations.tsv");
/// The most POPs of a fleet that is quickly simulated.
pub const SMALL_POPS: usize = 20;
/// The first words of the rows that take longest. They run with further seeds only if the largest fleets do.
const LONG: [&str; 3] = ["3,000 keys", "10,000 keys", "new keys without end"];
/// Workers of a POP, by seed.
const WORKERS: [usize; 3] = [1, 2, 8];

impl Runs {
    fn workers(self, seed: u64, size: Size) -> usize {
        let turn = usize::try_from(seed - self.first).map_or(0, |turn| turn % WORKERS.len());
        self.workers.unwrap_or(if size.pops > SMALL_POPS { 1 } else { WORKERS[turn] })
    }
}

/// True if the row of this label shows a mechanism.
fn notices_a_mechanism(label: &str) -> bool {
    ABLATIONS.lines().any(|line| line.starts_with("row\t") && line.split('\t').nth(2) == Some(label))
}

/// Runs every scenario whose name in a fleet contains `filter`, and hands `print` each outcome in the
/// table's order, and at last how many hold and fail. Returns how many fail.
pub fn table(filter: &str, runs: Runs, print: impl Fn(&str) + Sync) -> usize {
    let rows = || SCENARIOS.iter().flat_map(|scenario| scenario.fleets.iter().map(move |size| (scenario, *size)));
    let of_seed = |seed: u64| {
        let is_run = move |(scenario, size): &(&Scenario, Size)| {
            let label = scenario.label(*size);
            let is_long = LONG.iter().any(|name| scenario.name.starts_with(name));
            let is_small = size.pops <= runs.pops_max;
            let is_first = seed == runs.first && (is_small || !filter.is_empty() || notices_a_mechanism(&label));
            let is_quick = is_small && (!is_long || runs.pops_max > SMALL_POPS);
            (is_first || is_quick) && label.contains(filter)
        };
        let rows = rows().filter(is_run);
        rows.map(move |(scenario, size)| (scenario, size, seed))
    };
    let all: Vec<_> = (runs.first..=runs.first + runs.more).flat_map(of_seed).collect();
    let failed = AtomicUsize::new(0);
    in_order(
        &all,
        |(scenario, size, seed)| scenario.run(*size, *seed, runs.workers(*seed, *size)),
        |(scenario, size, seed), outcome| {
            failed.fetch_add(usize::from(!outcome.holds), Ordering::Relaxed);
            if *seed == runs.first {
                print(&line(scenario, *size, outcome));
            } else if !outcome.holds {
                let workers = runs.workers(*seed, *size);
                print(&format!("{}  (SEED={seed} WORKERS={workers})", line(scenario, *size, outcome)));
            }
        },
    );
    let failed = failed.into_inner();
    let Runs { first, more, .. } = runs;
    print(&format!("{} runs hold, {failed} fail (seeds {first} to {})", all.len() - failed, first + more));
    failed
}

/// Runs a random world for each seed, and hands each violation to `print`. Returns seeds by the invariant they violate.
pub fn random_worlds(seeds: &[u64], print: impl Fn(&str) + Sync) -> BTreeMap<String, Vec<u64>> {
    let violated = Mutex::new(BTreeMap::<_, Vec<_>>::new());
    in_order(
        seeds,
        |seed| random::check(*seed),
        |seed, checked| {
            if let Err(error) = checked {
                let mut violated = violated.lock().expect("no thread panics");
                violated.entry(invariant_of(error).to_owned()).or_default().push(*seed);
                print(error);
            }
        },
    );
    violated.into_inner().expect("no thread panics")
}

fn invariant_of(error: &str) -> &str {
    error.split_once(" is violated").map_or("no invariant", |(name, _)| name)
}

/// A line of the table: `name / POPs   figure (limit)   holds`.
pub fn line(scenario: &Scenario, size: Size, outcome: &Outcome) -> String {
    let result = if outcome.holds { "holds" } else { "FAILS" };
    let mut text = format!("{:35} {:>3}  {result}", scenario.name, size.pops);
    for (limit, reached) in scenario.limits.iter().zip(&outcome.reached) {
        let mark = if limit.keeps(*reached) { "" } else { "!" };
        let _ = write!(text, "  {} {mark}{} {}", limit.what, figure(*reached), wanted(limit));
    }
    if let Some(error) = &outcome.error {
        let _ = write!(text, "  {error}");
    }
    text
}

fn wanted(limit: &Limit) -> String {
    match (limit.least > 0.0, limit.most < NO_LIMIT) {
        (true, true) => format!("({} to {})", limit.least, limit.most),
        (true, false) => format!("(at least {})", limit.least),
        (false, true) => format!("(at most {})", limit.most),
        (false, false) => String::new(),
    }
}

fn figure(value: f64) -> String {
    if value.abs() >= 10.0 { format!("{value:.1}") } else { format!("{value:.4}") }
}

/// Runs `work` for all items on all cores, and `done` for each result in the items' order.
fn in_order<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync, done: impl Fn(&T, &R) + Sync) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (next, state) = (AtomicUsize::new(0), Mutex::new((0, items.iter().map(|_| None).collect::<Vec<_>>())));
    let run = || {
        while let Some((i, item)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?))) {
            let result = work(item);
            let mut state = state.lock().expect("no thread panics");
            state.1[i] = Some(result);
            while let Some(Some(result)) = state.1.get(state.0) {
                done(&items[state.0], result);
                state.0 += 1;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(run);
        }
    });
}
