//! One configuration in one worker.

use weir_limiter::config::{Config, SyncConfig};
use weir_limiter::decision::{Decision, Outcome, Standing};
use weir_limiter::limiter::{Limiter, Reporter};
use weir_limiter::request::{Attribute, Request};
use weir_limiter::response::{Answers, Header};
use weir_limiter::rules::Rule;
use weir_limiter::time::Time;
use weir_limiter::wire::{POP_NAME_MAX, Report, WireError};

use crate::host::{self, Headers};
use crate::metrics::Metrics;
use crate::shared::{self, Table};

/// The limiter with everything it needs of the host.
pub(crate) struct Worker {
    limiter: Limiter,
    table: Table,
    answers: Vec<Answers>,
    metrics: Metrics,
    clock: Clock,
}

impl Worker {
    /// Fails where the POP would report without a name: two POPs of one name would pass for one.
    pub(crate) fn new(config: Config) -> Result<Self, String> {
        let answers = config.rules.rules().iter().map(Answers::of).collect();
        let metrics = Metrics::define(&config.rules);
        let reporter = config.sync.as_ref().map(reporter).transpose()?;
        let mut limiter = Limiter::new(config.rules, shared::identity(), reporter);
        if let Some(pops) = shared::pops() {
            limiter.note_pops(pops);
        }
        Ok(Self { limiter, table: Table::open(config.slots), answers, metrics, clock: Clock::default() })
    }

    pub(crate) fn decide(&mut self) -> Decision {
        let now = self.clock.now();
        self.limiter.decide(&mut HostRequest, &mut self.table, now)
    }

    /// A rule and its answers.
    pub(crate) fn rule(&self, index: u16) -> Option<(&Rule, &Answers)> {
        let index = usize::from(index);
        Some((self.limiter.rules().rules().get(index)?, self.answers.get(index)?))
    }

    /// The quota headers that an allowed response carries, if its strictest rule wants them.
    pub(crate) fn quota_headers(&self, rule: u16, standing: &Standing) -> Vec<Header> {
        match self.rule(rule) {
            Some((rule, answers)) if rule.response.on_allowed => {
                answers.quota(rule, standing, host::unix_ns())
            }
            _ => Vec::new(),
        }
    }

    pub(crate) fn flush_metrics(&mut self) {
        self.metrics.flush(self.limiter.counters());
    }

    pub(crate) fn report(&mut self, interval_ns: u64) -> Option<Report> {
        if let Some(pops) = shared::pops() {
            self.limiter.note_pops(pops);
        }
        let now = self.clock.now();
        let greet = shared::is_my_turn_to_greet(now, interval_ns);
        self.limiter.report(&mut self.table, greet, now)
    }

    pub(crate) fn report_failed(&mut self) {
        self.limiter.report_failed();
    }

    pub(crate) fn apply(&mut self, reply: &[u8]) -> Result<(), WireError> {
        let now = self.clock.now();
        let believed = self.limiter.pops();
        self.limiter.apply(reply, &mut self.table, now)?;
        if let Some(pops) = self.limiter.pops().filter(|pops| Some(*pops) != believed) {
            shared::set_pops(pops);
        }
        Ok(())
    }
}

/// Tells access logs the decision: `%FILTER_STATE(wasm.weir.decision:PLAIN)%` and `...rule...`.
pub(crate) fn note_in_filter_state(decision: &Decision, rule: &str) {
    let outcome = match decision.outcome {
        Outcome::Allow => "allow",
        Outcome::Limit => "limit",
    };
    // A host without filter state logs nothing of it; the decision stands.
    let _ = host::set_property("weir.decision", outcome);
    let _ = host::set_property("weir.rule", rule);
}

fn reporter(sync: &SyncConfig) -> Result<Reporter, String> {
    let pop = sync.pop.clone().or_else(node_id).ok_or_else(|| {
        format!(
            "sync.pop: missing: expected this POP's name, because the host has no node id of 1 to \
             {POP_NAME_MAX} bytes to take instead"
        )
    })?;
    let worker = host::random().map_or_else(host::unix_ns, u64::from_le_bytes);
    Ok(Reporter { pop, worker })
}

/// The proxy's own name: Envoy's `node.id`, by its name of today or an older one.
fn node_id() -> Option<String> {
    let bytes = host::property("xds\0node\0id").or_else(|_| host::property("node\0id")).ok()?;
    String::from_utf8(bytes).ok().filter(|id| (1..=POP_NAME_MAX).contains(&id.len()))
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
        Time::from_nanos(self.latest_ns)
    }
}

/// The request in the host's current context.
struct HostRequest;

impl Request for HostRequest {
    fn attribute(&mut self, attribute: Attribute) -> Option<Vec<u8>> {
        match attribute {
            Attribute::SourceAddress => host::property("source\0address"),
            Attribute::Method => host::header(Headers::Request, ":method"),
            Attribute::Path => host::header(Headers::Request, ":path"),
            Attribute::Authority => host::header(Headers::Request, ":authority"),
        }
        .ok()
    }
}
