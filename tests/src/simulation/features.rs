//! Features of some random worlds beside quotas: penalties, the calendar, windows that the fleet shares, and a rule
//! set that is replaced.
//!
//! They are drawn with a salt of their own, so a world that tries none of them is as if there were no such thing.

use fastrand::Rng;

use super::bans::{self, Penalty};
use super::calendars::Turn;
use super::faults::Schedule;
use super::pushes::Push;
use super::setup::Setup;
use super::shapes::Asking;
use super::strict_windows::Windows;
use super::world::World;

/// One world in this many tries one of these, and no other trial.
const ONE_IN: u32 = 8;
const SALT: u64 = 0x0049_5353_5545_3133;

/// The feature that a world tries.
#[derive(Clone, Debug)]
pub enum Feature {
    /// A client earns bans.
    Penalty(Penalty),
    /// Midnight comes.
    Turn(Turn),
    /// The fleet shares windows.
    Windows(Windows),
    /// A rule set is put.
    Push(Push),
}

/// The world that it is drawn for.
#[derive(Clone, Copy, Debug)]
pub struct For {
    /// Tokens per second of the first rule, ...
    pub rate: f64,
    /// ... and at once.
    pub burst: u32,
    /// The most that a client asks for, in requests per second.
    pub most: f64,
    /// The length of traffic, in seconds.
    pub seconds: u64,
    /// The last time at which something may go wrong, in nanoseconds.
    pub until: u64,
}

impl Feature {
    /// True if the world of a seed tries one.
    pub fn is_tried(seed: u64) -> bool {
        generator(seed).u32(0..ONE_IN) == 0
    }

    /// Draws the one that a world tries.
    pub fn draw(setup: &mut Setup, clients: &mut Vec<Asking>, faults: &mut Schedule, of: For) -> Self {
        let mut rng = generator(!setup.seed);
        let For { rate, burst, most, seconds, until } = of;
        match rng.u32(0..5) {
            0 => Self::Penalty(Penalty::draw(setup, clients, (rate, burst, most), &mut rng)),
            1 => Self::Turn(Turn::draw(setup, clients, faults, (rate, most, seconds), &mut rng)),
            2 | 3 => Self::Windows(Windows::draw(setup, clients, faults, (rate, most), &mut rng)),
            _ => Self::Push(Push::draw(setup, clients, faults, (rate, most, until), &mut rng)),
        }
    }

    /// True if admissions can be compared with an ideal limiter that has the first rules.
    pub fn compares(&self) -> bool {
        matches!(self, Self::Push(_))
    }

    /// Ends the run if it differs from the rule set. `end` is when the traffic of `clients` ends, in nanoseconds.
    pub fn check(&self, world: &World, faults: &Schedule, clients: &[Asking], end: u64) {
        match self {
            Self::Penalty(penalty) => penalty.check(world, faults, end),
            Self::Turn(turn) => turn.check(world, faults, end),
            Self::Windows(windows) => windows.check(world, faults, clients, end),
            Self::Push(push) => push.check(world, faults, end),
        }
    }

    /// Its results, to look at.
    pub fn counted(&self, world: &World) -> String {
        match self {
            Self::Penalty(penalty) => bans::counted(world, penalty),
            Self::Turn(turn) => turn.counted(world),
            Self::Windows(windows) => windows.counted(world),
            Self::Push(push) => push.counted(world),
        }
    }
}

fn generator(seed: u64) -> Rng {
    Rng::with_seed(seed.rotate_left(17) ^ SALT)
}
