//! One edge that reports for all workers of a program, where these share its memory.
//!
//! Its host makes it beside those of the workers, and gives it no request. Before each of its ticks that
//! [reports](Edge::is_about_to_report), it [gathers](Edge::gather) from each worker. Then the workers tick, and right before
//! that it gathers once more: what requests came in between is for its next report. After each of its ticks and answers, the workers [forget](Edge::forget_denials) what it [says](Edge::take_forgotten).

use alloc::vec::Vec;

use super::state::Edge;
use crate::table::slot::Tag;
use weir_wire::time::Time;

impl Edge {
    /// Makes this the reporter.
    pub fn become_reporter(&mut self) {
        self.limiter.note_forgotten();
    }

    /// Whether its next tick is one that reports.
    pub fn is_about_to_report(&self) -> bool {
        self.pace.ticks.wrapping_add(1).is_multiple_of(self.pace.ticks_per_interval.max(1))
    }

    /// Takes over what this worker has to report. What it has no room for, and what concerns strict rules, the worker
    /// reports at its own tick.
    pub fn gather(&mut self, worker: &mut Self, now: Time) {
        self.limiter.gather(&mut worker.limiter, self.clock.peek(now));
    }

    /// Keys of which weir-sync said something new to the reporter.
    pub fn take_forgotten(&mut self) -> Vec<Tag> {
        self.limiter.take_forgotten()
    }

    /// Has this worker look at the buckets of these keys again, even if it had refused them a moment ago.
    pub fn forget_denials(&mut self, tags: &[Tag]) {
        self.limiter.forget_denials(tags);
    }
}
