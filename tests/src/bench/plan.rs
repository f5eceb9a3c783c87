//! How long the benchmark measures.

use std::time::Duration;

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Whether every listener is visited, or only those that the main ratios need.
    pub all: bool,
    /// Rounds, in each of which every listener has an Envoy of its own: at least so many, ...
    pub least_rounds: usize,
    /// ... and for so long.
    pub lasts: Duration,
    /// Each so many rounds one has the listeners with rotating callers: all of these must have come before it is measured.
    pub rotating_every: usize,
    /// Visits to a listener in a round.
    pub visits: usize,
    /// Requests of a visit before it is measured, a tenth of a second of them: what ran before has left its own data in the
    /// caches, and a listener that people run has had them, and its clients, to itself for long.
    pub warm_up: usize,
    /// Requests of a visit that are measured for CPU time, over all connections at once.
    pub requests: usize,
    /// Requests of a visit that are measured for latency, one after the other.
    pub alone: usize,
    /// Distinct addresses before memory is first looked at.
    pub few_addresses: u32,
    /// Distinct addresses before it is looked at again.
    pub many_addresses: u32,
}

impl Plan {
    /// What docs/benchmarks.md is made with, in 20 minutes on a quiet machine.
    pub const FULL: Self = Self {
        all: true,
        least_rounds: 6,
        lasts: Duration::from_mins(8),
        rotating_every: 3,
        visits: 3,
        warm_up: 2_000,
        requests: 3_000,
        alone: 50,
        few_addresses: 1_000_000,
        many_addresses: 10_000_000,
    };

    /// The main ratios, in under five minutes.
    pub const QUICK: Self = Self {
        all: false,
        least_rounds: 3,
        lasts: Duration::from_secs(160),
        few_addresses: 100_000,
        many_addresses: 500_000,
        ..Self::FULL
    };
}
