//! The state of one configuration in one worker, from its configuration through its ticks to its end.

use alloc::collections::BinaryHeap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::clock::WorkerClock;
use super::effects::{Blocked, Effect, EngineCall, GrpcSigns, LogLevel, RuleReplies};
use super::host::{Host, PushedVersions, SharedValue};
use crate::counters::Counters;
use crate::limiter::Limiter;
use crate::sync::connectivity::{Connectivity, ConnectivityState};
use crate::sync::{Reporter, hurry, leave};
use crate::table::name_hash;
use crate::table::slot::slots_for;
use weir_protocol::messages::{POP_NAME_MAX, RunningRules};
use weir_protocol::time::Time;
use weir_rules::config::{PluginConfig, SyncConfig};
use weir_rules::reading::ConfigError;
use weir_rules::{Rule, RuleSet};

pub struct Engine {
    pub(super) limiter: Limiter,
    pub(super) clock: WorkerClock,
    /// True if the host [observes](Host::observes_decisions) decisions.
    pub(super) is_observed: bool,
    pub(super) answers: Vec<RuleReplies>,
    pub(super) blocked: Blocked,
    pub(super) grpc: GrpcSigns,
    pub(super) logs_decisions: bool,
    pub(super) holding: Holding,
    pub(super) pace: Pace,
    pub(super) sync: Option<SyncConfig>,
    /// Reason why the last exchange failed, logged when it changes.
    pub(super) trouble: Option<String>,
    pub(super) step: Option<Connectivity>,
    pub(super) pushed: PushedRules,
}

#[derive(Clone, Copy)]
pub(super) struct Pace {
    pub(super) interval_ms: u32,
    /// Ticks per interval: more than one if requests are held until their turns.
    pub(super) ticks_per_interval: u32,
    /// Previous `ticks_per_interval`, which stays in force if the host could not set its timer.
    pub(super) before: u32,
    pub(super) ticks: u32,
    /// Generation of the rules that the timer was last set for.
    pub(super) generation: u32,
}

#[derive(Default)]
pub(super) struct PushedRules {
    pub(super) running: RunningRules,
    /// The last announcement by other workers that was handled.
    pub(super) seen: PushedVersions,
    /// Earliest end of a condition of the rules in force, in milliseconds since 1970.
    pub(super) next_end_ms: Option<u64>,
    /// Reason why the last fetch failed, logged when it changes.
    pub(super) trouble: Option<String>,
    /// Number of consecutive failed fetches, and start time of the last fetch.
    pub(super) failed: u32,
    pub(super) began_at: Time,
}

impl Engine {
    pub fn rules(&self) -> &RuleSet {
        self.limiter.rules()
    }

