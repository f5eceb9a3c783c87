//! The workers of each POP that have keys to report: together they may say what its line is stated to carry.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_limiter::time::{SECOND_NS, Time};
use weir_limiter::wire::{POPS_MAX, WORKERS_MAX};

/// A worker that has reported no key for so long, in nanoseconds, has none: a warm one is reported every two seconds.
const BUSY_NS: u64 = 5 * SECOND_NS / 2;

/// The busy workers, by POP, each with when it last reported a key.
#[derive(Debug, Default)]
pub struct Workers {
    pops: BTreeMap<String, Vec<(u64, Time)>>,
    swept_at: Time,
}

impl Workers {
    /// `worker` of `pop` has reported a key at `now`. How many do, with this one; at least 1, at most
    /// [`WORKERS_MAX`].
    pub fn hear(&mut self, now: Time, pop: &str, worker: u64) -> u32 {
        self.sweep(now);
        if !self.pops.contains_key(pop) {
            if self.pops.len() >= POPS_MAX as usize {
                return 1;
            }
            self.pops.insert(pop.into(), Vec::new());
        }
        let Some(busy) = self.pops.get_mut(pop) else { return 1 };
        busy.retain(|(known, at)| *known != worker && is_busy(*at, now));
        if busy.len() < WORKERS_MAX as usize {
            busy.push((worker, now));
        }
        u32::try_from(busy.len()).unwrap_or(WORKERS_MAX)
    }

    fn sweep(&mut self, now: Time) {
        if now.nanos_since(self.swept_at) < SECOND_NS {
            return;
        }
        self.swept_at = now;
        self.pops.retain(|_, busy| busy.iter().any(|(_, at)| is_busy(*at, now)));
    }
}

fn is_busy(at: Time, now: Time) -> bool {
    now.nanos_since(at) < BUSY_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn at(ms: u64) -> Time {
        Time::from_nanos(SECOND_NS + ms * 1_000_000)
    }

    #[test]
    fn counts_the_workers_of_a_pop_that_report_keys() {
        let mut workers = Workers::default();
        let heard = [(0, "a", 1), (1, "a", 2), (2, "b", 3), (250, "a", 1), (2_400, "a", 1), (2_600, "a", 1)];
        let counted = heard.map(|(ms, pop, worker)| workers.hear(at(ms), pop, worker));
        assert_eq!(counted, [1, 2, 1, 2, 2, 1]);
    }

    #[test]
    fn names_that_are_made_up_take_bounded_memory() {
        let mut workers = Workers::default();
        for worker in 0..2 * u64::from(WORKERS_MAX) {
            assert!(workers.hear(at(0), "a", worker) <= WORKERS_MAX);
        }
        for pop in 0..2 * POPS_MAX {
            workers.hear(at(0), &format!("{pop}"), 1);
        }
        assert_eq!(workers.pops.len(), POPS_MAX as usize);
        workers.hear(at(5_000), "b", 1);
        assert_eq!(workers.pops.len(), 1);
    }
}
