//! The rule set version to run, the one in force, and the fetch of a newer one.

use alloc::vec::Vec;

use super::calls::{CallPurpose, PendingCall};
use crate::limiter::Limiter;
use weir_protocol::messages::RunningRules;
use weir_protocol::time::Time;

impl Limiter {
    /// Version of the rule set that the fleet is to run, from weir-sync's last reply; 0 if it named none.
    pub fn rule_set_wanted(&self) -> u64 {
        self.exchange.as_ref().map_or(0, |exchange| exchange.versions.wanted)
    }

    /// Applies the version that another worker received. It is newer than the replies to this worker's
    /// reports so far.
    pub fn record_wanted_rule_set(&mut self, version: u64) {
        if let Some(exchange) = &mut self.exchange {
            exchange.versions.observe_version(version, exchange.sequence);
        }
    }

    /// Sets the version and state of the rule set in force, for reports from `now` on.
    pub fn record_running(&mut self, running: RunningRules, now: Time) {
        if let Some(exchange) = &mut self.exchange {
            exchange.versions.run(running, now);
        }
    }

    /// Starts the fetch of a rule set, and returns its number. An earlier fetch under way is given up.
    pub fn begin_fetch(&mut self, version: u64, now: Time) -> Option<u64> {
        let exchange = self.exchange.as_mut()?;
        let number = exchange.next_number();
        let purpose = CallPurpose::Rules(version);
        exchange.calls.begin(PendingCall { number, purpose, sent_at: now, told: Vec::new() });
        Some(number)
    }

    /// Ends the fetch `number` of `version`.
    pub fn end_fetch(&mut self, number: u64, version: u64) {
        if let Some(exchange) = &mut self.exchange {
            exchange.calls.end(number, CallPurpose::Rules(version));
        }
    }

    /// Start time of the fetch under way.
    pub fn fetching_since(&self) -> Option<Time> {
        self.exchange.as_ref()?.calls.fetching_since()
    }
}
