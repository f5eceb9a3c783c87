//! Reporting by one engine for all workers of a program.
//!
//! ```text
//! worker -- keys with something to report, bans -> gather         -> the reporter's list -> a report
//! worker <- refusals that are no longer valid   <- take_forgotten <- the reporter        <- a reply
//! ```
//!
//! The counts are in the slots that all workers share. The reporter takes over the names of keys with
//! something to report, and their demand. Keys of strict rules stay with their worker, which acquires tokens
//! for its own requests and has the records of those calls.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::exchange::SyncState;
use crate::RuleIndex;
use crate::limiter::Limiter;
use crate::table::slot::Tag;
use weir_protocol::time::Time;

impl Limiter {
    /// Makes this the reporter: from now on it records the cached refusals that workers must drop.
    pub(crate) fn record_forgotten(&mut self) {
        self.local_cache.record_forgotten();
    }

    /// Takes the keys whose cached refusals must be dropped, for [`Limiter::forget_denials`] of every worker.
    pub(crate) fn take_forgotten(&mut self) -> Vec<Tag> {
        self.local_cache.take_forgotten()
    }

    /// Drops cached refusals of these keys, whose buckets have changed.
    pub(crate) fn forget_denials(&mut self, tags: &[Tag]) {
        for tag in tags {
            self.local_cache.forget(*tag);
        }
    }

    /// Takes over the reports of `worker`, as far as there is room. The worker reports the rest. In return it
    /// gets the state that acquiring tokens depends on.
    pub(crate) fn gather(&mut self, worker: &mut Self, now: Time) {
        let is_same = Arc::ptr_eq(&self.rules, &worker.rules);
        let (mine, theirs) = (&self.terms, &worker.terms);
        // If only one of the two has replaced its rules yet, an unchanged rule may have different indices.
        let to = |rule: RuleIndex| {
            let terms = theirs.get(usize::from(rule)).filter(|terms| !terms.is_strict)?;
            if is_same {
                return Some(rule);
            }
            RuleIndex::of(mine.iter().position(|known| known.salt == terms.salt)?)
        };
        let watch = &mut self.watch;
        worker.watch.hand_over(|key| to(key.name.rule).is_some_and(|rule| watch.take_over(key, rule, now)));
        if let (Some(mine), Some(theirs)) = (&mut self.exchange, &mut worker.exchange) {
            mine.take_over_bans(theirs, to);
            theirs.observe_through(mine);
        }
    }
}

impl SyncState {
    /// Copies the reporter's knowledge of weir-sync, for this worker's calls.
    fn observe_through(&mut self, reporter: &Self) {
        self.answers_take_ns = self.answers_take_ns.or(reporter.answers_take_ns);
    }
}
