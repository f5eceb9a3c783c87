//! The rule set version that the fleet is to run, and the one that this worker runs.

use weir_protocol::messages::RunningRules;
use weir_protocol::time::{SECOND_NS, Time};

/// Time after a switch in which a worker ignores older versions, in nanoseconds. A weir-sync that has not
/// received the newer version yet must not take the POP back.
const STEP_BACK_NS: u64 = SECOND_NS;

/// The version that a worker runs, and the one that it is to run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Versions {
    pub(crate) running: RunningRules,
    /// Start time of the version in force.
    since: Time,
    /// Version that the fleet is to run; 0 if none was named.
    pub(crate) wanted: u64,
    /// Replies to reports up to this number must not change `wanted`.
    heard_in: u64,
}

impl Versions {
    /// Applies the version in the reply to report `sequence`. 0 changes nothing: that weir-sync has no rule
    /// set, and the last one stays in force.
    pub(crate) fn observe(&mut self, version: u64, sequence: u64, now: Time) {
        let is_step_back = version < self.running.version && now.nanos_since(self.since) < STEP_BACK_NS;
        if version > 0 && sequence > self.heard_in && !is_step_back {
            self.observe_version(version, sequence);
        }
    }

    /// Applies a version that another worker received after this worker's report `sequence`.
    pub(crate) fn observe_version(&mut self, version: u64, sequence: u64) {
        (self.wanted, self.heard_in) = (version, sequence);
    }

    pub(crate) fn run(&mut self, running: RunningRules, now: Time) {
        if running.version != self.running.version {
            self.since = now;
        }
        self.running = running;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Time = Time::from_nanos(1_000 * SECOND_NS);

    #[test]
    fn the_answer_to_the_latest_report_counts_and_nothing_is_no_word() {
        let mut versions = Versions::default();
        versions.observe(5, 2, T0);
        versions.observe(4, 1, T0);
        versions.observe(0, 3, T0);
        assert_eq!(versions.wanted, 5);
        versions.observe(4, 4, T0);
        assert_eq!(versions.wanted, 4, "a version may be taken back");
        versions.observe_version(9, 6);
        versions.observe(4, 6, T0);
        assert_eq!(versions.wanted, 9, "that report was made before the other worker's word");
    }

    #[test]
    fn one_that_has_not_heard_of_the_newer_yet_takes_nothing_back() {
        let mut versions = Versions::default();
        versions.observe(5, 1, T0);
        versions.run(RunningRules { version: 5, refused: 0 }, T0);
        versions.observe(4, 2, T0 + (STEP_BACK_NS - 1));
        assert_eq!(versions.wanted, 5);
        versions.observe(6, 3, T0 + 1);
        assert_eq!(versions.wanted, 6);
        versions.observe(4, 4, T0 + STEP_BACK_NS);
        assert_eq!(versions.wanted, 4);
    }
}
