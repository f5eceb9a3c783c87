//! Counters in Envoy's metrics.
//!
//! Engines count in their own memory, and the tick passes the sums to Envoy. After a configuration is created,
//! Envoy accepts no new metrics, but it does accept new label values. A rule's name is therefore a label, so
//! that rules can be replaced. Envoy never removes a metric, so the number of rules with metrics is bounded.

use weir_limiter::counters::{CountedEvent, Counters};
use weir_limiter::fleet::connectivity::Connectivity;
use weir_protocol::messages::RunningRules;
use weir_rules::RuleSet;

use crate::abi::{ConfigHandle, EnvoyLogLevel, MetricId, log};
use crate::counts::{self, OF_RULE, RULES_DEFINED_MAX};

/// The label with the rule's name.
const RULE: &str = "rule";

/// Envoy's ids of the limiter's metrics; `None` if Envoy did not define one.
pub(crate) struct Metrics {
    events: Vec<(CountedEvent, Option<MetricId>)>,
    rules: [Option<MetricId>; OF_RULE.len()],
    /// Connectivity, if there is a weir-sync.
    sync_state: Option<MetricId>,
    /// Version of the rule set in force, and the latest one that was refused, if there is a weir-sync.
    running: Option<MetricId>,
    refused: Option<MetricId>,
    /// Estimated number of keys in the table.
    places: Option<MetricId>,
}

impl Metrics {
    /// Defines every metric.
    pub(crate) fn define(config: ConfigHandle, has_sync: bool) -> Self {
        let gauge = |name| has_sync.then(|| config.define_gauge(name)).flatten();
        let of_rule = |name| config.define_counter(&format!("weir.rule.{name}"), &[RULE]);
        Self {
            events: CountedEvent::METRICS
                .map(|(event, name)| (event, config.define_counter(name, &[])))
                .into(),
            rules: OF_RULE.map(of_rule),
            sync_state: gauge("weir.sync.state"),
            running: gauge("weir.rule_set.running"),
            refused: gauge("weir.rule_set.refused"),
            places: config.define_gauge("weir.table.entries_used"),
        }
    }

    /// The names under which these rules are counted; empty for rules without metrics. The counters of each
    /// rule start at zero.
    pub(crate) fn names(&self, rules: &RuleSet, config: ConfigHandle) -> Vec<String> {
        let mut without = 0;
        let mut define = |name: &String| {
            if !counts::define(name) {
                without += 1;
                return String::new();
            }
            for counter in self.rules.iter().flatten() {
                config.count(*counter, &[name], 0);
            }
            name.clone()
        };
        let names = rules.rules().iter().map(|rule| define(&rule.name)).collect();
        if without > 0 {
            let text =
                format!("weir: {without} rules have no metrics: {RULES_DEFINED_MAX} others have, the most");
            log(EnvoyLogLevel::Warn, &text);
        }
        names
    }

    /// Adds the counts since the last call to Envoy's counters. `names` are those of the rules.
    pub(crate) fn flush(&self, counters: &mut Counters, names: &[String], config: ConfigHandle) {
        let add = |metric: Option<MetricId>, labels: &[&str], by: u32| {
            if let Some(metric) = metric.filter(|_| by > 0) {
                config.count(metric, labels, by.into());
            }
        };
        for (event, metric) in &self.events {
            let count = counters.take_event(*event);
            if *event == CountedEvent::ListBlocked {
                counts::add_blocked(count);
            }
            add(*metric, &[], count);
        }
        for (i, name) in names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let counts = counters.take_rule(i);
            let more = [counts.allowed, counts.limited, counts.denied, counts.shadow_limited];
            counts::add(name, more);
            for (metric, more) in self.rules.iter().zip(more) {
                add(*metric, &[name], more);
            }
        }
    }

    /// Sets the connectivity: 0 fresh, 1 stale, 2 fallback.
    pub(crate) fn show(&self, step: Connectivity, config: ConfigHandle) {
        set(self.sync_state, step as u64, config);
    }

    /// Sets the estimated number of keys in the table.
    pub(crate) fn show_places(&self, taken: u64, config: ConfigHandle) {
        set(self.places, taken, config);
    }

    /// Sets the version of the rule set in force (0 if it is the configuration's own), and of the latest that
    /// was refused.
    pub(crate) fn show_rule_set(&self, running: RunningRules, config: ConfigHandle) {
        set(self.running, running.version, config);
        set(self.refused, running.refused, config);
    }
}

fn set(gauge: Option<MetricId>, value: u64, config: ConfigHandle) {
    if let Some(gauge) = gauge {
        config.set(gauge, value);
    }
}
