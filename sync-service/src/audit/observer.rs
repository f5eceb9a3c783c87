//! Observes decisions in reports, and records them and their anomalies in the audit log.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;
use weir_cli::moment;
use weir_protocol::messages::Report;

use super::AuditLog;
use super::event::{AnomalyEvent, AuditEvent, DecisionEvent};
use super::tally::{LimitedKey, Minute, ROWS_MAX, Tally};
use crate::anomalies::{Anomaly, Detector, Phase, RuleMinute};
use crate::config::Config;
use crate::keys::name;
use crate::metrics::{Metrics, OfAnomaly};
use crate::{lock, ticks};

const UNDER_WAY_MAX: usize = 50;

#[derive(Debug)]
pub struct Observer {
    pub(crate) audit_log: Arc<AuditLog>,
    metrics: Arc<Metrics>,
    /// Maximum number of keys whose decisions are written per interval.
    keys_max: usize,
    tally: Mutex<Tally>,
    detector: Mutex<Detector>,
    minute_ms: u64,
}

impl Observer {
    pub fn new(audit_log: Arc<AuditLog>, metrics: Arc<Metrics>, config: &Config) -> Self {
        let detector = Mutex::new(Detector::new(config.anomaly_learn_minutes));
        let tally = Mutex::new(Tally::new(ROWS_MAX, audit_log.is_on()));
        let minute_ms = u64::try_from(config.anomaly_minute.as_millis()).unwrap_or(u64::MAX).max(1);
        Self { audit_log, metrics, keys_max: config.audit_log_keys_max, tally, detector, minute_ms }
    }

    /// Applies a report. `known[i]` is true if its rule `i` belongs to the fleet's rule set. Never waits.
    pub fn observe(&self, report: &Report, known: &[bool]) {
        lock(&self.tally).observe(moment::now_ms(), report, known);
    }

    /// Detects anomalies minute by minute until the task is aborted.
    pub(crate) async fn watch(self: Arc<Self>) {
        let minute_ms = self.minute_ms;
        let mut last = moment::now_ms() / minute_ms;
        loop {
            let now_ms = moment::now_ms();
            sleep(Duration::from_millis(minute_ms - now_ms % minute_ms)).await;
            let now = moment::now_ms() / minute_ms;
            // If the clock steps back, minutes already evaluated are skipped; if it steps forward, all but the last.
            if now > last {
                self.end_minute(now - 1);
                last = now;
            }
        }
    }

    /// Records the anomalies that begin or end in `minute` (since 1970), which has just ended.
    pub fn end_minute(&self, minute: u64) {
        let mut rules = BTreeMap::<String, OfRule>::new();
        let pops = lock(&self.tally).pops();
        for pop in pops {
            let minutes = lock(&self.tally).take_minutes(moment::now_ms(), &pop);
            for of_rule in minutes {
                rules.entry(of_rule.rule.clone()).or_default().add(&pop, of_rule);
            }
        }
        let rules = rules.into_iter().map(|(rule, of)| (rule, of.minute())).collect();
        for change in lock(&self.detector).minute(minute, rules) {
            let of = OfAnomaly { rule: change.rule.clone(), anomaly: change.kind };
            let under_way = self.metrics.anomalies.get_or_create_owned(&of);
            let _ = if change.phase == Phase::Begins { under_way.inc() } else { under_way.dec() };
            self.audit_log.record(&AuditEvent::Anomaly(Box::new(event(change, self.minute_ms))));
        }
    }

    /// Anomalies under way, each with the last minute's reading, latest first.
    pub(crate) fn under_way(&self) -> Vec<AnomalyEvent> {
        let mut under_way = lock(&self.detector).under_way.clone();
        under_way.sort_by_key(|change| Reverse(change.since));
        under_way.into_iter().take(UNDER_WAY_MAX).map(|change| event(change, self.minute_ms)).collect()
    }

    pub(crate) async fn run(self: Arc<Self>, every: Duration) {
        let mut ticks = ticks(every);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            self.flush();
        }
    }

    /// Records the keys that were limited most since the last call.
    pub fn flush(&self) {
        if !self.audit_log.is_on() {
            return;
        }
        let pops = lock(&self.tally).pops();
        let mut limited = Vec::new();
        for pop in pops {
            // One POP at a time, because reports wait for the lock.
            let of_pop = lock(&self.tally).take_limited(&pop);
            limited.extend(of_pop.into_iter().map(|of_key| (pop.clone(), of_key)));
        }
        limited.sort_unstable_by_key(|(_, of_key)| Reverse(of_key.limited));
        let rest = limited.split_off(limited.len().min(self.keys_max));
        for (pop, LimitedKey { rule, value, admitted, limited, first_ms, last_ms }) in limited {
            let (key, address) = (name::show(&value), name::address(&value));
            let [first, last] = [first_ms, last_ms].map(moment::text);
            let decided = DecisionEvent { rule, key, address, pop, admitted, limited, first, last };
            self.audit_log.record(&AuditEvent::Decisions(Box::new(decided)));
        }
        let without_row = lock(&self.tally).take_omitted();
        let limited = rest.iter().map(|(_, of_key)| of_key.limited);
        let tokens = limited.fold(without_row, u64::saturating_add);
        if tokens > 0 {
            self.metrics.audit_log_omitted.inc_by(tokens);
            self.audit_log.record(&AuditEvent::Omitted { keys: rest.len(), limited: tokens });
        }
    }
}

#[derive(Default)]
struct OfRule {
    sums: RuleMinute,
    keys: HashMap<Box<[u8]>, u64>,
}

impl OfRule {
    fn add(&mut self, pop: &str, Minute { sums, keys, .. }: Minute) {
        self.sums.limited = self.sums.limited.saturating_add(sums.limited());
        if sums.limited() > 0 {
            self.sums.pops.insert(pop.to_owned(), sums.limited());
        }
        for (value, limited) in keys {
            let sum = self.keys.entry(value).or_default();
            *sum = sum.saturating_add(limited);
        }
    }

    fn minute(self) -> RuleMinute {
        RuleMinute { top: self.keys.into_iter().max_by_key(|(_, limited)| *limited), ..self.sums }
    }
}

fn event(Anomaly { kind, phase, rule, pop, key, reading, since }: Anomaly, minute_ms: u64) -> AnomalyEvent {
    let rounded = |number: f64| (number * 1_000.0).round() / 1_000.0;
    AnomalyEvent {
        anomaly: kind,
        state: if phase == Phase::Ends { "end" } else { "begin" },
        rule,
        pop,
        address: key.as_deref().and_then(name::address),
        key: key.as_deref().map(name::show),
        found: rounded(reading.found),
        usual: rounded(reading.usual),
        bound: rounded(reading.bound),
        since: moment::text(since * minute_ms),
    }
}
