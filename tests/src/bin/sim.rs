//! Runs the budget loop in simulation and prints what it reached: `make sim`.

use weir_limiter::time::SECOND_NS;
use weir_tests::simulation::traffic::{self, Traffic};
use weir_tests::simulation::world::{Setup, World};

const SECONDS: u64 = 60;

fn main() {
    type Make = fn(usize) -> Traffic;
    let scenarios: [(&str, Make); 16] = [
        ("even 1.5x", |pops| traffic::even(150.0, pops)),
        ("even 5x", |pops| traffic::even(500.0, pops)),
        ("even 20x", |pops| traffic::even(2_000.0, pops)),
        ("Zipf 1.5x", |pops| traffic::zipf(150.0, pops)),
        ("Zipf 5x", |pops| traffic::zipf(500.0, pops)),
        ("Zipf 20x", |pops| traffic::zipf(2_000.0, pops)),
        ("even 0.9x", |pops| traffic::even(90.0, pops)),
        ("hopping every 1 s, 0.9x", |pops| traffic::hopping(90.0, pops, SECOND_NS)),
        ("one POP 3x", |_| traffic::even(300.0, 1)),
        ("hopping every 5 s, 3x", |pops| traffic::hopping(300.0, pops, 5 * SECOND_NS)),
        ("hopping every 1 s, 3x", |pops| traffic::hopping(300.0, pops, SECOND_NS)),
        ("hopping every 0.3 s, 3x", |pops| traffic::hopping(300.0, pops, SECOND_NS * 3 / 10)),
        ("hopping every 0.1 s, 3x", |pops| traffic::hopping(300.0, pops, SECOND_NS / 10)),
        ("jumping 1x to 50x every 3 s", |pops| traffic::jumping(100.0, 5_000.0, 3 * SECOND_NS, pops)),
        ("20 a POP every 0.5 s", |pops| traffic::bursts(20, pops, SECOND_NS / 2)),
        ("100 a POP every 10 s", |pops| traffic::bursts(100, pops, 10 * SECOND_NS)),
    ];
    println!(
        "{:28} {:>4}  {:>8} {:>8} {:>7} {:>8} {:>9}",
        "scenario", "POPs", "offered", "admitted", "ratio", "fullest", "overshoot"
    );
    for (name, make) in scenarios {
        for (pops, regions) in [(3, 3), (20, 5), (330, 30)] {
            let setup = Setup { pops, regions, ..Setup::default() };
            let mut world = World::new(setup, make(pops), 2 * SECOND_NS);
            world.run_until(World::TRAFFIC_BEGINS_NS + SECONDS * SECOND_NS);
            let account = &world.account;
            println!(
                "{name:28} {pops:>4}  {:>8} {:>8} {:>7.4} {:>8.3} {:>9.1}",
                account.offered,
                account.admitted,
                account.ratio(),
                account.fullest(),
                account.overshoot
            );
        }
    }
}
