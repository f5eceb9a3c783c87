//! Which rule set the fleet is to run, which one this worker runs, and the fetch of a newer one.

use alloc::vec::Vec;

use super::calls::{Purpose, UnderWay};
use crate::limiter::Limiter;
use weir_wire::messages::Running;
use weir_wire::time::Time;

impl Limiter {
    /// The version of the rule set that the fleet is to run, as weir-sync last said; 0 if it named none.
    pub fn rule_set_wanted(&self) -> u64 {
        self.exchange.as_ref().map_or(0, |exchange| exchange.versions.wanted)
    }

    /// Another worker heard that the fleet is to run `version`. That is newer than what the answers to this worker's
    /// reports so far say.
    pub fn note_rule_set_wanted(&mut self, version: u64) {
        if let Some(exchange) = &mut self.exchange {
            exchange.versions.hear_of(version, exchange.sequence);
        }
    }

    /// What reports say about the rule set in force, from `now` on.
    pub fn note_running(&mut self, running: Running, now: Time) {
        if let Some(exchange) = &mut self.exchange {
            exchange.versions.run(running, now);
        }
    }

    /// A fetch of a rule set begins; returns its number. An earlier fetch still under way is given up.
    pub fn begin_fetch(&mut self, version: u64, now: Time) -> Option<u64> {
        let exchange = self.exchange.as_mut()?;
        let number = exchange.next_number();
        let purpose = Purpose::Rules(version);
        exchange.calls.begin(UnderWay { number, purpose, sent_at: now, told: Vec::new() });
        Some(number)
    }

    /// The fetch `number`, of `version`, has ended.
    pub fn end_fetch(&mut self, number: u64, version: u64) {
        if let Some(exchange) = &mut self.exchange {
            exchange.calls.end(number, Purpose::Rules(version));
        }
    }

    /// When the fetch under way began.
    pub fn fetching_since(&self) -> Option<Time> {
        self.exchange.as_ref()?.calls.fetching_since()
    }
}
