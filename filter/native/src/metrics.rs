//! Counters in Envoy's metrics.
//!
//! Engines count in their own memory, and the tick passes the sums to Envoy. Once a configuration is created, Envoy
//! accepts no new metrics, but new label values. So a rule's name is a label, and rules can be replaced. Envoy never
//! removes a metric, so the number of rules with metrics is bounded.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_limiter::counters::{
    CountedEvent, Counters, GAUGES, Gauge, RULES_COUNTED_MAX, RuleCounters, reported_in_turn,
};
use weir_limiter::engine::LogLevel;
use weir_protocol::messages::RuleCounts;
use weir_rules::RuleSet;

use crate::abi::{ConfigHandle, EnvoyMetric, log};
use crate::locked;

const RULE: &str = "rule";
static DEFINED: Mutex<BTreeMap<String, RuleSums>> = Mutex::new(BTreeMap::new());
/// Requests that the `deny` list refused since this process began.
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// A rule's sums over all workers, in the order of [`RuleCounters::NAMES`].
type RuleSums = [u64; RuleCounters::NAMES.len()];

/// The limiter's metrics; `None` where Envoy did not define one.
pub(crate) struct Metrics {
    events: Vec<(CountedEvent, Option<EnvoyMetric>)>,
    rules: [Option<EnvoyMetric>; RuleCounters::NAMES.len()],
    /// In the order of [`GAUGES`].
    gauges: [Option<EnvoyMetric>; GAUGES.len()],
}

impl Metrics {
    pub(crate) fn define(config: ConfigHandle, has_sync: bool) -> Self {
        let mut gauges = [None; GAUGES.len()];
        for (gauge, name) in gauges.iter_mut().zip(GAUGES).take(if has_sync { GAUGES.len() } else { 1 }) {
            *gauge = config.define_gauge(name);
        }
        let of_rule = |name| config.define_counter(&format!("weir.rule.{name}"), &[RULE]);
        Self {
            events: CountedEvent::METRICS.map(|(event, name)| (event, config.define_counter(name, &[]))).into(),
            rules: RuleCounters::NAMES.map(of_rule),
            gauges,
        }
    }

    /// The names under which these rules are counted from now on, from zero; empty for rules without metrics.
    pub(crate) fn names(&self, rules: &RuleSet, config: ConfigHandle) -> Vec<String> {
        let mut without = 0;
        let mut defined = |name: &String| {
            if !define(name) {
                without += 1;
                return String::new();
            }
            for counter in self.rules.iter().flatten() {
                config.record(*counter, &[name], 0);
            }
            name.clone()
        };
        let names = rules.rules().iter().map(|rule| defined(&rule.name)).collect();
        if without > 0 {
            let text = format!("{without} rules have no metrics: {RULES_COUNTED_MAX} others have, the most");
            log(LogLevel::Warn, &text);
        }
        names
    }

    /// Adds the counts since the last call to Envoy's counters. `names` are those of the rules.
    pub(crate) fn flush(&self, counters: &mut Counters, names: &[String], config: ConfigHandle) {
        let count = |metric: Option<EnvoyMetric>, labels: &[&str], by: u32| {
            if let Some(metric) = metric.filter(|_| by > 0) {
                config.record(metric, labels, by.into());
            }
        };
        for (event, metric) in &self.events {
            let events = counters.take_event(*event);
            if *event == CountedEvent::ListBlocked {
                BLOCKED.fetch_add(events.into(), Ordering::Relaxed);
            }
            count(*metric, &[], events);
        }
        for (i, name) in names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let more = counters.take_rule(i).counts();
            if let Some(counts) = locked(&DEFINED).get_mut(name) {
                counts.iter_mut().zip(more).for_each(|(count, more)| *count = count.saturating_add(more.into()));
            }
            for (metric, more) in self.rules.iter().zip(more) {
                count(*metric, &[name], more);
            }
        }
    }

    pub(crate) fn show(&self, gauge: Gauge, value: u64, config: ConfigHandle) {
        if let Some(gauge) = self.gauges.get(gauge as usize).copied().flatten() {
            config.record(gauge, &[], value);
        }
    }
}

/// Starts counting the rule `name`, unless it is counted already; false if there are too many others.
fn define(name: &str) -> bool {
    let mut defined = locked(&DEFINED);
    let has_room = defined.contains_key(name) || defined.len() < RULES_COUNTED_MAX;
    if has_room {
        defined.entry(name.to_owned()).or_default();
    }
    has_room
}

/// Counts of the rules [of this turn](reported_in_turn), and the number of all counted rules.
pub(crate) fn counted(turn: u64) -> (Vec<RuleCounts>, usize) {
    let defined = locked(&DEFINED);
    let all: Vec<_> = defined.iter().collect();
    let due = reported_in_turn(turn, all.len()).filter_map(|at| all.get(at));
    let of = |(name, decided): &(&String, &RuleSums)| RuleCounts { name: (*name).clone(), decided: **decided };
    (due.map(of).collect(), all.len())
}

pub(crate) fn blocked() -> u64 {
    BLOCKED.load(Ordering::Relaxed)
}
