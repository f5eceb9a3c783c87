//! One configuration in one worker.

mod exchange;
mod host_request;
mod live;

use weir_limiter::config::Config;
use weir_limiter::decision::{Decision, Outcome, Standing};
use weir_limiter::ladder::Step;
use weir_limiter::limiter::{Afterwards, Limiter, What};
use weir_limiter::response::{Answers, Header};
use weir_limiter::rules::Rule;
use weir_limiter::rules::after::After;
use weir_limiter::time::Time;

use crate::answers::{RuleAnswers, unix_ns_for};
use crate::holding::Holding;
use crate::host::{self, Headers, Status};
use crate::metrics::Metrics;
use crate::nginx;
use crate::sample::Sample;
use crate::shared::{self, Table};
use crate::sync::Caller;
use exchange::{note_heard, reporter};
use host_request::HostRequest;
use live::Live;

/// The limiter with everything it needs of the host.
pub(crate) struct Worker {
    limiter: Limiter,
    table: Table,
    answers: Vec<RuleAnswers>,
    metrics: Metrics,
    sample: Sample,
    /// None where the POP is on its own.
    caller: Option<Caller>,
    holding: Holding,
    notes_filter_state: bool,
    /// The step of the ladder that was last logged.
    step: Option<Step>,
    live: Live,
    clock: Clock,
}

/// Names a rule as long as the rules are not replaced.
#[derive(Clone, Copy)]
pub(crate) struct RuleIndex {
    generation: u32,
    index: u16,
}

impl Worker {
    /// Fails where the POP would report without a name: two POPs of one name would pass for one.
    pub(crate) fn new(config: Config) -> Result<Self, String> {
        let answers = config.rules.rules().iter().map(RuleAnswers::of).collect();
        let metrics = Metrics::define(&config.rules, config.sync.is_some());
        let reporter = config.sync.as_ref().map(reporter).transpose()?;
        let mut limiter = Limiter::new(config.rules, shared::identity(), reporter);
        if let Some(sync) = &config.sync {
            limiter.hide_keys_with(sync.key_secret);
            limiter.fall_back_after(u64::from(sync.fallback_after_ms) * 1_000_000);
        }
        note_heard(&mut limiter);
        if config.sync.is_some() && !nginx::IS_HOST {
            shared::open_parted();
        }
        let (table, caller) = (Table::open(config.slots), config.sync.as_ref().map(Caller::new));
        let (holding, live, clock) = (Holding::default(), Live::default(), Clock::default());
        let notes_filter_state = config.filter_state;
        let mut worker = Self {
            limiter,
            table,
            answers,
            metrics,
            sample: Sample::default(),
            caller,
            holding,
            notes_filter_state,
            step: None,
            live,
            clock,
        };
        worker.take_shared_rules();
        Ok(worker)
    }

    pub(crate) fn decide(&mut self) -> Decision {
        let now = self.clock.now();
        self.limiter.decide(&mut HostRequest, &mut self.table, now)
    }

    /// Answers a request that a rule refused; none where there is no such rule.
    pub(crate) fn answer(
        &mut self,
        outcome: Outcome,
        rule: u16,
        standing: &Standing,
    ) -> Option<Result<(), Status>> {
        let jitter_s = self.limiter.jitter_s(rule, self.clock.latest());
        let index = usize::from(rule);
        let (rule, answers) = (self.limiter.rules().rules().get(index)?, self.answers.get_mut(index)?);
        Some(match outcome {
            Outcome::Deny => answers.send_denied(standing, jitter_s),
            _ => answers.send_limited(rule, standing, jitter_s),
        })
    }

    /// A rule and its answers.
    pub(crate) fn rule(&self, index: u16) -> Option<(&Rule, &Answers)> {
        let index = usize::from(index);
        Some((self.limiter.rules().rules().get(index)?, self.answers.get(index)?.answers()))
    }

    /// Notes the decision and its rule for access logs, where the configuration says so:
    /// `%FILTER_STATE(wasm.weir.decision:PLAIN)%` and `%FILTER_STATE(wasm.weir.rule:PLAIN)%`. The two calls are a good
    /// part of what a request costs, and a refused one names its rule in its response's details anyway.
    pub(crate) fn note_in_filter_state(&self, decision: &Decision) {
        if !self.notes_filter_state {
            return;
        }
        let outcome = match decision.outcome {
            Outcome::Allow => "allow",
            Outcome::Limit => "limit",
            Outcome::Deny => "deny",
            Outcome::Block => "block",
            Outcome::Wait => "wait",
        };
        let rule = decision.strictest.and_then(|(rule, _)| self.rule(rule));
        // A host without filter state logs nothing of it; the decision stands.
        let _ = host::set_property("weir.decision", outcome);
        let _ = host::set_property("weir.rule", rule.map_or("", |(rule, _)| &rule.name));
    }

    /// What the decision just made leaves to be done when its request ends.
    pub(crate) fn afterwards(&mut self) -> Vec<Afterwards> {
        self.limiter.afterwards()
    }

    /// Holds the request of `context` for `hold_ns` nanoseconds; false if it has to go on at once.
    pub(crate) fn hold(&mut self, context: u32, hold_ns: u64) -> bool {
        let turn = self.clock.now() + hold_ns;
        self.holding.hold(context, turn)
    }

