//! The simulation itself: what it says can be reproduced.

use weir_limiter::time::SECOND_NS;
use weir_tests::simulation::traffic::{self, Traffic};
use weir_tests::simulation::world::{Setup, World};

fn run(seed: u64) -> String {
    let setup = Setup { seed, pops: 20, regions: 5, ..Setup::default() };
    let mut world = World::new(setup, traffic::zipf(500.0, 20), 2 * SECOND_NS);
    world.run_until(World::TRAFFIC_BEGINS_NS + 10 * SECOND_NS);
    format!("{:?}", world.account)
}

#[test]
fn one_seed_is_one_run_to_the_bit() {
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn pops_that_share_a_budget_admit_one_quota_together() {
    for (pops, regions) in [(3, 3), (20, 5), (330, 30)] {
        let ratio = ratio_of(pops, regions, traffic::zipf(500.0, pops));
        assert!((0.99..=1.01).contains(&ratio), "{pops} POPs admitted {ratio} of what one bucket would");
    }
}

/// Every POP holds the hot key's allowance before its client arrives, so moving gains nothing.
#[test]
fn a_client_who_moves_from_pop_to_pop_gains_nothing() {
    for (pops, regions) in [(3, 3), (20, 5), (330, 30)] {
        let ratio = ratio_of(pops, regions, traffic::hopping(300.0, pops, 3 * SECOND_NS / 10));
        assert!((0.985..=1.01).contains(&ratio), "{pops} POPs admitted {ratio} of what one bucket would");
    }
}

fn ratio_of(pops: usize, regions: usize, traffic: Traffic) -> f64 {
    let mut world = World::new(Setup { pops, regions, ..Setup::default() }, traffic, 2 * SECOND_NS);
    world.run_until(World::TRAFFIC_BEGINS_NS + 60 * SECOND_NS);
    world.account.ratio()
}
