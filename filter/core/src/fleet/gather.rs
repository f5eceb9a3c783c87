//! One edge that reports for all workers of a program: it takes over what they have to report.
//!
//! ```text
//! worker -- keys with something to report, bans -> gather         -> the reporter's list -> a report
//! worker <- denials that hold no longer         <- take_forgotten <- the reporter        <- a reply
//! ```
//!
//! Counts are in the slots that all share. What moves is which keys have something to report, and what they were asked
//! for. Keys of strict rules stay: a worker draws for its requests by itself, and only it knows what its draws said.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::exchange::Exchange;
use crate::RuleIndex;
use crate::limiter::Limiter;
use crate::table::slot::Tag;
use weir_wire::time::Time;

impl Limiter {
    /// From now on this is the reporter: it notes which denials no longer hold, for workers to be told.
    pub(crate) fn note_forgotten(&mut self) {
        self.deny_cache.note_forgotten();
    }

    /// The keys whose denials no longer hold, since this was last asked: for [`Limiter::forget_denials`] of every worker.
    pub(crate) fn take_forgotten(&mut self) -> Vec<Tag> {
        self.deny_cache.take_forgotten()
    }

    /// The buckets of these keys have changed.
    pub(crate) fn forget_denials(&mut self, tags: &[Tag]) {
        for tag in tags {
            self.deny_cache.forget(*tag);
        }
    }

    /// Takes over what `worker` has to report, as far as there is room for it; what stays there, the worker reports. Tells
    /// it in turn what draws need to know of weir-sync.
    pub(crate) fn gather(&mut self, worker: &mut Self, now: Time) {
        let is_same = Arc::ptr_eq(&self.rules, &worker.rules);
        let (mine, theirs) = (&self.terms, &worker.terms);
        // Where one of the two has replaced its rules already, an unchanged rule may have another index.
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
            theirs.hear_through(mine);
        }
    }
}

impl Exchange {
    /// What the reporter knows of weir-sync, for this worker's draws.
    fn hear_through(&mut self, reporter: &Self) {
        self.version_before_until = self.version_before_until.max(reporter.version_before_until);
        self.answers_take_ns = self.answers_take_ns.or(reporter.answers_take_ns);
    }
}
