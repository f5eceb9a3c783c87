//! The life of an engine: configuration, ticks, end.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::answers::{Blocked, GrpcSigns, RuleReplies};
use super::clock::WorkerClock;
use super::host::{Host, HostRules};
use super::reports;
use super::shared::SharedValue;
use super::state::{Engine, Pace, PushedRules, texts};
use crate::engine::effects::{Effect, EngineCall, LogLevel};
use crate::engine::state::Holding;
use crate::key::{Reporter, name_hash};
use crate::limiter::Limiter;
use crate::sync::{hurry, leave};
use crate::table::slot::slots_for;
use weir_protocol::messages::POP_NAME_MAX;
use weir_protocol::time::Time;
use weir_rules::Rule;
use weir_rules::config::{PluginConfig, SyncConfig};

/// Tick of a POP without weir-sync, in milliseconds; it only flushes counters.
const TICK_MS: u32 = 1_000;
/// Tick if requests are held until their turns, in milliseconds. They may be resumed this much late.
const TURN_MS: u32 = 10;

impl Engine {
    /// Creates an engine from a plugin configuration, with the first effects for its host. Fails with the errors of the
    /// configuration, each with its place. A POP that would report without a name is an error, because POPs of one name
    /// count as one.
    #[inline(never)]
    pub fn configure(
        bytes: &[u8],
        host_rules: HostRules,
        host: &mut dyn Host,
        now: Time,
    ) -> Result<(Self, Vec<Effect>), Vec<String>> {
        Self::begin(PluginConfig::parse(bytes).map_err(texts)?, host_rules, host, now)
    }

    /// [`Engine::configure`] for a configuration that was parsed, whose copies share its rules.
    pub fn begin(
        mut config: PluginConfig,
        host_rules: HostRules,
        host: &mut dyn Host,
        now: Time,
    ) -> Result<(Self, Vec<Effect>), Vec<String>> {
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
        let mut engine = Self::of(config, reporter, clock, host_rules, turn.host);
        engine.take_shared_rules(&mut turn);
        engine.end_conditions(&mut turn);
        let (ticks, generation) = (engine.ticks_per_interval(), engine.limiter.rules.generation);
        engine.pace = Pace { ticks_per_interval: ticks, before: ticks, generation, ..engine.pace };
        turn.effects.push(Effect::SetTimer(engine.pace.interval_ms / ticks));
        Ok((engine, turn.effects))
    }

    fn of(
        config: PluginConfig,
        reporter: Option<Reporter>,
        clock: WorkerClock,
        host_rules: HostRules,
        host: &mut dyn Host,
    ) -> Self {
        let answers = config.rules.rules().iter().map(RuleReplies::of).collect();
        let pushed = PushedRules { next_end_ms: config.rules.next_end_ms(), ..PushedRules::default() };
        let mut limiter = Limiter::new(config.rules, host.identity(), reporter);
        if let (Some(sync), Some(client)) = (&config.sync, &mut limiter.sync) {
            let ns = |ms: u32| u64::from(ms) * 1_000_000;
            client.set_times(ns(sync.fallback_after_ms), ns(sync.timeout_ms));
            limiter.rules.hide_keys_with(sync.key_secret);
            if host_rules.has_handover {
                host.open_value(SharedValue::Handover);
            }
        }
        reports::record_reply(&mut limiter, host);
        host.open(slots_for(config.addresses));
        let interval_ms = config.sync.as_ref().map_or(TICK_MS, |sync| sync.interval_ms);
        Self {
            limiter,
            clock,
            host_rules,
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
        self.holding.hold_nothing();
        self.pace.ticks_per_interval = self.pace.before;
    }

    /// Ends the worker, and hands over its unreported keys to the other workers.
    #[inline(never)]
    pub fn leave(&mut self, host: &mut dyn Host) {
        if self.host_rules.has_handover && self.sync.is_some() {
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
        // Requests held by rules that are gone still get their turns.
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

/// The POP's name from its node's id. An id that is too long for a name, as Istio's are, is cut, and a hash of the
/// whole is appended.
fn named_by(node: String) -> Option<String> {
    if node.len() <= POP_NAME_MAX {
        return Some(node).filter(|name| !name.is_empty());
    }
    // The hash has up to ten digits.
    let begin = node.get(..POP_NAME_MAX - 11)?;
    Some(format!("{begin}-{}", name_hash(node.as_bytes())))
}
