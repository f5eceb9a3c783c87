//! The loads that the fleet is measured under, by the end-to-end tests and, for longer, by `make regions`. When each
//! request is sent, and to which POP, is fixed before a load begins, whatever the answers will be.

use std::time::Duration;

use fastrand::Rng;

use super::{BROKEN, Fault, POPS};
use crate::simulation::traffic::{self, Traffic};

/// A request: when, from the beginning of the load, and at which POP.
pub type Arrival = (Duration, usize);

/// A client's requests to the fleet over some time.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name in tables and failures.
    pub name: &'static str,
    /// Its requests, given the rate and the burst that are allowed.
    traffic: fn(f64, u32) -> Traffic,
}

/// Contended: three times the quota, to each POP the same.
pub const EVEN: Scenario = of("even, 3x", |rate, _| traffic::even(3.0 * rate, POPS));
/// The same, to one much more than to another.
pub const ZIPF: Scenario = of("Zipf, 3x", |rate, _| traffic::zipf(3.0 * rate, POPS));
/// Contended, at one POP alone.
pub const ONE_POP: Scenario = of("one POP, 3x", |rate, _| traffic::even(3.0 * rate, 1));
/// Below the limit.
pub const BELOW: Scenario = of("even, 0.9x", |rate, _| traffic::even(0.9 * rate, POPS));
/// Below the limit, and moving.
pub const BELOW_MOVING: Scenario =
    of("moving every 1 s, 0.9x", |rate, _| traffic::hopping(0.9 * rate, POPS, 1_000 * MS));
/// A client that moves about as often as POPs report.
pub const MOVING_FAST: Scenario = of("moving every 0.3 s, 3x", |rate, _| traffic::hopping(3.0 * rate, POPS, 300 * MS));
/// A client that stays a little longer than it takes to be known.
pub const MOVING: Scenario = of("moving every 1 s, 3x", |rate, _| traffic::hopping(3.0 * rate, POPS, 1_000 * MS));
/// A whole burst at every POP at once, before any grant for the client arrives.
pub const BURST: Scenario = of("burst at all at once, then 3x", |rate, burst| {
    let each = usize::try_from(burst).unwrap_or(usize::MAX);
    let once = traffic::between(0, 1_000 * MS, traffic::bursts(each, POPS, 1_000 * MS));
    traffic::merged(vec![once, traffic::between(50 * MS, u64::MAX, traffic::even(3.0 * rate, POPS))])
});
/// A client of the region that an outage is in, and of no other.
pub const AT_BROKEN: Scenario =
    of("at the broken region, 3x", |rate, _| traffic::at_pops(3.0 * rate, POPS, |pop| pop == BROKEN));

const MS: u64 = 1_000_000;

const fn of(name: &'static str, traffic: fn(f64, u32) -> Traffic) -> Scenario {
    Scenario { name, traffic }
}

impl Scenario {
    /// Its requests, where `rate` per second and `burst` at once are allowed.
    pub fn schedule(&self, seed: u64, rate: u32, burst: u32, lasts: Duration) -> Vec<Arrival> {
        schedule(seed, (self.traffic)(rate.into(), burst), lasts)
    }
}

/// The requests of `traffic` in the time that a load lasts. One seed is one schedule.
pub fn schedule(seed: u64, traffic: Traffic, lasts: Duration) -> Vec<Arrival> {
    let until = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
    let (mut rng, mut traffic) = (Rng::with_seed(seed), traffic::between(0, until, traffic));
    let requests = std::iter::from_fn(|| traffic(&mut rng));
    requests.map(|next| (Duration::from_nanos(next.at), next.pop)).collect()
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::WeirSyncKilled, Self::StoreCut, Self::RedisKilled, Self::PopSilenced];

    /// Its name in tables and failures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WeirSyncKilled => "a region's weir-sync killed",
            Self::StoreCut => "a region's link to Redis cut",
            Self::RedisKilled => "Redis killed, back empty",
            Self::PopSilenced => "a POP's link to weir-sync silent",
        }
    }
}