    pub fn counters(&mut self) -> &mut Counters {
        self.limiter.counters()
    }

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

/// Maximum number of requests of one worker held at once until their turns in a leaky bucket. Further requests continue
/// without waiting, or are refused if the turn is from the fleet's queue.
const HELD_MAX: usize = 10_000;

/// The held requests of one worker, ordered by turn.
#[derive(Default)]
pub(super) struct Holding {
    by_turn: BinaryHeap<Reverse<(Time, u32)>>,
    /// True if no timer would resume a request at its turn.
    holds_nothing: bool,
}

impl Holding {
    pub(super) fn has_room(&self) -> bool {
        !self.holds_nothing && self.by_turn.len() < HELD_MAX
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

/// Tick of a POP without weir-sync, in milliseconds; it only flushes counters.
const TICK_MS: u32 = 1_000;
/// Tick while requests may be held until their turns, in milliseconds. They may be resumed late by this much.
const TURN_MS: u32 = 10;

impl Engine {
    /// Creates an engine from a plugin configuration, with the first effects for its host. Fails with all errors, each
    /// with its place. A POP that reports must have a name, because POPs with the same name count as one.
    #[inline(never)]
    pub fn configure(bytes: &[u8], host: &mut dyn Host, now: Time) -> Result<(Self, Vec<Effect>), Vec<String>> {
        Self::begin(PluginConfig::parse(bytes).map_err(texts)?, host, now)
    }

    /// [`Engine::configure`] for a parsed configuration, whose clones share its rules.
    pub fn begin(mut config: PluginConfig, host: &mut dyn Host, now: Time) -> Result<(Self, Vec<Effect>), Vec<String>> {
        let refusals = host.refusals(&config.rules);
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let mut clock = WorkerClock::begin(host, now);
        let now = clock.time(host, now);
        let mut turn = EngineCall::new(host, now);
        if config.sync.is_some() && !turn.host.makes_calls() {
            turn.log(LogLevel::Warn, "the host makes no HTTP calls: sync is off");
            config.sync = None;
        }
        if config.keys_are_unkeyed() {
            turn.log(
                LogLevel::Warn,
                "keys leave this POP under a hash that anybody can compute: set sync.key_secret, the same at every POP",
            );
        }
        let reporter = config.sync.as_ref().map(|sync| reporter(sync, turn.host)).transpose();
        let reporter = reporter.map_err(|error| alloc::vec![error])?;
        let mut engine = Self::of(config, reporter, clock, turn.host);
        engine.take_shared_rules(&mut turn);
        engine.end_conditions(&mut turn);
        let (ticks, generation) = (engine.ticks_per_interval(), engine.limiter.rules.generation);
        engine.pace = Pace { ticks_per_interval: ticks, before: ticks, generation, ..engine.pace };
        turn.effects.push(Effect::SetTimer(engine.pace.interval_ms / ticks));
        Ok((engine, turn.effects))
    }

    fn of(config: PluginConfig, reporter: Option<Reporter>, clock: WorkerClock, host: &mut dyn Host) -> Self {
        let answers = config.rules.rules().iter().map(RuleReplies::of).collect();
        let pushed = PushedRules { next_end_ms: config.rules.next_end_ms(), ..PushedRules::default() };
        let mut limiter = Limiter::new(config.rules, host.identity(), reporter);
        if let (Some(sync), Some(client)) = (&config.sync, &mut limiter.sync) {
            let ns = |ms: u32| u64::from(ms) * 1_000_000;
            client.connectivity = ConnectivityState::new(ns(sync.fallback_after_ms));
            client.timeout_ns = ns(sync.timeout_ms);
            limiter.rules.fleet_secret = sync.key_secret;
            host.open_value(SharedValue::Handover);
        }
        record_reply(&mut limiter, host);
        host.open(slots_for(config.addresses));
        let interval_ms = config.sync.as_ref().map_or(TICK_MS, |sync| sync.interval_ms);
        Self {
            limiter,
            clock,
            is_observed: host.observes_decisions(),
            answers,
            blocked: Blocked::new(host),
            grpc: GrpcSigns::new(),
            logs_decisions: config.filter_state,
            holding: Holding::default(),
            pace: Pace { interval_ms, ticks_per_interval: 1, before: 1, ticks: 0, generation: 0 },
            sync: config.sync,
            trouble: None,
            step: None,
            pushed,
        }
    }

    /// Handles a tick of the timer, at the interval from [`Effect::SetTimer`].
    #[inline(never)]
    pub fn tick(&mut self, host: &mut dyn Host, now: Time) -> Vec<Effect> {
        self.clock.follow(host, now);
        let now = self.clock.time(host, now);
        let mut turn = EngineCall::new(host, now);
        while let Some(id) = self.holding.next_due(now) {
            turn.effects.push(Effect::Resume(id));
        }
        self.pace.ticks = self.pace.ticks.wrapping_add(1);
        if self.pace.ticks.is_multiple_of(self.pace.ticks_per_interval.max(1)) {
            self.follow_rules(&mut turn);
            self.limiter.rules.end_changes(now);
            self.keep_pace(&mut turn);
            self.report(&mut turn);
            turn.effects.push(Effect::Flush);
            self.log_step(&mut turn);
        }
        turn.effects
    }

    /// Records that the host could not set its timer: it ticks as before, if at all. No request is held from now on,
    /// because nothing would resume it in time.
    pub fn has_no_timer(&mut self) {
        self.holding.holds_nothing = true;
        self.pace.ticks_per_interval = self.pace.before;
    }

    /// Ends the worker, and hands over its unreported keys to the other workers.
    #[inline(never)]
    pub fn leave(&mut self, host: &mut dyn Host) {
        if self.sync.is_some() {
            host.leave(&mut |left| leave(&mut self.limiter, left));
        }
    }

    /// Ticks between two reports; held requests are resumed at ticks.
    pub(super) fn ticks_per_interval(&self) -> u32 {
        let may_hold = self.rules().rules().iter().any(Rule::holds_requests);
        if may_hold { (self.pace.interval_ms / TURN_MS).max(1) } else { 1 }
    }

    /// Ends the worker in a host without handover: everything unreported is reported now.
    pub fn report_all(&mut self, host: &mut dyn Host, now: Time) -> Vec<Effect> {
        let now = self.clock.time(host, now);
        let mut turn = EngineCall::new(host, now);
        hurry(&mut self.limiter);
        self.report(&mut turn);
        turn.effects.push(Effect::Flush);
        turn.effects
    }

    /// Sets the timer to the interval that the rules in force need.
    pub(super) fn keep_pace(&mut self, turn: &mut EngineCall<'_>) {
        if self.limiter.rules.generation == self.pace.generation {
            return;
        }
        let (ticks, before) = (self.ticks_per_interval(), self.pace.ticks_per_interval);
        // Requests held under replaced rules still get their turns.
        if ticks < before && !self.holding.is_empty() {
            return;
        }
        self.pace.generation = self.limiter.rules.generation;
        if ticks != before {
            (self.pace.ticks_per_interval, self.pace.before) = (ticks, before);
            turn.effects.push(Effect::SetTimer(self.pace.interval_ms / ticks));
        }
    }
}

fn reporter(sync: &SyncConfig, host: &mut dyn Host) -> Result<Reporter, String> {
    let pop = sync.pop.clone().or_else(|| named_by(host.node()?));
    let pop = pop.ok_or("sync.pop: missing: expected this POP's name, as the host has no node id")?;
    Ok(Reporter { pop, worker: host.random() })
}

/// The POP's name from its node's id. A name that is too long, as Istio's are, is cut, and a hash is appended.
fn named_by(node: String) -> Option<String> {
    if node.len() <= POP_NAME_MAX {
        return Some(node).filter(|name| !name.is_empty());
    }
    // The hash has up to ten digits.
    let begin = node.get(..POP_NAME_MAX - 11)?;
    Some(format!("{begin}-{}", name_hash(node.as_bytes())))
}

/// Applies the last reply to any other worker, or its failure.
pub(super) fn record_reply(limiter: &mut Limiter, host: &mut dyn Host) {
    let Some(client) = &mut limiter.sync else { return };
    if let Some((pops, is_guess, at)) = host.contact() {
        client.observe(pops, is_guess, at);
    }
    client.connectivity.miss(host.time(SharedValue::Missed).0);
}
