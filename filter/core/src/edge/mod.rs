//! The state machine of one worker: what a host drives, whichever host it is.
//!
//! ```text
//! configure                         -> an Edge, and effects
//! request, answer_request           -> a step: continue, hold, call weir-sync, answer the client
//! response, response_sent, end      what the request's response tells, and what it still held
//! tick, answer                      -> effects: calls, requests that go on, log lines, the timer
//! leave                             the worker ends
//! ```
//!
//! There is no IO here and no clock: `now` is an argument, what workers share is behind a trait ([`Site`]), and what is
//! to be done comes back as a value. A request that is let through makes none but [`Step::Continue`].
//!
//! ```
//! use weir_limiter::edge::{Edge, HostRules, LocalSite, Open, Step};
//! use weir_rules::request::{Attribute, Request};
//! use weir_wire::time::Time;
//!
//! /// A request, as far as the rules below ask for it.
//! struct Get(&'static str);
//!
//! impl Request for Get {
//!     fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
//!         (*attribute == Attribute::SourceAddress).then(|| self.0.into())
//!     }
//! }
//!
//! let rules = br#"{"rules": [{"name": "per-client", "key": ["client_address"], "rate": "2/h"}]}"#;
//! let mut site = LocalSite::new(*b"a random secret!", 1);
//! let now = Time::from_nanos(1_000_000_000);
//! let (mut edge, _) = Edge::configure(rules, HostRules::default(), &mut site, now).expect("good rules");
//! let mut statuses = Vec::new();
//! for id in 1..=3 {
//!     let mut open = Open::new(id);
//!     let decided = edge.request(&mut open, &mut Get("192.0.2.1:80"), &mut site, now);
//!     statuses.push(if let Step::Answer(answer) = decided.step { answer.status } else { 200 });
//!     edge.end(&mut open, &mut site, now);
//! }
//! assert_eq!(statuses, [200, 200, 429]);
//! ```
//!
//! ```text
//! requests.rs  request in, decision out; what is left to do until its end
//! answers.rs   what refused clients are told, ready for the host
//! holding.rs   requests that wait for their turn
//! reports.rs   reports and their answers; how well the worker is in touch with weir-sync
//! pushed.rs    the rule set that the fleet is to run: fetched, shared, put in force
//! site.rs      what an edge needs of its program; local.rs, a site in memory
//! effect.rs    what it has its host do
//! ```

mod answers;
mod effect;
mod holding;
mod local;
mod pushed;
mod reports;
mod requests;
mod site;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::counters::Counters;
use crate::ladder::Step as LadderStep;
use crate::limiter::{Limiter, Reporter};
use crate::slot::slots_for;
use answers::{Blocked, GrpcSigns, RuleAnswers};
use effect::Turn;
pub use effect::{Answer, Answered, Call, Decided, Effect, Level, Note, Step, Unread};
use holding::Holding;
pub use local::LocalSite;
use pushed::Pushed;
pub use requests::{Open, Response};
pub use site::{Heard, HostRules, RulesWord, Shared, Site, is_time_to_greet};
use weir_rules::RuleSet;
use weir_rules::config::{Config, SyncConfig};
use weir_rules::document::DOCUMENT_BYTES_MAX;
use weir_rules::reading::ConfigError;
use weir_wire::messages::POP_NAME_MAX;
use weir_wire::time::Time;

/// The most bytes of an answer to a call that a host needs to read.
pub const ANSWER_BYTES_MAX: usize = DOCUMENT_BYTES_MAX;
/// The tick of a POP on its own, in milliseconds: it only hands over what was counted.
const TICK_MS: u32 = 1_000;
/// The tick where requests are held until their turns, in milliseconds: so late they may go on.
const TURN_MS: u32 = 10;

/// One configuration in one worker.
pub struct Edge {
    limiter: Limiter,
    host: HostRules,
    /// Of each rule in force.
    answers: Vec<RuleAnswers>,
    blocked: Blocked,
    grpc: GrpcSigns,
    notes_decisions: bool,
    holding: Holding,
    pace: Pace,
    /// None where the POP is on its own.
    sync: Option<SyncConfig>,
    /// Why the last exchange failed; logged when it changes, not at every tick.
    trouble: Option<String>,
    /// The step of the ladder that was last logged.
    step: Option<LadderStep>,
    pushed: Pushed,
}

/// How often it ticks.
#[derive(Clone, Copy)]
struct Pace {
    /// Between two reports.
    interval_ms: u32,
    /// Ticks in that time: more than one where requests are held until their turns.
    ticks_per_interval: u32,
    /// The same, as the host last had it for certain.
    before: u32,
    ticks: u32,
    /// The rules that the timer was last set for.
    generation: u32,
}

