//! A scenario, and its run.

use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_protocol::time::SECOND_NS;

use super::apart;
use super::faults::Schedule;
use super::setup::Setup;
use super::stretch;
use super::traffic::Traffic;
use super::world::World;

/// A fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// POPs.
    pub pops: usize,
    /// Regions.
    pub regions: usize,
}

/// The fleets that a scenario runs in.
pub const FLEETS: &[Size] =
    &[Size { pops: 3, regions: 3 }, Size { pops: 20, regions: 5 }, Size { pops: 330, regions: 30 }];

/// A world, and how long it runs.
pub struct Plan {
    /// The world.
    pub setup: Setup,
    /// The traffic.
    pub traffic: Traffic,
    /// The faults.
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
}

/// A figure and what it must reach.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The name of the figure.
    pub what: &'static str,
    /// The figure.
    pub of: fn(&World) -> f64,
    /// It must be at least this.
    pub least: f64,
    /// It must be at most this.
    pub most: f64,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// The fleets it runs in.
    pub fleets: &'static [Size],
    /// Its plan.
    pub plan: fn(Size) -> Plan,
    /// The figures that it must reach.
    pub limits: &'static [Limit],
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The scenario and its fleet.
    pub name: String,
    /// The figures, in the order of the limits.
    pub reached: Vec<f64>,
    /// The reason why there are no figures.
    pub error: Option<String>,
    /// True if every limit is kept.
    pub holds: bool,
}

impl Scenario {
    /// Its name in a fleet.
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
    let apart = if compares { apart::foreseen(&faults, &setup) } else { Vec::new() };
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

/// The result of `work`, or the text of its panic.
pub fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // No state of a run that panicked is used again.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
    })
}
