//! The loads that the fleet is measured under, by the end-to-end tests and, for longer, by `make regions`.

use std::time::Duration;

use super::schedule::{Arrival, Place, burst, poisson};
use super::{BROKEN, Fault};

/// What a client asks of the fleet over some time.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// What tables and failures call it.
    pub name: &'static str,
    /// Requests per second, as a multiple of the rate.
    pub offered: f64,
    /// Where they go.
    pub place: Place,
    /// Whether it begins with a whole burst at every POP at once.
    pub bursts: bool,
}

/// Contended: three times the quota, to each POP the same.
pub const EVEN: Scenario = steady("even, 3x", 3.0, Place::Even);
/// The same, to one much more than to another.
pub const ZIPF: Scenario = steady("Zipf, 3x", 3.0, Place::Zipf);
/// Contended, at one POP alone.
pub const ONE_POP: Scenario = steady("one POP, 3x", 3.0, Place::At(0));
/// Below the limit.
pub const BELOW: Scenario = steady("even, 0.9x", 0.9, Place::Even);
/// Below the limit, and moving.
pub const BELOW_MOVING: Scenario =
    steady("moving every 1 s, 0.9x", 0.9, Place::Hopping(Duration::from_secs(1)));
/// A client that moves about as often as POPs report.
pub const MOVING_FAST: Scenario =
    steady("moving every 0.3 s, 3x", 3.0, Place::Hopping(Duration::from_millis(300)));
/// A client that stays a little longer than it takes to be known.
pub const MOVING: Scenario = steady("moving every 1 s, 3x", 3.0, Place::Hopping(Duration::from_secs(1)));
/// A whole burst at every POP at once, before any of them has heard of the client.
pub const BURST: Scenario =
    Scenario { bursts: true, ..steady("burst at all at once, then 3x", 3.0, Place::Even) };
/// A client of the region that an outage is in, and of no other.
pub const AT_BROKEN: Scenario = steady("at the broken region, 3x", 3.0, Place::At(BROKEN));

/// How close together the requests of a burst are.
const BURST_WITHIN: Duration = Duration::from_millis(50);

const fn steady(name: &'static str, offered: f64, place: Place) -> Scenario {
    Scenario { name, offered, place, bursts: false }
}

impl Scenario {
    /// Its requests, where `rate` per second and `burst` at once are allowed.
    pub fn schedule(&self, seed: u64, rate: u32, burst_size: u32, lasts: Duration) -> Vec<Arrival> {
        let per_second = self.offered * f64::from(rate);
        let mut arrivals = vec![];
        if self.bursts {
            arrivals = burst(seed, usize::try_from(burst_size).unwrap_or(usize::MAX), BURST_WITHIN);
        }
        let from = if self.bursts { BURST_WITHIN } else { Duration::ZERO };
        arrivals.extend(poisson(seed, per_second, self.place, from, lasts));
        arrivals
    }
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::WeirSyncKilled, Self::StoreCut, Self::RedisKilled, Self::PopSilenced];

    /// What tables and failures call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WeirSyncKilled => "a region's weir-sync killed",
            Self::StoreCut => "a region's link to Redis cut",
            Self::RedisKilled => "Redis killed, back empty",
            Self::PopSilenced => "a POP's link to weir-sync silent",
        }
    }
}
