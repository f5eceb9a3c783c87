//! Runs the budget loop in simulation and prints what it reached: `make sim`.
//!
//! ```text
//! make sim                                   the table with three seeds, and random worlds of fixed ones
//! make sim ALL=1                             all of the table in large fleets, too, and with six seeds
//! make sim SCENARIO=hopping                  what of it has this in its name
//! make sim WORKERS=8                         the same at POPs of eight workers
//! make sim SEED=7 SCENARIO='random world'    one run again
//! make sim SEEDS=100000                      that many fresh random worlds
//! ```

use std::env;
use std::panic;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_tests::simulation::random;
use weir_tests::simulation::scenario::{self, Runs, SMALL_POPS};

/// The runs of the table: a seed for each number of workers; ...
const RUNS: Runs = Runs { first: 1, more: 2, pops_max: SMALL_POPS, workers: None };
/// ... and with `ALL`.
const ALL_RUNS: Runs = Runs { more: 5, pops_max: usize::MAX, ..RUNS };
/// Random worlds that every run sees again.
const FIXED_SEEDS: u64 = 300;

fn main() -> ExitCode {
    let filter = env::var("SCENARIO").unwrap_or_default();
    let (Ok(seed), Ok(seeds), Ok(workers)) = (number("SEED"), number("SEEDS"), number("WORKERS")) else {
        eprintln!("sim: SEED, SEEDS and WORKERS are whole numbers");
        return ExitCode::FAILURE;
    };
    // What panics is caught, and printed with its run.
    panic::set_hook(Box::new(|_| {}));
    let mut failed = 0;
    if seeds.is_none() {
        let all = if env::var("ALL").is_ok_and(|all| !all.is_empty()) { ALL_RUNS } else { RUNS };
        let workers = workers.and_then(|workers| usize::try_from(workers).ok());
        let runs = Runs { workers, ..seed.map_or(all, |first| Runs { first, more: 0, ..all }) };
        failed += scenario::table(&filter, runs, |line| println!("{line}"));
    }
    if random::NAME.contains(&filter) {
        let worlds = match (seed, seeds) {
            (Some(seed), _) => vec![seed],
            (None, Some(fresh)) => fresh_seeds(fresh),
            (None, None) => (1..=FIXED_SEEDS).collect(),
        };
        if let Some(seed) = seed {
            println!("{}", random::described(seed));
        }
        let violated = scenario::random_worlds(&worlds, |error| println!("{error}"));
        let fail: usize = violated.values().map(Vec::len).sum();
        println!("{} random worlds, of which {fail} violate an invariant", worlds.len());
        for (invariant, seeds) in violated {
            let named: Vec<_> = seeds.iter().map(u64::to_string).collect();
            println!("  {invariant}: {} (seeds {})", seeds.len(), named.join(", "));
        }
        failed += fail;
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn number(name: &str) -> Result<Option<u64>, std::num::ParseIntError> {
    env::var(name).ok().filter(|text| !text.is_empty()).map(|text| text.parse()).transpose()
}

/// So many seeds in a row, from the time of day.
fn fresh_seeds(count: u64) -> Vec<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = since.as_secs() * 1_000_000;
    println!("fresh seeds: {first} to {}", first + count.saturating_sub(1));
    (first..first + count).collect()
}
