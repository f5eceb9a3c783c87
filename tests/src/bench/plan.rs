//! How long the benchmark measures.

use std::time::Duration;

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds; each gives one value of every figure.
    pub rounds: usize,
    /// Fewer, but at least so many, where they last longer than `lasts`.
    pub least_rounds: usize,
    /// How long the rounds may last.
    pub lasts: Duration,
    /// How often a round visits every listener: what disturbs the machine for a while then meets them all.
    pub passes: usize,
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
    /// What docs/benchmarks.md is made with: a quarter of an hour on a quiet machine.
    pub const FULL: Self = Self {
        rounds: 21,
        least_rounds: 15,
        lasts: Duration::from_mins(20),
        passes: 4,
        requests: 4_000,
        alone: 500,
        few_addresses: 1_000_000,
        many_addresses: 10_000_000,
    };

    /// The main ratios, in under five minutes.
    pub const QUICK: Self = Self {
        rounds: 9,
        least_rounds: 3,
        lasts: Duration::from_secs(130),
        passes: 3,
        requests: 2_000,
        alone: 200,
        few_addresses: 100_000,
        many_addresses: 500_000,
    };
}
