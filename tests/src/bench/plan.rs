//! How long the benchmark measures.

use std::time::Duration;

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Whether every listener is visited, or only those that the main ratios need.
    pub all: bool,
    /// Sweeps; each visits every listener once.
    pub sweeps: usize,
    /// Fewer, but at least so many, where they last longer than `lasts`.
    pub least_sweeps: usize,
    /// How long the sweeps may last.
    pub lasts: Duration,
    /// Requests of a visit before it is measured: what ran before has left its own data in the caches.
    pub warm_up: usize,
    /// Requests of a visit that are measured for CPU time, over all connections at once. Few: what disturbs the
    /// machine comes in pieces of some hundredths of a second, and the shorter a visit, the likelier it lies
    /// between two of them.
    pub requests: usize,
    /// Requests of a visit that are measured for latency, one after the other.
    pub alone: usize,
    /// Distinct addresses before memory is first looked at.
    pub few_addresses: u32,
    /// Distinct addresses before it is looked at again.
    pub many_addresses: u32,
}

impl Plan {
    /// What docs/reference/benchmarks.md is made with, in a quarter of an hour on a quiet machine.
    pub const FULL: Self = Self {
        all: true,
        sweeps: 1_000,
        least_sweeps: 100,
        lasts: Duration::from_mins(8),
        warm_up: 150,
        requests: 300,
        alone: 20,
        few_addresses: 1_000_000,
        many_addresses: 10_000_000,
    };

    /// The main ratios, in under five minutes.
    pub const QUICK: Self = Self {
        all: false,
        least_sweeps: 50,
        lasts: Duration::from_secs(170),
        few_addresses: 100_000,
        many_addresses: 500_000,
        ..Self::FULL
    };
}
