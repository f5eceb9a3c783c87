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
    /// Requests of a visit that are measured for CPU time, over all connections at once.
    pub requests: usize,
    /// Requests of a visit that are measured for latency, one after the other.
    pub alone: usize,
    /// After a visit's requests, for how long CPU time still counts: what a service reports late.
    pub afterwards: Duration,
    /// What a key may have in a second, in the rounds: more than any is asked for.
    pub limit: u32,
    /// How long a key is asked for three times its limit.
    pub accuracy: Duration,
}

impl Plan {
    /// What docs/reference/benchmarks.md is made with: under seven minutes.
    pub const FULL: Self = Self {
        rounds: 9,
        least_rounds: 3,
        lasts: Duration::from_secs(210),
        requests: 20_000,
        alone: 400,
        // limitador's `redis_cached` tells Redis once a second.
        afterwards: Duration::from_millis(1_100),
        limit: 1_000,
        accuracy: Duration::from_mins(1),
    };

    /// For a look: about a minute.
    pub const QUICK: Self = Self {
        rounds: 3,
        least_rounds: 1,
        lasts: Duration::from_secs(40),
        requests: 4_000,
        alone: 200,
        accuracy: Duration::from_secs(5),
        ..Self::FULL
    };
}
