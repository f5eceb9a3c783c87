//! Counters in the host's metrics.
//!
//! Decisions are counted in the worker's own memory, and the tick passes the sums to the host, so that a request costs
//! no metric call. No host ever removes a metric, so the number of rules with metrics is bounded.

use std::cell::{Cell, RefCell};

use weir_limiter::counters::{
    CountedEvent, Counters, GAUGES, Gauge, RULES_COUNTED_MAX, RuleCounters, reported_in_turn,
};
use weir_limiter::engine::LogLevel;
use weir_protocol::messages::RuleCounts;
use weir_rules::RuleSet;

use crate::host::{self, Metric};

thread_local! {
    /// The rules with metrics in this VM, sorted by name. A rule that returns continues its counts.
    static DEFINED: RefCell<Vec<(String, RuleMetrics)>> = const { RefCell::new(Vec::new()) };
    static BLOCKED: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The host's ids of the limiter's metrics; `None` where the host did not define one.
pub(crate) struct Metrics {
    events: Vec<(CountedEvent, Option<u32>)>,
    rules: Vec<RuleMetrics>,
    /// In the order of [`GAUGES`].
    gauges: [Option<u32>; GAUGES.len()],
}

type RuleMetrics = [Option<u32>; RuleCounters::NAMES.len()];

impl Metrics {
    /// Defines all metrics at once, so that each is zero before the first request.
    pub(crate) fn define(rules: &RuleSet, has_sync: bool) -> Self {
        let mut gauges = [None; GAUGES.len()];
        for (gauge, name) in gauges.iter_mut().zip(GAUGES).take(if has_sync { GAUGES.len() } else { 1 }) {
            *gauge = host::define_metric(Metric::Gauge, name).ok();
        }
        let mut metrics = Self {
            events: CountedEvent::METRICS.iter().map(|(event, name)| (*event, counter(name))).collect(),
            rules: Vec::new(),
            gauges,
        };
        let blocked = metrics.events.iter().find(|(event, _)| *event == CountedEvent::ListBlocked);
        BLOCKED.set(blocked.and_then(|(_, metric)| *metric));
        metrics.define_rules(rules);
        metrics
    }

    pub(crate) fn define_rules(&mut self, rules: &RuleSet) {
        let mut without = 0;
        let mut defined = |name: &str| {
            let metrics = of_rule(name);
            without += u32::from(metrics.is_none());
            metrics.unwrap_or_default()
        };
        self.rules = rules.rules().iter().map(|rule| defined(&rule.name)).collect();
        if without > 0 {
            let text = format!("{without} rules have no metrics: {RULES_COUNTED_MAX} others have, the most");
            host::log(LogLevel::Warn, &text);
        }
    }

    pub(crate) fn flush(&self, counters: &mut Counters) {
        for (event, metric) in &self.events {
            add(*metric, counters.take_event(*event));
        }
        for (i, metrics) in self.rules.iter().enumerate() {
            for (metric, count) in metrics.iter().zip(counters.take_rule(i).counts()) {
                add(*metric, count);
            }
        }
    }

    /// Sets a gauge. If the host refuses, the next tick sets it again.
    pub(crate) fn show(&self, gauge: Gauge, value: u64) {
        if let Some(id) = self.gauges.get(gauge as usize).copied().flatten() {
            let _ = host::record(id, value);
        }
    }
}

/// The metrics of the rule `name`; `None` if too many other rules have metrics.
fn of_rule(name: &str) -> Option<RuleMetrics> {
    DEFINED.with_borrow_mut(|defined| {
        let at = match defined.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
            Ok(at) => return defined.get(at).map(|(_, metrics)| *metrics),
            Err(at) => at,
        };
        if defined.len() >= RULES_COUNTED_MAX {
            return None;
        }
        let mut metrics = RuleMetrics::default();
        for (metric, what) in metrics.iter_mut().zip(RuleCounters::NAMES) {
            *metric = counter(&format!("weir.rule.{name}.{what}"));
        }
        // If the host defined none, the rule takes no entry, and is tried again with the next rule set.
        if metrics.iter().any(Option::is_some) {
            defined.insert(at, (name.to_owned(), metrics));
        }
        Some(metrics)
    })
}

/// Counts of the rules [of this turn](reported_in_turn) over all workers, and the number of all counted rules.
pub(crate) fn counted(turn: u64) -> (Vec<RuleCounts>, usize) {
    DEFINED.with_borrow(|defined| {
        let due = reported_in_turn(turn, defined.len()).filter_map(|at| defined.get(at));
        let of = |(name, metrics): &(String, RuleMetrics)| RuleCounts {
            name: name.clone(),
            decided: metrics.map(|metric| metric.map_or(0, host::metric)),
        };
        (due.map(of).collect(), defined.len())
    })
}

pub(crate) fn blocked() -> u64 {
    BLOCKED.get().map_or(0, host::metric)
}

#[inline(never)]
fn counter(name: &str) -> Option<u32> {
    host::define_metric(Metric::Counter, name).ok()
}

fn add(metric: Option<u32>, n: u32) {
    if let Some(metric) = metric.filter(|_| n > 0) {
        // Counts that the host refuses are lost; the decision stands.
        let _ = host::increment(metric, n);
    }
}
