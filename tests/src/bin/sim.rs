//! Runs the budget loop in simulation and prints what it reached: `make sim`.
//!
//! ```text
//! make sim                                   the table with several seeds, and random worlds of fixed ones
//! make sim SCENARIO=hopping                  what of it has this in its name
//! make sim SEED=7 SCENARIO='random world'    one run again
//! make sim SEEDS=100000                      so many fresh random worlds
//! ```

use std::env;
use std::panic;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_tests::simulation::report::Seeds;
use weir_tests::simulation::{random, report};

/// The seeds of the table.
const SEEDS: Seeds = Seeds { first: 1, more: 4 };
/// Random worlds that every run sees again.
const FIXED_SEEDS: u64 = 300;

fn main() -> ExitCode {
    let filter = env::var("SCENARIO").unwrap_or_default();
    let (Ok(seed), Ok(seeds)) = (number("SEED"), number("SEEDS")) else {
        eprintln!("sim: SEED and SEEDS are whole numbers");
        return ExitCode::FAILURE;
    };
    // What panics is caught, and printed with its run.
    panic::set_hook(Box::new(|_| {}));
    let mut failed = 0;
    if seeds.is_none() {
        let of_table = seed.map_or(SEEDS, |first| Seeds { first, more: 0 });
        failed += report::table(&filter, of_table, |line| println!("{line}"));
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
        let violated = report::random_worlds(&worlds, |error| println!("{error}"));
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
