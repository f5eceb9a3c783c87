//! This worker's connectivity with weir-sync.

use super::calls::CallPurpose;
use crate::fleet::connectivity::ConnectivityState;
use crate::limiter::Limiter;
use weir_protocol::time::{SECOND_NS, Time};

/// A failure this long after the call's time-out does not count against weir-sync, in nanoseconds: this POP
/// stood still.
const LATE_NS: u64 = SECOND_NS / 2;

impl Limiter {
    /// Sets the time without a reply after which each rule's `on_sync_loss` applies, in nanoseconds. The
    /// default is [`FALLBACK_NS`](crate::fleet::connectivity::FALLBACK_NS).
    pub fn fall_back_after(&mut self, fallback_ns: u64) {
        if let Some(exchange) = &mut self.exchange {
            exchange.connectivity = ConnectivityState::new(fallback_ns);
        }
    }

    /// Sets the time-out of requests that wait, in nanoseconds. For that time a waiting request's key keeps
    /// its place, and acquired tokens are kept for it.
    pub fn time_out_after(&mut self, timeout_ns: u64) {
        if let Some(exchange) = &mut self.exchange {
            exchange.timeout_ns = timeout_ns;
        }
    }

    /// Time-out of a request that waits, in nanoseconds.
    pub(crate) fn timeout_ns(&self) -> u64 {
        self.exchange.as_ref().map_or(0, |exchange| exchange.timeout_ns)
    }

    /// This worker's connectivity; none if nothing is ever reported.
    pub fn connectivity(&self) -> Option<&ConnectivityState> {
        self.exchange.as_ref().map(|exchange| &exchange.connectivity)
    }

    /// Last known number of live POPs, at least 1; none if nothing is ever reported.
    pub fn pops(&self) -> Option<u32> {
        self.exchange.as_ref().map(|exchange| exchange.pops)
    }

    /// Recent time to a reply from weir-sync, in nanoseconds; none before the first.
    pub fn answers_take_ns(&self) -> Option<u64> {
        self.exchange.as_ref()?.answers_take_ns
    }

    /// Applies the number of live POPs, known or guessed, from a reply that another worker received at `at`.
    pub fn record_reply(&mut self, pops: u32, is_guess: bool, at: Time) {
        if let Some(exchange) = &mut self.exchange {
            exchange.observe(pops, is_guess, at);
        }
    }

    /// Records that a call sent at `sent_at` failed. Returns true if weir-sync is to blame.
    pub(crate) fn miss(&mut self, sent_at: Time, now: Time) -> bool {
        let Some(exchange) = &mut self.exchange else { return false };
        let is_to_blame = now.nanos_since(sent_at) < exchange.timeout_ns + LATE_NS;
        if is_to_blame {
            exchange.connectivity.miss(now);
        }
        is_to_blame
    }

    /// Records that a report of any worker failed at `at`.
    pub fn record_miss(&mut self, at: Time) {
        if let Some(exchange) = &mut self.exchange {
            exchange.connectivity.miss(at);
        }
    }

    /// The purpose of call `number`, if it is under way.
    pub fn purpose(&self, number: u64) -> Option<CallPurpose> {
        self.exchange.as_ref()?.calls.get(number).map(|call| call.purpose)
    }
}
