//! Counters in the host's metrics.
//!
//! A decision counts in the worker's own memory; the tick hands the sums to the host, so that a
//! request pays for no metric call.

use weir_limiter::counters::{Counters, Event};
use weir_limiter::ladder::Step;
use weir_limiter::rules::RuleSet;

use crate::host;

/// The host's numbers for the limiter's counters; `None` where the host would not define one.
pub(crate) struct Metrics {
    events: Vec<(Event, Option<u32>)>,
    rules: Vec<RuleMetrics>,
    /// The step of the ladder; only where there is a weir-sync to be in touch with.
    ladder: Option<u32>,
}

struct RuleMetrics {
    allowed: Option<u32>,
    limited: Option<u32>,
    denied: Option<u32>,
    shadow_limited: Option<u32>,
}

impl Metrics {
    /// Defines every metric, so that a zero is there to be seen before anything happened.
    pub(crate) fn define(rules: &RuleSet, has_sync: bool) -> Self {
        let counter = |name: &str| host::define_counter(name).ok();
        Self {
            events: Event::ALL.map(|event| (event, counter(event.name()))).into(),
            rules: rules
                .rules()
                .iter()
                .map(|rule| RuleMetrics {
                    allowed: counter(&format!("weir.rule.{}.allowed", rule.name)),
                    limited: counter(&format!("weir.rule.{}.limited", rule.name)),
                    denied: counter(&format!("weir.rule.{}.denied", rule.name)),
                    shadow_limited: counter(&format!("weir.rule.{}.shadow_limited", rule.name)),
                })
                .collect(),
            ladder: has_sync.then(|| host::define_gauge("weir.sync.ladder").ok()).flatten(),
        }
    }

    /// Hands over what was counted since the last time.
    pub(crate) fn flush(&self, counters: &mut Counters) {
        for (event, metric) in &self.events {
            add(*metric, counters.take_event(*event));
        }
        for (i, metrics) in self.rules.iter().enumerate() {
            let counts = counters.take_rule(i);
            add(metrics.allowed, counts.allowed);
            add(metrics.limited, counts.limited);
            add(metrics.denied, counts.denied);
            add(metrics.shadow_limited, counts.shadow_limited);
        }
    }

    /// Shows the step of the ladder: 0 fresh, 1 stale, 2 fallback.
    pub(crate) fn show(&self, step: Step) {
        if let Some(gauge) = self.ladder {
            // Shown again at the next tick.
            let _ = host::record(gauge, step as u64);
        }
    }
}

fn add(metric: Option<u32>, n: u32) {
    if let Some(metric) = metric.filter(|_| n > 0) {
        // A count that the host does not take is lost; the decision it counted stands.
        let _ = host::increment(metric, n);
    }
}
