//! Metrics of a gateway, which weir-sync registers, and the sums of its workers' counters among them.

use std::collections::BTreeSet;
use std::sync::Mutex;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use weir_limiter::counters::{CountedEvent, Counters, RULES_COUNTED_MAX, RuleCounters, reported_in_turn};
use weir_protocol::messages::RuleCounts;
use weir_store::lock;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfRule {
    /// Its name.
    pub rule: String,
}

/// Labels of a check at the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Checked {
    /// `http` (`/v1/check`), `limit` (`/ratelimit/check`), `grpc` or `quota`.
    pub api: &'static str,
    /// `allow`, `limit`, `deny` (the check failed) or `block`.
    pub decision: &'static str,
}

/// Labels of an event at the gateway other than a decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Happened {
    /// Name of the engine's metric, without its prefix.
    pub event: &'static str,
}

/// Metrics that the gateway updates. A clone has the same values.
#[derive(Clone, Debug, Default)]
pub struct GatewayMetrics {
    /// Checks, by API and decision.
    pub checks: Family<Checked, Counter>,
    /// Decisions of each rule, in the order of [`RuleCounters::NAMES`].
    pub decisions: [Family<OfRule, Counter>; RuleCounters::NAMES.len()],
    /// Other events.
    pub events: Family<Happened, Counter>,
    /// Streams of quota clients.
    pub quota_streams: Gauge,
    /// Buckets that quota clients report.
    pub quota_buckets: Gauge,
}

impl GatewayMetrics {
    /// Counts checks through an API, or requests that a client with quotas decided for itself.
    pub fn count_checks(&self, api: &'static str, decision: &'static str, count: u64) {
        self.checks.get_or_create(&Checked { api, decision }).inc_by(count);
    }
}

const PREFIX: &str = "weir.";

pub(super) struct CounterSums {
    metrics: GatewayMetrics,
    rules: Mutex<BTreeSet<String>>,
}

impl CounterSums {
    pub(super) fn new(metrics: GatewayMetrics) -> Self {
        Self { metrics, rules: Mutex::default() }
    }

    /// Creates a row for each of these rules, so that each exports zero before its first request. Returns the
    /// names that have rows; the others are replaced by empty names.
    pub(super) fn define(&self, names: impl Iterator<Item = String>) -> Vec<String> {
        let mut known = lock(&self.rules);
        let mut define = |name: String| {
            if !known.contains(&name) {
                if known.len() >= RULES_COUNTED_MAX {
                    return String::new();
                }
                known.insert(name.clone());
                for family in &self.metrics.decisions {
                    let _ = family.get_or_create(&OfRule { rule: name.clone() });
                }
            }
            name
        };
        names.map(&mut define).collect()
    }

    /// Counts of some rules, [in turn](reported_in_turn), and the total number of rules.
    pub(super) fn counted(&self, turn: u64) -> (Vec<RuleCounts>, usize) {
        let known = lock(&self.rules);
        let names: Vec<&String> = known.iter().collect();
        let reported = reported_in_turn(turn, names.len()).filter_map(|at| names.get(at));
        let of = |name: &&String| {
            let rule = (*name).clone();
            let counted = |family: &Family<OfRule, Counter>| {
                family.get(&OfRule { rule: rule.clone() }).map_or(0, |counter| counter.get())
            };
            RuleCounts { decided: self.metrics.decisions.each_ref().map(counted), name: rule.clone() }
        };
        (reported.map(of).collect(), names.len())
    }

    /// Number of requests that the `deny` list refused.
    pub(super) fn blocked(&self) -> u64 {
        let name =
            CountedEvent::METRICS.iter().find(|(event, _)| *event == CountedEvent::ListBlocked).map(|(_, name)| *name);
        let event = name.unwrap_or_default().trim_start_matches(PREFIX);
        self.metrics.events.get(&Happened { event }).map_or(0, |counter| counter.get())
    }

    /// Adds a worker's counts since the last call, for rules of these names.
    pub(super) fn add(&self, counters: &mut Counters, names: &[String]) {
        for (event, name) in CountedEvent::METRICS {
            let happened = u64::from(counters.take_event(event));
            if happened > 0 {
                let event = name.trim_start_matches(PREFIX);
                self.metrics.events.get_or_create(&Happened { event }).inc_by(happened);
            }
        }
        for (index, name) in names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            for (family, figure) in self.metrics.decisions.iter().zip(counters.take_rule(index).counts()) {
                if figure > 0 {
                    family.get_or_create(&OfRule { rule: name.clone() }).inc_by(figure.into());
                }
            }
        }
    }
}
