//! Counters in the host's metrics.
//!
//! Decisions are counted in the worker's own memory; the tick hands the sums to the host, so that a request
//! costs no metric call. No host ever forgets a metric, so the number of rules' metrics is bounded.

use std::cell::{Cell, RefCell};

use weir_limiter::counters::{Counters, Event};
use weir_limiter::edge::said_in_turn;
use weir_limiter::fleet::ladder::Step;
use weir_rules::RuleSet;
use weir_wire::messages::{RULES_MAX, RuleCounts, Running};

use crate::host::{self, Metric};

/// The most rules that a VM defines metrics for, however often rules are replaced; any beyond have none.
/// The VMs of one process see the same rules.
const RULES_DEFINED_MAX: usize = 4 * RULES_MAX;

thread_local! {
    /// The rules that this VM has defined metrics for, sorted by name. A name always has the same number at the host,
    /// so a rule that comes back goes on counting where it was.
    static DEFINED: RefCell<Vec<(String, RuleMetrics)>> = const { RefCell::new(Vec::new()) };
    /// The metric of the requests that the list `deny` refused, once it is defined.
    static BLOCKED: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The host's numbers for the limiter's counters; `None` if the host did not define one.
pub(crate) struct Metrics {
    events: Vec<(Event, Option<u32>)>,
    rules: Vec<RuleMetrics>,
    /// The step of the ladder; only if there is a weir-sync to be in touch with.
    ladder: Option<u32>,
    /// The rule set that runs, and the latest that was refused; likewise.
    running: Option<u32>,
    refused: Option<u32>,
    /// How many keys the table holds something about.
    places: Option<u32>,
}

/// The metrics of a rule.
type RuleMetrics = [Option<u32>; OF_RULE.len()];
/// Their names behind that of the rule.
const OF_RULE: [&str; 4] = ["allowed", "limited", "denied", "shadow_limited"];

impl Metrics {
    /// Defines every metric at once, so that each shows zero before anything has happened.
    pub(crate) fn define(rules: &RuleSet, has_sync: bool) -> Self {
        let gauge = |name: &str| has_sync.then(|| host::define_metric(Metric::Gauge, name).ok()).flatten();
        let mut metrics = Self {
            events: Event::METRICS.map(|(event, name)| (event, counter(name))).into(),
            rules: Vec::new(),
            ladder: gauge("weir.sync.ladder"),
            running: gauge("weir.rule_set.running"),
            refused: gauge("weir.rule_set.refused"),
            places: host::define_metric(Metric::Gauge, "weir.table.places_taken").ok(),
        };
        let blocked = metrics.events.iter().find(|(event, _)| *event == Event::ListBlocked);
        BLOCKED.set(blocked.and_then(|(_, metric)| *metric));
        metrics.define_rules(rules);
        metrics
    }

    /// Defines the metrics of new rules.
    pub(crate) fn define_rules(&mut self, rules: &RuleSet) {
        let mut without = 0;
        self.rules = rules
            .rules()
            .iter()
            .map(|rule| {
                of_rule(&rule.name).unwrap_or_else(|| {
                    without += 1;
                    RuleMetrics::default()
                })
            })
            .collect();
        if without > 0 {
            log::warn!("{without} rules have no metrics: {RULES_DEFINED_MAX} others have, the most");
        }
    }

    /// Hands the host what was counted since the last time.
    pub(crate) fn flush(&self, counters: &mut Counters) {
        for (event, metric) in &self.events {
            add(*metric, counters.take_event(*event));
        }
        for (i, metrics) in self.rules.iter().enumerate() {
            let counts = counters.take_rule(i);
            let counts = [counts.allowed, counts.limited, counts.denied, counts.shadow_limited];
            for (metric, count) in metrics.iter().zip(counts) {
                add(*metric, count);
            }
        }
    }

    /// Shows the step of the ladder: 0 fresh, 1 stale, 2 fallback.
    pub(crate) fn show(&self, step: Step) {
        // If the host does not take it, the next tick shows it again.
        show(self.ladder, step as u64);
    }

    /// Shows how many keys the table holds something about.
    pub(crate) fn show_places(&self, taken: u64) {
        show(self.places, taken);
    }

    /// Shows the version of the rule set that runs (0 if that is the plugin configuration's), and of the
    /// latest that was refused.
    pub(crate) fn show_rule_set(&self, running: Running) {
        show(self.running, running.version);
        show(self.refused, running.refused);
    }
}

/// The metrics of the rule `name`; none if too many other rules had theirs before.
fn of_rule(name: &str) -> Option<RuleMetrics> {
    DEFINED.with_borrow_mut(|defined| {
        let at = match defined.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
            Ok(at) => return defined.get(at).map(|(_, metrics)| *metrics),
            Err(at) => at,
        };
        if defined.len() >= RULES_DEFINED_MAX {
            return None;
        }
        let metrics = OF_RULE.map(|what| counter(&format!("weir.rule.{name}.{what}")));
        // If the host defined none, no place is used, and the next rules try again.
        if metrics.iter().any(Option::is_some) {
            defined.insert(at, (name.to_owned(), metrics));
        }
        Some(metrics)
    })
}

/// What was counted of this process's rules, [in turn](said_in_turn), and how many rules there are.
pub(crate) fn counted(turn: u64) -> (Vec<RuleCounts>, usize) {
    DEFINED.with_borrow(|defined| {
        let said = said_in_turn(turn, defined.len()).filter_map(|at| defined.get(at));
        let of = |(name, metrics): &(String, RuleMetrics)| RuleCounts {
            name: name.clone(),
            decided: metrics.map(|metric| metric.map_or(0, host::metric)),
        };
        (said.map(of).collect(), defined.len())
    })
}

/// How many requests the list `deny` refused in this process.
pub(crate) fn blocked() -> u64 {
    BLOCKED.get().map_or(0, host::metric)
}

fn counter(name: &str) -> Option<u32> {
    host::define_metric(Metric::Counter, name).ok()
}

fn show(gauge: Option<u32>, value: u64) {
    if let Some(gauge) = gauge {
        let _ = host::record(gauge, value);
    }
}

fn add(metric: Option<u32>, n: u32) {
    if let Some(metric) = metric.filter(|_| n > 0) {
        // A count that the host does not take is lost; the decision stands.
        let _ = host::increment(metric, n);
    }
}
