//! Counters in Envoy's metrics.
//!
//! Edges count in their own memory; the tick hands the sums to Envoy. Envoy takes no new metrics once a configuration is
//! made, but new values of a label: so a rule's name is one, and rules may be replaced. No metric is ever forgotten, so
//! the number of rules that have metrics is bounded.

use weir_limiter::counters::{Counters, Event};
use weir_limiter::fleet::ladder::Step;
use weir_rules::RuleSet;
use weir_wire::messages::Running;

use crate::abi::{Config, Level, MetricId, log};
use crate::counts::{self, OF_RULE, RULES_DEFINED_MAX};

/// The label of a rule's metrics.
const RULE: &str = "rule";

/// Envoy's numbers for the limiter's counters; `None` if Envoy did not define one.
pub(crate) struct Metrics {
    events: Vec<(Event, Option<MetricId>)>,
    rules: [Option<MetricId>; OF_RULE.len()],
    /// The step of the ladder; only if there is a weir-sync to be in touch with.
    ladder: Option<MetricId>,
    /// The rule set that runs, and the latest that was refused; likewise.
    running: Option<MetricId>,
    refused: Option<MetricId>,
    /// How many keys the table holds something about.
    places: Option<MetricId>,
}

impl Metrics {
    /// Defines every metric.
    pub(crate) fn define(config: Config, has_sync: bool) -> Self {
        let gauge = |name| has_sync.then(|| config.define_gauge(name)).flatten();
        let of_rule = |name| config.define_counter(&format!("weir.rule.{name}"), &[RULE]);
        Self {
            events: Event::METRICS.map(|(event, name)| (event, config.define_counter(name, &[]))).into(),
            rules: OF_RULE.map(of_rule),
            ladder: gauge("weir.sync.ladder"),
            running: gauge("weir.rule_set.running"),
            refused: gauge("weir.rule_set.refused"),
            places: config.define_gauge("weir.table.places_taken"),
        }
    }

    /// The names to count these rules by, empty for those that have no metrics. Each shows zero before anything has happened.
    pub(crate) fn names(&self, rules: &RuleSet, config: Config) -> Vec<String> {
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
            log(Level::Warn, &text);
        }
        names
    }

    /// Hands Envoy what was counted since the last time, for rules of these names.
    pub(crate) fn flush(&self, counters: &mut Counters, names: &[String], config: Config) {
        let add = |metric: Option<MetricId>, labels: &[&str], by: u32| {
            if let Some(metric) = metric.filter(|_| by > 0) {
                config.count(metric, labels, by.into());
            }
        };
        for (event, metric) in &self.events {
            let count = counters.take_event(*event);
            if *event == Event::ListBlocked {
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

    /// Shows the step of the ladder: 0 fresh, 1 stale, 2 fallback.
    pub(crate) fn show(&self, step: Step, config: Config) {
        set(self.ladder, step as u64, config);
    }

    /// Shows how many keys the table holds something about.
    pub(crate) fn show_places(&self, taken: u64, config: Config) {
        set(self.places, taken, config);
    }

    /// Shows the version of the rule set that runs (0 if that is the configuration's), and of the latest that was
    /// refused.
    pub(crate) fn show_rule_set(&self, running: Running, config: Config) {
        set(self.running, running.version, config);
        set(self.refused, running.refused, config);
    }
}

fn set(gauge: Option<MetricId>, value: u64, config: Config) {
    if let Some(gauge) = gauge {
        config.set(gauge, value);
    }
}
