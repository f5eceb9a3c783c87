//! The state of one configuration in one worker.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::answers::{Blocked, GrpcSigns, RuleReplies};
use super::clock::WorkerClock;
use super::holding::Holding;
use super::host::HostRules;
use super::shared::RulesMessage;
use crate::counters::Counters;
use crate::fleet::connectivity::Connectivity;
use crate::limiter::Limiter;
use weir_protocol::messages::RunningRules;
use weir_protocol::time::Time;
use weir_rules::RuleSet;
use weir_rules::config::SyncConfig;
use weir_rules::document::DOCUMENT_BYTES_MAX;
use weir_rules::reading::ConfigError;

/// Most bytes of a reply that a host must read.
pub const ANSWER_BYTES_MAX: usize = DOCUMENT_BYTES_MAX;

/// One configuration in one worker.
pub struct Engine {
    pub(super) limiter: Limiter,
    pub(super) clock: WorkerClock,
    pub(super) host: HostRules,
    /// One for each rule in force.
    pub(super) answers: Vec<RuleReplies>,
    pub(super) blocked: Blocked,
    pub(super) grpc: GrpcSigns,
    pub(super) notes_decisions: bool,
    pub(super) holding: Holding,
    pub(super) pace: Pace,
    /// None without weir-sync.
    pub(super) sync: Option<SyncConfig>,
    /// The reason why the last exchange failed. It is logged when it changes, not at every tick.
    pub(super) trouble: Option<String>,
    /// The last logged step of connectivity.
    pub(super) step: Option<Connectivity>,
    pub(super) pushed: PushedRules,
}

/// The timer of an engine.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// Time between two reports.
    pub(super) interval_ms: u32,
    /// Ticks in that time: more than one if requests are held until their turns.
    pub(super) ticks_per_interval: u32,
    /// Its value before the last change, which stays in force if the host could not set its timer.
    pub(super) before: u32,
    pub(super) ticks: u32,
    /// The generation of rules that the timer was last set for.
    pub(super) generation: u32,
}

/// A worker's state of pushed rule sets.
#[derive(Default)]
pub(super) struct PushedRules {
    pub(super) running: RunningRules,
    /// The last announcement of other workers that was acted upon.
    pub(super) seen: RulesMessage,
    /// End of the first condition of the rules in force that ends, in milliseconds since 1970.
    pub(super) next_end_ms: Option<u64>,
    /// The reason why the last fetch failed. It is logged when it changes, not at every attempt.
    pub(super) trouble: Option<String>,
    /// Number of fetches that failed in a row, and start time of the last one.
    pub(super) failed: u32,
    pub(super) began_at: Time,
}

impl Engine {
    /// The rules in force.
    pub fn rules(&self) -> &RuleSet {
        self.limiter.rules()
    }

    /// Counts since they were last taken.
    pub fn counters(&mut self) -> &mut Counters {
        self.limiter.counters()
    }

    /// The configuration for reaching weir-sync; none without it.
    pub fn sync(&self) -> Option<&SyncConfig> {
        self.sync.as_ref()
    }

    /// The POP's time when the host's clock reads `read`. All other functions that take a time expect the
    /// host's.
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
