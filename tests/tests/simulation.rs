//! The simulation itself: what it says can be reproduced.

use weir_limiter::time::SECOND_NS;
use weir_tests::simulation::traffic;
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
    let setup = Setup { pops: 20, regions: 5, ..Setup::default() };
    let mut world = World::new(setup, traffic::even(500.0, 20), 2 * SECOND_NS);
    world.run_until(World::TRAFFIC_BEGINS_NS + 60 * SECOND_NS);
    let ratio = world.account.ratio();
    assert!((0.97..=1.03).contains(&ratio), "admitted {ratio} of what one ideal bucket would have");
}
