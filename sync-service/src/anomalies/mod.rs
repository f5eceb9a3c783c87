//! Anomaly detection, minute by minute. The code is pure: the time is an argument.
//!
//! | anomaly | comparison |
//! |---|---|
//! | `rate` | a rule's limited requests with its usual number at that hour |
//! | `pop` | a rule's limited requests at one POP with the usual number, corrected for the trend of all POPs |
//! | `top_key` | the key that a rule limits most with the top keys of the last day |
//!
//! Counts are compared as logarithms, so a band is a factor. The usual value is a median by hour of the week, and the
//! width of the band comes from the median of absolute deviations (MAD): a few strange minutes change neither. The
//! method follows Hochenbaum, Vallis and Kejariwal, "Automatic Anomaly Detection in the Cloud Via Statistical Learning"
//! (2017), arXiv:1704.07706. There are many POPs and keys, so their levels are smoothed exponentially and robustly
//! instead: Gelper, Fried and Croux, "Robust Forecasting with Exponential and Holt-Winters Smoothing" (2010), Journal
//! of Forecasting 29(3).

use std::collections::BTreeMap;

use alarm::AlarmState;
use kinds::{OfPops, OfRate, OfTopKey};

pub(crate) use alarm::{Phase, Reading, RuleMinute};

mod alarm;
mod kinds;
mod season;

pub(crate) const RULES_MAX: usize = 1_000;
/// Minutes for which a rule stays watched after its last report.
const KEPT_MINUTES: u64 = 8 * 24 * 60;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Anomaly {
    pub(crate) kind: &'static str,
    pub(crate) phase: Phase,
    pub(crate) rule: String,
    /// POP or key that is affected, if the anomaly concerns one.
    pub(crate) pop: Option<String>,
    pub(crate) key: Option<Box<[u8]>>,
    /// Reading of the minute; at the end, the highest reading of the anomaly.
    pub(crate) reading: Reading,
    /// Minute since 1970 in which the anomaly began.
    pub(crate) since: u64,
}

#[derive(Debug)]
pub(crate) struct Detector {
    rules: BTreeMap<String, Watched>,
    learn: u32,
    pub(crate) under_way: Vec<Anomaly>,
}

#[derive(Debug)]
struct Watched {
    rate: OfRate,
    pops: OfPops,
    top_key: OfTopKey,
    reported_at: u64,
}

impl Detector {
    /// Detector that learns for `learn` minutes, at most [`season::LEARN_MAX`], before it reports anomalies.
    pub(crate) fn new(learn: u32) -> Self {
        Self { rules: BTreeMap::new(), learn, under_way: Vec::new() }
    }

    /// Applies the activity of the next `minute` since 1970. Returns the anomalies that begin or end.
    pub(crate) fn minute(&mut self, minute: u64, mut rules: BTreeMap<String, RuleMinute>) -> Vec<Anomaly> {
        for (rule, of) in &rules {
            if of.limited > 0 && !self.rules.contains_key(rule) && self.rules.len() < RULES_MAX {
                self.rules.insert(rule.clone(), Watched::new(minute, self.learn));
            }
        }
        let mut changes = Vec::new();
        for (rule, watched) in &mut self.rules {
            let of = rules.remove(rule);
            if of.is_some() {
                watched.reported_at = minute;
            }
            watched.minute(minute, rule, &of.unwrap_or_default(), &mut changes);
        }
        self.rules.retain(|_, watched| minute.saturating_sub(watched.reported_at) < KEPT_MINUTES);
        self.under_way = changes.iter().filter(|change| change.phase != Phase::Ends).cloned().collect();
        changes.retain(|change| change.phase != Phase::GoesOn);
        changes
    }
}

impl Watched {
    fn new(minute: u64, learn: u32) -> Self {
        let (rate, pops, top_key) = (OfRate::new(learn), OfPops::new(learn), OfTopKey::new(learn));
        Self { rate, pops, top_key, reported_at: minute }
    }

    fn minute(&mut self, minute: u64, rule: &str, of: &RuleMinute, changes: &mut Vec<Anomaly>) {
        let mut add = |kind, pop: Option<&str>, key: Option<Box<[u8]>>, turn: Option<AlarmState>| {
            let Some(AlarmState { phase, reading, since }) = turn else { return };
            let (rule, pop) = (rule.to_owned(), pop.map(str::to_owned));
            changes.push(Anomaly { kind, phase, rule, pop, key, reading, since });
        };
        add("rate", None, None, self.rate.minute(minute, of.limited));
        for (pop, turn) in self.pops.minute(minute, &of.pops) {
            add("pop", Some(&pop), None, Some(turn));
        }
        for (key, turn) in self.top_key.minute(minute, of) {
            add("top_key", None, Some(key), Some(turn));
        }
    }
}

#[cfg(test)]
mod tests;
