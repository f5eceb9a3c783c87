//! The state of one configuration in one worker.

use alloc::collections::BinaryHeap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::counters::Counters;
use crate::engine::answers::{Blocked, GrpcSigns, RuleReplies};
use crate::engine::clock::WorkerClock;
use crate::engine::host::HostRules;
use crate::engine::shared::PushedVersions;
use crate::limiter::Limiter;
use crate::sync::connectivity::Connectivity;
use weir_protocol::messages::RunningRules;
use weir_protocol::time::Time;
use weir_rules::RuleSet;
use weir_rules::config::SyncConfig;
use weir_rules::reading::ConfigError;

/// One configuration in one worker.
pub struct Engine {
    pub(super) limiter: Limiter,
    pub(super) clock: WorkerClock,
    pub(super) host_rules: HostRules,
    /// One for each rule in force.
    pub(super) answers: Vec<RuleReplies>,
    pub(super) blocked: Blocked,
    pub(super) grpc: GrpcSigns,
    pub(super) logs_decisions: bool,
    pub(super) holding: Holding,
    pub(super) pace: Pace,
    /// None without weir-sync.
    pub(super) sync: Option<SyncConfig>,
    /// The reason why the last exchange failed, which is logged when it changes.
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
    pub(super) seen: PushedVersions,
    /// End of the first condition of the rules in force that ends, in milliseconds since 1970.
    pub(super) next_end_ms: Option<u64>,
    /// The reason why the last fetch failed, which is logged when it changes.
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

    /// The configuration of weir-sync, if there is one.
    pub fn sync(&self) -> Option<&SyncConfig> {
        self.sync.as_ref()
    }

    /// The POP's time when the host's clock reads `read`. All other functions that take a time expect the host's.
    pub fn time(&self, read: Time) -> Time {
        self.clock.peek(read)
    }

    /// The limiter, for simulations and tests to inspect.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }
}

#[allow(clippy::needless_pass_by_value, reason = "each list is shown once")]
pub(super) fn texts(errors: Vec<ConfigError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// Most requests of one worker that are held at once until their turns in a leaky bucket. Any beyond go on without
/// waiting, or are refused if the turn is from the fleet's queue.
const HELD_MAX: usize = 10_000;

/// The held requests of one worker, ordered by their turns.
pub(super) struct Holding {
    by_turn: BinaryHeap<Reverse<(Time, u32)>>,
    most: usize,
}

impl Default for Holding {
    fn default() -> Self {
        Self { by_turn: BinaryHeap::new(), most: HELD_MAX }
    }
}

impl Holding {
    /// Stops holding requests, because nothing would resume them.
    pub(super) fn hold_nothing(&mut self) {
        self.most = 0;
    }

    pub(super) fn has_room(&self) -> bool {
        self.by_turn.len() < self.most
    }

    /// Holds the request `id` until `turn`; false if there is no room.
    pub(super) fn hold(&mut self, id: u32, turn: Time) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.by_turn.push(Reverse((turn, id)));
        }
        has_room
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_turn.is_empty()
    }

    /// Removes the request with the earliest turn, if that has come at `now`. Its client may have left meanwhile.
    pub(super) fn next_due(&mut self, now: Time) -> Option<u32> {
        let Reverse((turn, _)) = self.by_turn.peek()?;
        if *turn > now {
            return None;
        }
        self.by_turn.pop().map(|Reverse((_, id))| id)
    }
}
