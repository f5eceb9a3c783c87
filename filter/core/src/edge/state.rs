//! The state of one configuration in one worker.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::answers::{Blocked, GrpcSigns, RuleAnswers};
use super::clock::Clock;
use super::holding::Holding;
use super::shared::RulesWord;
use super::site::HostRules;
use crate::counters::Counters;
use crate::fleet::ladder::Step as LadderStep;
use crate::limiter::Limiter;
use weir_rules::RuleSet;
use weir_rules::config::SyncConfig;
use weir_rules::document::DOCUMENT_BYTES_MAX;
use weir_rules::reading::ConfigError;
use weir_wire::messages::Running;
use weir_wire::time::Time;

/// The most bytes of an answer to a call that a host needs to read.
pub const ANSWER_BYTES_MAX: usize = DOCUMENT_BYTES_MAX;

/// One configuration in one worker.
pub struct Edge {
    pub(super) limiter: Limiter,
    pub(super) clock: Clock,
    pub(super) host: HostRules,
    /// One for each rule in force.
    pub(super) answers: Vec<RuleAnswers>,
    pub(super) blocked: Blocked,
    pub(super) grpc: GrpcSigns,
    pub(super) notes_decisions: bool,
    pub(super) holding: Holding,
    pub(super) pace: Pace,
    /// None if the POP is on its own.
    pub(super) sync: Option<SyncConfig>,
    /// Why the last exchange failed; logged when it changes, not at every tick.
    pub(super) trouble: Option<String>,
    /// The step of the ladder that was last logged.
    pub(super) step: Option<LadderStep>,
    pub(super) pushed: Pushed,
}

/// How often an edge ticks.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// The time between two reports.
    pub(super) interval_ms: u32,
    /// Ticks in that time: more than one if requests are held until their turns.
    pub(super) ticks_per_interval: u32,
    /// The same, before the last change: what a host has that could not set its timer.
    pub(super) before: u32,
    pub(super) ticks: u32,
    /// The generation of rules that the timer was last set for.
    pub(super) generation: u32,
}

/// What a worker knows of pushed rule sets.
#[derive(Default)]
pub(super) struct Pushed {
    pub(super) running: Running,
    /// What the other workers said, as last acted upon.
    pub(super) seen: RulesWord,
    /// When the first condition of the rules in force ends, in milliseconds since 1970.
    pub(super) next_end_ms: Option<u64>,
    /// Why the last fetch failed; logged when it changes, not at every attempt.
    pub(super) trouble: Option<String>,
    /// Fetches that failed in a row, and when the last one began.
    pub(super) failed: u32,
    pub(super) began_at: Time,
}

impl Edge {
    /// The rules in force.
    pub fn rules(&self) -> &RuleSet {
        self.limiter.rules()
    }

    /// What was counted since the counts were last taken.
    pub fn counters(&mut self) -> &mut Counters {
        self.limiter.counters()
    }

    /// How to reach weir-sync, by the configuration; none if the POP is on its own.
    pub fn sync(&self) -> Option<&SyncConfig> {
        self.sync.as_ref()
    }

    /// The POP's time when the host's clock reads `read`. What else takes a time takes what the host reads.
    pub fn time(&self, read: Time) -> Time {
        self.clock.peek(read)
    }

    /// The limiter, for simulations and tests to inspect.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }
}

#[allow(clippy::needless_pass_by_value, reason = "they are told once")]
pub(super) fn texts(errors: Vec<ConfigError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}
