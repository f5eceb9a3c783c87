//! Runs the table, and prints it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::random;
use super::scenario::{Limit, Outcome, Scenario, Size};
use super::scenarios::SCENARIOS;

/// Limits beyond this count as no limit.
const NO_LIMIT: f64 = 1e8;

/// The seeds that a table is run with.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// The seed of the rows that are all printed, in every fleet.
    pub first: u64,
    /// How many seeds after it are run, too, in fleets of at most [`SMALL_POPS`] POPs; only rows that fail are printed.
    pub more: u64,
}

/// The most POPs of a fleet that is quickly simulated.
const SMALL_POPS: usize = 20;

/// Runs every scenario whose name in a fleet contains `filter`, and hands `print` each outcome in the
/// table's order, and at last how many hold and fail. Returns how many fail.
pub fn table(filter: &str, seeds: Seeds, print: impl Fn(&str) + Sync) -> usize {
    let rows =
        || SCENARIOS.iter().flat_map(|scenario| scenario.fleets.iter().map(move |size| (scenario, *size)));
    let of_seed = |seed: u64| {
        let is_run = move |size: Size| seed == seeds.first || size.pops <= SMALL_POPS;
        let rows =
            rows().filter(move |(scenario, size)| is_run(*size) && scenario.label(*size).contains(filter));
        rows.map(move |(scenario, size)| (scenario, size, seed))
    };
    let runs: Vec<_> = (seeds.first..=seeds.first + seeds.more).flat_map(of_seed).collect();
    let failed = AtomicUsize::new(0);
    in_order(
        &runs,
        |(scenario, size, seed)| scenario.run(*size, *seed),
        |(scenario, size, seed), outcome| {
            failed.fetch_add(usize::from(!outcome.holds), Ordering::Relaxed);
            if *seed == seeds.first {
                print(&line(scenario, *size, outcome));
            } else if !outcome.holds {
                print(&format!("{}  (seed {seed})", line(scenario, *size, outcome)));
            }
        },
    );
    let failed = failed.into_inner();
    let Seeds { first, more } = seeds;
    print(&format!("{} runs hold, {failed} fail (seeds {first} to {})", runs.len() - failed, first + more));
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

/// The name of the invariant that an error says is violated.
fn invariant_of(error: &str) -> &str {
    error.split_once(" is violated").map_or("no invariant", |(name, _)| name)
}

/// A line of the table: `name / POPs   figure (limit)   holds`.
pub fn line(scenario: &Scenario, size: Size, outcome: &Outcome) -> String {
    let verdict = if outcome.holds { "holds" } else { "FAILS" };
    let mut text = format!("{:35} {:>3}  {verdict}", scenario.name, size.pops);
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
    let (next, state) =
        (AtomicUsize::new(0), Mutex::new((0, items.iter().map(|_| None).collect::<Vec<_>>())));
    let run = || {
        while let Some((i, item)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?)))
        {
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