impl Edge {
    /// An edge of this plugin configuration, and what its host is to do first. It is refused where it has errors, each
    /// with its place, or where the POP would report without a name: two POPs of one name would pass for one.
    pub fn configure(
        bytes: &[u8],
        host: HostRules,
        site: &mut dyn Site,
        now: Time,
    ) -> Result<(Self, Vec<Effect>), Vec<String>> {
        let mut config = Config::parse(bytes).map_err(texts)?;
        let refusals = site.refusals(&config.rules);
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let mut turn = Turn::new(site, now);
        if config.sync.is_some() && !turn.site.makes_calls() {
            turn.log(Level::Warn, "the host makes no HTTP calls: sync is off, and this POP is on its own");
            config.sync = None;
        }
        if config.keys_are_unkeyed() {
            turn.log(
                Level::Warn,
                "keys leave this POP under a hash that everybody can make: set sync.key_secret, the same at every POP",
            );
        }
        let reporter = config.sync.as_ref().map(|sync| reporter(sync, turn.site)).transpose();
        let mut edge = Self::of(config, reporter.map_err(|error| alloc::vec![error])?, host, turn.site);
        edge.take_shared_rules(&mut turn);
        let (ticks, generation) = (edge.ticks_per_interval(), edge.limiter.generation());
        edge.pace = Pace { ticks_per_interval: ticks, before: ticks, generation, ..edge.pace };
        turn.effects.push(Effect::SetTimer(edge.pace.interval_ms / ticks));
        Ok((edge, turn.effects))
    }

    fn of(config: Config, reporter: Option<Reporter>, host: HostRules, site: &mut dyn Site) -> Self {
        let answers = config.rules.rules().iter().map(RuleAnswers::of).collect();
        let mut limiter = Limiter::new(config.rules, site.identity(), reporter);
        if let Some(sync) = &config.sync {
            limiter.hide_keys_with(sync.key_secret);
            limiter.fall_back_after(u64::from(sync.fallback_after_ms) * 1_000_000);
            if host.has_heirs {
                site.open_parted();
            }
        }
        reports::note_heard(&mut limiter, site);
        site.open(slots_for(config.addresses));
        let interval_ms = config.sync.as_ref().map_or(TICK_MS, |sync| sync.interval_ms);
        Self {
            limiter,
            host,
            answers,
            blocked: Blocked::new(site),
            grpc: GrpcSigns::new(),
            notes_decisions: config.filter_state,
            holding: Holding::default(),
            pace: Pace { interval_ms, ticks_per_interval: 1, before: 1, ticks: 0, generation: 0 },
            sync: config.sync,
            trouble: None,
            step: None,
            pushed: Pushed::default(),
        }
    }

    /// The timer has run: to be called as often as [`Effect::SetTimer`] said.
    pub fn tick(&mut self, site: &mut dyn Site, now: Time) -> Vec<Effect> {
        let mut turn = Turn::new(site, now);
        while let Some(id) = self.holding.next_due(now) {
            turn.effects.push(Effect::Resume(id));
        }
        self.pace.ticks = self.pace.ticks.wrapping_add(1);
        if self.pace.ticks.is_multiple_of(self.pace.ticks_per_interval.max(1)) {
            self.follow_rules(&mut turn);
            self.keep_pace(&mut turn);
            self.report(&mut turn);
            turn.effects.push(Effect::Flush);
            self.log_step(&mut turn);
        }
        turn.effects
    }

    /// The host ticks no more often than before, if at all: no request is held from now on, as nothing would resume it
    /// in time.
    pub fn has_no_timer(&mut self) {
        self.holding.hold_nothing();
        self.pace.ticks_per_interval = self.pace.before;
    }

    /// The worker ends, and leaves to the others what no report has said.
    pub fn leave(&mut self, site: &mut dyn Site) {
        if self.host.has_heirs && self.sync.is_some() {
            site.leave(&mut |left| self.limiter.leave(left));
        }
    }

    /// The rules in force.
    pub fn rules(&self) -> &RuleSet {
        self.limiter.rules()
    }

    /// What was counted since it was last taken.
    pub fn counters(&mut self) -> &mut Counters {
        self.limiter.counters()
    }

    /// How the configuration says to reach weir-sync; none where the POP is on its own.
    pub fn sync(&self) -> Option<&SyncConfig> {
        self.sync.as_ref()
    }

    /// The limiter, to look at: for simulations and tests.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Ticks in an interval between reports: requests that are held go on at ticks.
    fn ticks_per_interval(&self) -> u32 {
        let may_hold = self.rules().rules().iter().any(|rule| rule.algorithm.holds_requests());
        if may_hold { (self.pace.interval_ms / TURN_MS).max(1) } else { 1 }
    }

    /// Ticks as often as the rules in force need.
    fn keep_pace(&mut self, turn: &mut Turn<'_>) {
        if self.limiter.generation() == self.pace.generation {
            return;
        }
        let (ticks, before) = (self.ticks_per_interval(), self.pace.ticks_per_interval);
        // Those that are held by rules that are gone still have their turns.
        if ticks < before && !self.holding.is_empty() {
            return;
        }
        self.pace.generation = self.limiter.generation();
        if ticks != before {
            (self.pace.ticks_per_interval, self.pace.before) = (ticks, before);
            turn.effects.push(Effect::SetTimer(self.pace.interval_ms / ticks));
        }
    }
}

fn reporter(sync: &SyncConfig, site: &mut dyn Site) -> Result<Reporter, String> {
    let node = || site.node().filter(|name| (1..=POP_NAME_MAX).contains(&name.len()));
    let pop = sync.pop.clone().or_else(node).ok_or_else(|| {
        format!(
            "sync.pop: missing: expected this POP's name, because the host has no node id of 1 to \
             {POP_NAME_MAX} bytes to take instead"
        )
    })?;
    Ok(Reporter { pop, worker: site.random() })
}

#[allow(clippy::needless_pass_by_value, reason = "they are told once")]
fn texts(errors: Vec<ConfigError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}
