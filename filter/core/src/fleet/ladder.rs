//! How well a POP is in touch with weir-sync, in three steps: it goes down while nothing is heard, and
//! back up at the first answer.

use weir_wire::time::{SECOND_NS, Time};

/// Without an answer for this long, in nanoseconds, what a POP knows is stale.
pub const STALE_NS: u64 = 3 * SECOND_NS / 2;
/// Without an answer for this long, in nanoseconds, a POP falls back to its rules' `when_unsynced`, unless
/// the configuration sets another time.
pub const FALLBACK_NS: u64 = 5 * SECOND_NS;

/// A step of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// weir-sync answers.
    Fresh,
    /// It has not answered lately: grants hold as long as their leases last. Or it answers, but does not know how many
    /// POPs share a quota.
    Stale,
    /// It has not answered for too long, or never: each rule's `when_unsynced` decides.
    Fallback,
}

/// When weir-sync was last heard from.
#[derive(Clone, Copy, Debug)]
pub struct Ladder {
    heard_at: Option<Time>,
    /// When a call last failed that weir-sync is to blame for; zero if none ever did.
    missed_at: Time,
    /// Whether weir-sync only guesses how many POPs there are.
    is_guessing: bool,
    fallback_ns: u64,
}

impl Ladder {
    /// On the lowest step: nothing was heard yet. It falls back after `fallback_ns` nanoseconds of silence.
    pub const fn new(fallback_ns: u64) -> Self {
        Self { heard_at: None, missed_at: Time::ZERO, is_guessing: false, fallback_ns }
    }

    /// weir-sync answered at `at`; ignored if an answer after that is known.
    pub fn hear(&mut self, at: Time) {
        self.heard_at = self.heard_at.max(Some(at));
    }

    /// Whether weir-sync only guesses how many POPs there are.
    pub fn guess(&mut self, is_guessing: bool) {
        self.is_guessing = is_guessing;
    }

    /// A call failed at `at`; ignored if one that failed after that is known.
    pub fn miss(&mut self, at: Time) {
        self.missed_at = self.missed_at.max(at);
    }

    /// Whether weir-sync only guesses how many POPs there are.
    pub fn is_guessing(&self) -> bool {
        self.is_guessing
    }

    /// When it last answered.
    pub fn heard_at(&self) -> Option<Time> {
        self.heard_at
    }

    /// The step at `now`.
    pub fn step(&self, now: Time) -> Step {
        match self.heard_at.map(|at| now.nanos_since(at)) {
            Some(silent_ns) if silent_ns < STALE_NS.min(self.fallback_ns) && !self.is_guessing => Step::Fresh,
            Some(silent_ns) if silent_ns < self.fallback_ns => Step::Stale,
            _ => Step::Fallback,
        }
    }

    /// Whether a request should wait for weir-sync at `now`: not if that was silent for too long and a call failed
    /// meanwhile. If none did, the POP itself may have stood still, as a virtual machine may.
    pub fn may_ask(&self, now: Time) -> bool {
        self.step(now) < Step::Fallback || self.missed_at <= self.heard_at.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Time = Time::from_nanos(1_000 * SECOND_NS);

    #[test]
    fn goes_down_step_by_step_and_up_at_once() {
        let mut ladder = Ladder::new(FALLBACK_NS);
        assert_eq!((ladder.step(T0), ladder.may_ask(T0)), (Step::Fallback, true));
        ladder.miss(T0);
        assert!(!ladder.may_ask(T0));
        ladder.hear(T0);
        let woken = T0 + 60 * SECOND_NS;
        assert_eq!(
            (ladder.step(woken), ladder.may_ask(woken)),
            (Step::Fallback, true),
            "it asked for nothing"
        );
        ladder.miss(T0 + 1);
        // What was known before says nothing of whether it answers now.
        ladder.hear(T0);
        for (after_ms, step) in [
            (0, Step::Fresh),
            (1_499, Step::Fresh),
            (1_500, Step::Stale),
            (4_999, Step::Stale),
            (5_000, Step::Fallback),
        ] {
            let now = T0 + after_ms * 1_000_000;
            assert_eq!(
                (ladder.step(now), ladder.may_ask(now)),
                (step, step < Step::Fallback),
                "{after_ms} ms"
            );
        }
        ladder.hear(T0 + 60 * SECOND_NS);
        ladder.hear(T0);
        assert_eq!(ladder.step(T0 + 60 * SECOND_NS), Step::Fresh);
        ladder.guess(true);
        assert_eq!(ladder.step(T0 + 60 * SECOND_NS), Step::Stale, "it does not know how many share a quota");
        ladder.guess(false);
        assert_eq!(ladder.step(T0 + 60 * SECOND_NS), Step::Fresh);
    }
}
