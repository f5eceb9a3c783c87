//! How well this worker is in touch with weir-sync.

use super::calls::Purpose;
use crate::fleet::ladder::Ladder;
use crate::limiter::Limiter;
use weir_wire::messages::Version;
use weir_wire::time::{SECOND_NS, Time};

/// How long the version before is spoken until the latest is tried again, in nanoseconds.
const VERSION_BEFORE_NS: u64 = 10 * SECOND_NS;
/// A call that fails this long after its time was up says nothing of weir-sync, in nanoseconds: this POP stood still.
const LATE_NS: u64 = SECOND_NS / 2;

impl Limiter {
    /// Falls back to each rule's `when_unsynced` after `fallback_ns` nanoseconds without word from weir-sync,
    /// instead of [`FALLBACK_NS`](crate::fleet::ladder::FALLBACK_NS).
    pub fn fall_back_after(&mut self, fallback_ns: u64) {
        if let Some(exchange) = &mut self.exchange {
            exchange.ladder = Ladder::new(fallback_ns);
        }
    }

    /// Lets a request wait for `timeout_ns` nanoseconds at most. For so long its key keeps its place, and what is debited
    /// for it is kept for it.
    pub fn time_out_after(&mut self, timeout_ns: u64) {
        if let Some(exchange) = &mut self.exchange {
            exchange.timeout_ns = timeout_ns;
        }
    }

    /// How long a request waits at most, in nanoseconds.
    pub(crate) fn timeout_ns(&self) -> u64 {
        self.exchange.as_ref().map_or(0, |exchange| exchange.timeout_ns)
    }

    /// How well this worker is in touch with weir-sync; none if nothing is ever reported.
    pub fn ladder(&self) -> Option<&Ladder> {
        self.exchange.as_ref().map(|exchange| &exchange.ladder)
    }

    /// The number of live POPs as far as this worker knows, at least 1; none if nothing is ever reported.
    pub fn pops(&self) -> Option<u32> {
        self.exchange.as_ref().map(|exchange| exchange.pops)
    }

    /// How long weir-sync took lately to answer, in nanoseconds, if it ever did.
    pub fn answers_take_ns(&self) -> Option<u64> {
        self.exchange.as_ref()?.answers_take_ns
    }

    /// Another worker heard from weir-sync at `at` that so many POPs are live, or its guess how many.
    pub fn note_heard(&mut self, pops: u32, is_guess: bool, at: Time) {
        if let Some(exchange) = &mut self.exchange {
            exchange.hear(pops, is_guess, at);
        }
    }

    /// A call that was sent at `sent_at` failed. Returns whether weir-sync is to blame.
    pub(crate) fn miss(&mut self, sent_at: Time, now: Time) -> bool {
        let Some(exchange) = &mut self.exchange else { return false };
        let is_to_blame = now.nanos_since(sent_at) < exchange.timeout_ns + LATE_NS;
        if is_to_blame {
            exchange.ladder.miss(now);
        }
        is_to_blame
    }

    /// A report of some worker failed at `at`.
    pub fn note_missed(&mut self, at: Time) {
        if let Some(exchange) = &mut self.exchange {
            exchange.ladder.miss(at);
        }
    }

    /// The version of the messages that is spoken at `now`.
    pub fn version(&self, now: Time) -> Version {
        let is_before = self.exchange.as_ref().is_some_and(|exchange| now < exchange.version_before_until);
        if is_before { Version::Before } else { Version::Latest }
    }

    /// weir-sync could not read call `number`. Returns whether that may be for its version, as it was made in the latest.
    /// For a while the version before is spoken.
    pub fn speak_version_before(&mut self, number: u64, now: Time) -> bool {
        let Some(exchange) = &mut self.exchange else { return false };
        if now < exchange.version_before_until {
            let sent_at = exchange.calls.get(number).map_or(now, |call| call.sent_at);
            return exchange.version_before_until.nanos_since(sent_at) > VERSION_BEFORE_NS;
        }
        exchange.version_before_until = now + VERSION_BEFORE_NS;
        true
    }

    /// What call `number` is for, if it is under way.
    pub fn purpose(&self, number: u64) -> Option<Purpose> {
        self.exchange.as_ref()?.calls.get(number).map(|call| call.purpose)
    }
}
