//! Worlds drawn from a seed: any size, any traffic, any faults. Only the invariants are asked for.

use std::fmt::Write as _;

use fastrand::Rng;
use weir_limiter::time::SECOND_NS;

use super::faults;
use super::scenario::{self, Plan};
use super::setup::{PATHS, RuleText, Setup};
use super::traffic::{self, Traffic};

/// What SCENARIO names these worlds by.
pub const NAME: &str = "random world";
/// How long traffic lasts, in seconds.
const SECONDS: u64 = 20;
/// How long the world goes on after it, in seconds.
const DRAIN_SECONDS: u64 = 30;
/// The most faults of a world.
const FAULTS_MAX: usize = 8;

/// The world of a seed.
pub fn plan(seed: u64) -> Plan {
    // Not the world's own generator, which begins with the same seed.
    let mut rng = Rng::with_seed(!seed);
    let pops = rng.usize(1..=12);
    let mut rules = vec![rule("r0", None, &mut rng)];
    if rng.bool() {
        rules.push(rule("r1", Some(PATHS[1]), &mut rng));
    }
    let keys = rng.u32(1..=3);
    let setup = Setup {
        seed,
        scenario: NAME.into(),
        rules,
        keys,
        pops,
        regions: rng.usize(1..=pops.min(4)),
        syncs_per_region: rng.usize(1..=2),
        workers: rng.usize(1..=2),
        slots: rng.u32(1..=3),
        interval_ns: [100_000_000, 250_000_000, 500_000_000][rng.usize(0..3)],
        drift_ppm_max: 200,
        ..Setup::default()
    };
    let traffic = (0..keys).map(|key| traffic::of(key, rng.u8(0..2), shape(pops, &mut rng))).collect();
    let (count, until) = (rng.usize(0..=FAULTS_MAX), (SECONDS - 2) * SECOND_NS);
    let faults = faults::random(&setup, count, SECOND_NS, until, &mut rng);
    Plan { setup, traffic: traffic::merged(traffic), faults, seconds: SECONDS, drain_seconds: DRAIN_SECONDS }
}

fn rule(name: &str, path: Option<&'static str>, rng: &mut Rng) -> RuleText {
    let (rate, burst) = [("100/s", 100), ("10/s", 20), ("600/m", 5), ("1000/s", 50)][rng.usize(0..4)];
    RuleText { name: name.into(), path, rate: rate.into(), burst, options: String::new() }
}

fn shape(pops: usize, rng: &mut Rng) -> Traffic {
    let (half_ns, rate) = (rng.u64(SECOND_NS / 10..4 * SECOND_NS), f64::from(rng.u32(5..500)));
    match rng.u8(0..5) {
        0 => traffic::even(rate, pops),
        1 => traffic::zipf(rate, pops),
        2 => traffic::hopping(rate, pops, half_ns),
        3 => traffic::jumping(rate / 20.0, rate, half_ns, pops),
        _ => traffic::bursts(rng.usize(1..100), pops, half_ns),
    }
}

/// Runs the world of a seed; an error says which invariant does not hold, and how to see it again.
pub fn check(seed: u64) -> Result<(), String> {
    scenario::caught(|| scenario::run(plan(seed)).map(|_| ()))
}

/// The world of a seed in words: its size, and what goes wrong when.
pub fn described(seed: u64) -> String {
    let Plan { setup, faults, .. } = plan(seed);
    let Setup { rules, keys, pops, regions, syncs_per_region, workers, interval_ns, .. } = setup;
    let mut text = format!(
        "{pops} POPs of {workers} workers, {regions} regions of {syncs_per_region} weir-syncs, {keys} keys, \
         every {} ms",
        interval_ns / 1_000_000
    );
    for RuleText { name, path, rate, burst, .. } in rules {
        let _ = write!(text, "\n  {name}: {rate}, burst {burst}, path {}", path.unwrap_or(PATHS[0]));
    }
    for (at, fault) in faults {
        let _ = write!(text, "\n  at {:>5} ms {fault:?}", at / 1_000_000);
    }
    text
}
