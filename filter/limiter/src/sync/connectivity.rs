//! A POP's connectivity with weir-sync. Without replies it goes down step by step; the first reply restores it.

use weir_protocol::messages::RunningRules;
use weir_protocol::time::{SECOND_NS, Time};

/// Time without a reply after which connectivity is stale, in nanoseconds.
pub const STALE_NS: u64 = 3 * SECOND_NS / 2;
/// Default time without a reply after which a POP falls back to its rules' `on_sync_loss`, in nanoseconds.
pub const FALLBACK_NS: u64 = 5 * SECOND_NS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Connectivity {
    /// weir-sync replies.
    Fresh,
    /// No recent reply: grants hold until their leases end. Or weir-sync does not know how many POPs share a quota.
    Stale,
    /// No reply for too long, or never: each rule's `on_sync_loss` decides.
    Fallback,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectivityState {
    pub(crate) last_reply_at: Option<Time>,
    /// Time of the last failed call for which weir-sync is to blame; zero if there was none.
    missed_at: Time,
    /// True if weir-sync only guesses the number of POPs.
    pub(crate) is_guessing: bool,
    fallback_ns: u64,
}

impl ConnectivityState {
    /// Starts in fallback, without any reply. Falls back again after `fallback_ns` nanoseconds without one.
    pub(crate) const fn new(fallback_ns: u64) -> Self {
        Self { last_reply_at: None, missed_at: Time::ZERO, is_guessing: false, fallback_ns }
    }

    /// Records a reply at `at`; ignored if a later one is known.
    pub(crate) fn observe(&mut self, at: Time) {
        self.last_reply_at = self.last_reply_at.max(Some(at));
    }

    /// Records a failed call at `at`; ignored if a later one is known.
    pub(crate) fn miss(&mut self, at: Time) {
        self.missed_at = self.missed_at.max(at);
    }

    pub(crate) fn step(&self, now: Time) -> Connectivity {
        match self.last_reply_at.map(|at| now.nanos_since(at)) {
            Some(silent_ns) if silent_ns < STALE_NS.min(self.fallback_ns) && !self.is_guessing => Connectivity::Fresh,
            Some(silent_ns) if silent_ns < self.fallback_ns => Connectivity::Stale,
            _ => Connectivity::Fallback,
        }
    }

    /// True if a request should wait for weir-sync at `now`: not in fallback if a call has failed since the last reply.
    /// If none has failed, the POP itself may have stood still, as a virtual machine may.
    pub(crate) fn may_ask(&self, now: Time) -> bool {
        self.step(now) < Connectivity::Fallback || self.missed_at <= self.last_reply_at.unwrap_or_default()
    }
}

// The fleet's rule set version, and the one that this worker runs.

/// Time after a switch in which a worker ignores older versions, in nanoseconds. A weir-sync that has not received the
/// newer version yet must not take the POP back.
const STEP_BACK_NS: u64 = SECOND_NS;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Versions {
    pub(crate) running: RunningRules,
    since: Time,
    /// Version that the fleet is to run; 0 if none was stated.
    pub(crate) wanted: u64,
    /// Replies to reports up to this number must not change `wanted`.
    observed_in: u64,
}

impl Versions {
    /// Applies the version in the reply to report `sequence`; 0 (weir-sync has no rule set) changes nothing.
    pub(crate) fn observe(&mut self, version: u64, sequence: u64, now: Time) {
        let is_step_back = version < self.running.version && now.nanos_since(self.since) < STEP_BACK_NS;
        if version > 0 && sequence > self.observed_in && !is_step_back {
            self.observe_version(version, sequence);
        }
    }

    /// Applies a version that another worker received after this worker's report `sequence`.
    pub(crate) fn observe_version(&mut self, version: u64, sequence: u64) {
        (self.wanted, self.observed_in) = (version, sequence);
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
    fn connectivity_falls_in_steps_and_recovers_at_once() {
        let mut connectivity = ConnectivityState::new(FALLBACK_NS);
        assert_eq!((connectivity.step(T0), connectivity.may_ask(T0)), (Connectivity::Fallback, true));
        connectivity.miss(T0);
        assert!(!connectivity.may_ask(T0));
        connectivity.observe(T0);
        let woken = T0 + 60 * SECOND_NS;
        assert_eq!(
            (connectivity.step(woken), connectivity.may_ask(woken)),
            (Connectivity::Fallback, true),
            "it asked for nothing"
        );
        connectivity.miss(T0 + 1);
        // An earlier reply does not undo a later miss.
        connectivity.observe(T0);
        for (after_ms, step) in [
            (0, Connectivity::Fresh),
            (1_499, Connectivity::Fresh),
            (1_500, Connectivity::Stale),
            (4_999, Connectivity::Stale),
            (5_000, Connectivity::Fallback),
        ] {
            let now = T0 + after_ms * 1_000_000;
            assert_eq!(
                (connectivity.step(now), connectivity.may_ask(now)),
                (step, step < Connectivity::Fallback),
                "{after_ms} ms"
            );
        }
        connectivity.observe(T0 + 60 * SECOND_NS);
        connectivity.observe(T0);
        assert_eq!(connectivity.step(T0 + 60 * SECOND_NS), Connectivity::Fresh);
        connectivity.is_guessing = true;
        assert_eq!(
            connectivity.step(T0 + 60 * SECOND_NS),
            Connectivity::Stale,
            "it does not know how many share a quota"
        );
        connectivity.is_guessing = false;
        assert_eq!(connectivity.step(T0 + 60 * SECOND_NS), Connectivity::Fresh);
    }

    #[test]
    fn the_reply_to_the_latest_report_names_the_version() {
        let mut versions = Versions::default();
        versions.observe(5, 2, T0);
        versions.observe(4, 1, T0);
        versions.observe(0, 3, T0);
        assert_eq!(versions.wanted, 5);
        versions.observe(4, 4, T0);
        assert_eq!(versions.wanted, 4, "a version may be taken back");
        versions.observe_version(9, 6);
        versions.observe(4, 6, T0);
        assert_eq!(versions.wanted, 9, "that report was made before the other worker's reply");
    }

    #[test]
    fn a_lagging_weir_sync_cannot_revert_a_version() {
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