    /// Lets every request go on at once: nothing would ever resume it.
    pub(crate) fn hold_nothing(&mut self) {
        self.holding = Holding::none();
    }

    /// Whether any request is held.
    pub(crate) fn is_holding(&self) -> bool {
        !self.holding.is_empty()
    }

    /// The contexts whose held requests are to go on now.
    pub(crate) fn due(&mut self) -> Vec<u32> {
        let now = self.clock.now();
        self.holding.due(now)
    }

    /// Charges those of `afterwards` that the response's headers tell the cost of; the rest stays.
    pub(crate) fn charge_by_headers(&mut self, afterwards: &mut Vec<Afterwards>) {
        let status = host::header(Headers::Response, ":status").ok();
        let status = status.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok()).unwrap_or(0);
        self.charge(afterwards, |after| match after {
            After::Header { name, .. } => {
                after.of_header(host::header(Headers::Response, name).ok().as_deref())
            }
            After::Status(_) | After::Bytes { .. } => after.of_status(status),
        });
    }

    /// Charges those that the response's size tells the cost of, if there are any; the rest stays.
    pub(crate) fn charge_by_size(&mut self, afterwards: &mut Vec<Afterwards>) {
        let is_by_size = |what: &What| matches!(what, What::Charge(after) if after.of_bytes(0).is_some());
        if !afterwards.iter().any(|done| is_by_size(&done.what)) {
            return;
        }
        let size = host::property("response\0size").ok().and_then(number).unwrap_or(0);
        self.charge(afterwards, |after| after.of_bytes(size));
    }

    fn charge(&mut self, afterwards: &mut Vec<Afterwards>, cost_of: impl Fn(&After) -> Option<u32>) {
        let now = self.clock.now();
        let mut left = Vec::new();
        for done in std::mem::take(afterwards) {
            let cost = if let What::Charge(after) = &done.what { cost_of(after) } else { None };
            match cost {
                Some(cost) => self.limiter.charge(done, cost, &mut self.table, now),
                None => left.push(done),
            }
        }
        *afterwards = left;
    }

    /// Ends what is left of a request that ends: what it holds is released.
    pub(crate) fn release(&mut self, afterwards: Vec<Afterwards>) {
        let now = self.clock.now();
        for done in afterwards {
            self.limiter.release(done, &mut self.table, now);
        }
    }

    /// The rule at `index` of those in force now.
    pub(crate) fn index(&self, index: u16) -> RuleIndex {
        RuleIndex { generation: self.generation(), index }
    }

    /// Whether a rule in force holds requests until their turns.
    pub(crate) fn holds_requests(&self) -> bool {
        let mut rules = self.limiter.rules().rules().iter();
        rules.any(|rule| nginx::holds_requests(&rule.algorithm))
    }

    /// Counts the rule sets that were in force.
    pub(crate) fn generation(&self) -> u32 {
        self.limiter.generation()
    }

    /// Whether allowed responses carry this rule's quota headers.
    pub(crate) fn tells_allowed(&self, rule: u16) -> bool {
        self.rule(rule).is_some_and(|(rule, _)| rule.response.on_allowed)
    }

    /// The quota headers of an allowed response; none where the rules were replaced since.
    pub(crate) fn quota_headers(&self, rule: RuleIndex, standing: &Standing) -> Vec<Header<'_>> {
        if rule.generation != self.generation() {
            return Vec::new();
        }
        let rule = self.rule(rule.index);
        rule.map_or_else(Vec::new, |(rule, answers)| answers.quota(rule, standing, unix_ns_for(rule)))
    }

    pub(crate) fn flush_metrics(&mut self) {
        self.metrics.flush(self.limiter.counters());
        let now = self.clock.now();
        if let Some(places) = self.sample.look(&mut self.table, now) {
            self.metrics.show_places(places);
        }
        self.show_step();
    }

    /// Decides a request that has waited.
    pub(crate) fn decide_again(&mut self, answered: bool) -> Decision {
        let now = self.clock.now();
        self.limiter.decide_again(answered, &mut HostRequest, &mut self.table, now)
    }
}

/// The monotonic clock, or on a host that has none the wall clock held from going back. The two are
/// never mixed: a monotonic clock that fails once stands still for once.
#[derive(Default)]
struct Clock {
    is_monotonic: bool,
    latest_ns: u64,
}

impl Clock {
    fn now(&mut self) -> Time {
        match host::monotonic_ns() {
            Some(ns) => (self.is_monotonic, self.latest_ns) = (true, ns),
            None if self.is_monotonic => {}
            None => self.latest_ns = self.latest_ns.max(host::unix_ns()),
        }
        self.latest()
    }

    /// What was last read.
    fn latest(&self) -> Time {
        Time::from_nanos(self.latest_ns)
    }
}

/// A number among the properties: on nginx it is text.
fn number(bytes: Vec<u8>) -> Option<u64> {
    if nginx::IS_HOST {
        std::str::from_utf8(&bytes).ok()?.parse().ok()
    } else {
        bytes.try_into().ok().map(u64::from_le_bytes)
    }
}
