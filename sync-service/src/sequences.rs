//! Telling stale reports from fresh ones, for the metrics only: counts are cumulative, so a stale
//! report is answered like any other.

use std::collections::HashMap;

use weir_limiter::time::{SECOND_NS, Time};

/// The most workers that are remembered.
pub const WORKERS_MAX: usize = 65_536;
/// How long a worker that says nothing is remembered once there are too many, in nanoseconds.
const IDLE_NS: u64 = 60 * SECOND_NS;

/// The last sequence number of each worker.
#[derive(Debug)]
pub struct Sequences {
    workers: HashMap<(String, u64), Last>,
    workers_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    sequence: u64,
    heard_at: Time,
}

impl Default for Sequences {
    fn default() -> Self {
        Self::with_workers_max(WORKERS_MAX)
    }
}

impl Sequences {
    /// Remembers at most `workers_max` workers.
    pub fn with_workers_max(workers_max: usize) -> Self {
        Self { workers: HashMap::new(), workers_max }
    }

    /// Whether a report is the newest of its worker so far; an unknown worker's always is.
    pub fn is_fresh(&mut self, now: Time, pop: &str, worker: u64, sequence: u64) -> bool {
        let name = (pop.to_owned(), worker);
        if let Some(last) = self.workers.get_mut(&name) {
            last.heard_at = now;
            let fresh = sequence > last.sequence;
            last.sequence = last.sequence.max(sequence);
            return fresh;
        }
        if self.workers.len() >= self.workers_max {
            self.workers.retain(|_, last| now.nanos_since(last.heard_at) <= IDLE_NS);
        }
        if self.workers.len() >= self.workers_max {
            // Thousands of workers a minute: nothing is worth remembering about any of them.
            self.workers.clear();
        }
        self.workers.insert(name, Last { sequence, heard_at: now });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_stale_and_repeated_from_fresh() {
        let mut sequences = Sequences::default();
        for (worker, sequence, fresh) in
            [(1, 1, true), (1, 2, true), (1, 2, false), (1, 1, false), (2, 1, true), (1, 3, true)]
        {
            assert_eq!(sequences.is_fresh(Time::ZERO, "pop", worker, sequence), fresh, "{worker} {sequence}");
        }
        assert!(sequences.is_fresh(Time::ZERO, "other", 1, 1));
    }

    #[test]
    fn never_remembers_more_than_the_maximum() {
        let mut sequences = Sequences::with_workers_max(10);
        for worker in 0..100 {
            sequences.is_fresh(Time::from_nanos(worker), "pop", worker, 1);
            assert!(sequences.workers.len() <= 10);
        }
    }
}
