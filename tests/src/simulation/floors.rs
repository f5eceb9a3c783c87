//! The scenarios of the table in which region 0 has a floor, and the other regions flood.

use weir_protocol::time::SECOND_NS;

use super::scenario::{Plan, Size};
use super::settings::contended;
use super::setup::{RuleText, Setup};
use super::traffic;
use super::world::World;

/// The option that gives region 0 a floor, ...
const OPTION: &str = r#""min_share": {"region-0": 30}"#;
/// ... and the floor as a part of the rate.
const PART: f64 = 0.3;

/// Region 0 has a floor and is asked for `asks` a second; the others are flooded.
pub fn asking(size: Size, asks: f64) -> Plan {
    let mut plan = Plan::of(size, 60, asked_and_flooded(size, asks, 2_000.0));
    plan.setup.rules = vec![RuleText::with(OPTION)];
    plan
}

/// Admissions of region 0 after settling, as a part of those of an ideal bucket of its floor alone.
/// That bucket, too, refuses some of what is asked for at just its rate.
pub fn of_floor(world: &World) -> f64 {
    let (from, to) = (5, 60);
    world.reference.between(from, to, |sample| sample.regions[0].admitted)
        / world.reference.between(from, to, |sample| sample.by_floor)
}

/// A floor of three tokens in ten seconds; region 0 is asked for one of them, the others for ten times the rate.
pub fn slow(size: Size) -> Plan {
    let traffic = asked_and_flooded(size, 0.1, 10.0);
    let mut plan = Plan { traffic, ..contended(size, 1, 10, 1.0, 600) };
    plan.setup.rules[0].options = OPTION.into();
    plan
}

/// A floor whose burst refills faster than a POP's reports reach one of two weir-syncs.
pub fn reported_in_turn(size: Size) -> Plan {
    let traffic = asked_and_flooded(size, 77.0, 600.0);
    let mut plan = Plan { traffic, ..contended(size, 300, 54, 1.0, 60) };
    plan.setup.rules[0].options = OPTION.into();
    Plan { setup: Setup { syncs_per_region: 2, ..plan.setup }, ..plan }
}

fn asked_and_flooded(size: Size, asks: f64, flood: f64) -> traffic::Traffic {
    let regions = size.regions;
    let asking = traffic::at_pops(asks, size.pops, move |pop| pop % regions == 0);
    let flood = traffic::at_pops(flood, size.pops, move |pop| pop % regions != 0);
    traffic::merged(vec![asking, flood])
}

/// Region 0 has a floor, and is flooded every other second; the others are flooded all the time.
pub fn in_pulses(size: Size) -> Plan {
    let regions = size.regions;
    let pulses = traffic::at_pops(400.0, size.pops, move |pop| pop % regions == 0);
    let pulses = traffic::when(pulses, |at| (at / SECOND_NS).is_multiple_of(2));
    let flood = traffic::at_pops(2_000.0, size.pops, move |pop| pop % regions != 0);
    let mut plan = Plan::of(size, 60, traffic::merged(vec![pulses, flood]));
    plan.setup.rules = vec![RuleText::with(OPTION)];
    plan
}

/// Admissions of region 0, as a part of its floor's rate in the whole time.
pub fn of_its_rate(world: &World) -> f64 {
    let (from, to) = (4, 60);
    let floor = PART * world.reference.account(0, 0).rate() * (to - from) as f64;
    world.reference.between(from, to, |sample| sample.regions[0].admitted) / floor
}
