//! One engine that reports for all workers of a program, where these share its memory.
//!
//! Its host creates it beside those of the workers, and gives it no request. Before each of its ticks that
//! [reports](Engine::is_about_to_report), it [gathers](Engine::gather) from each worker. Then the workers tick,
//! and right before that it gathers once more: the demand in between is for its next report. After each of
//! its ticks and replies, the workers [drop](Engine::forget_denials) the cached refusals of the [keys that
//! changed](Engine::take_forgotten).

use alloc::vec::Vec;

use super::state::Engine;
use crate::table::slot::Tag;
use weir_protocol::time::Time;

impl Engine {
    /// Makes this the reporter.
    pub fn become_reporter(&mut self) {
        self.limiter.record_forgotten();
    }

    /// True if its next tick reports.
    pub fn is_about_to_report(&self) -> bool {
        self.pace.ticks.wrapping_add(1).is_multiple_of(self.pace.ticks_per_interval.max(1))
    }

    /// Takes over the unreported keys of this worker. Keys that find no room, and those of strict rules, are
    /// reported at the worker's own tick.
    pub fn gather(&mut self, worker: &mut Self, now: Time) {
        self.limiter.gather(&mut worker.limiter, self.clock.peek(now));
    }

    /// Takes the keys whose state was changed by replies to the reporter.
    pub fn take_forgotten(&mut self) -> Vec<Tag> {
        self.limiter.take_forgotten()
    }

    /// Drops this worker's cached refusals of these keys.
    pub fn forget_denials(&mut self, tags: &[Tag]) {
        self.limiter.forget_denials(tags);
    }
}
