//! Anomaly detection, minute by minute. The code is pure: the time is an argument.
//!
//! | anomaly | comparison |
//! |---|---|
//! | [`AnomalyKind::Rate`] | a rule's limited requests with its usual number at that hour |
//! | [`AnomalyKind::Pop`] | the same at one POP, corrected for the trend of all POPs |
//! | [`AnomalyKind::TopKey`] | the key that a rule limits most with the top keys of the last day |
//! | [`AnomalyKind::Share`] | a rule's limited requests with its demand |
//!
//! Counts are compared as logarithms, so a band is a factor. The usual value is a median by hour of the week,
//! and the width of the band comes from the median of absolute deviations (MAD): a few strange minutes move
//! neither. The method follows Hochenbaum, Vallis and Kejariwal, "Automatic Anomaly Detection in the Cloud Via
//! Statistical Learning" (2017), arXiv:1704.07706. POPs and keys are many, so their levels are smoothed
//! exponentially and robustly instead: Gelper, Fried and Croux, "Robust Forecasting with Exponential and
//! Holt-Winters Smoothing" (2010), Journal of Forecasting 29(3).

use std::collections::BTreeMap;

use alarm::AlarmState;
use kinds::{OfPops, OfRate, OfShare, OfTopKey};

pub(crate) use alarm::{Phase, Reading, RuleMinute};

mod alarm;
mod kinds;
mod season;

pub(crate) const RULES_MAX: usize = 1_000;
/// Minutes for which a rule stays watched after its last request.
const KEPT_MINUTES: u64 = 8 * 24 * 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum AnomalyKind {
    /// A rule limits more than it usually does.
    Rate,
    /// A POP limits more than it usually does, compared with the other POPs.
    Pop,
    /// A rule's most limited key is new among its top keys.
    TopKey,
    /// A rule limits most of its demand.
    Share,
}

impl AnomalyKind {
    /// Name in metrics and the audit log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Pop => "pop",
            Self::TopKey => "top_key",
            Self::Share => "share",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Anomaly {
    pub(crate) kind: AnomalyKind,
    pub(crate) phase: Phase,
    pub(crate) rule: String,
    /// POP or key that is affected, if the anomaly concerns one.
    pub(crate) pop: Option<String>,
    pub(crate) key: Option<Box<[u8]>>,
    /// Found and usual values of the minute. At the end, those of the highest reading.
    pub(crate) reading: Reading,
    /// Minute since 1970 in which the anomaly began.
    pub(crate) since: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Thresholds {
    /// Fraction of its demand that a rule may limit.
    pub(crate) share_max: f64,
    /// Minutes for which a rule, a POP or a key must have been watched before its usual value is known; at most
    /// [`season::LEARN_MAX`].
    pub(crate) learn: u32,
}

#[derive(Debug)]
pub(crate) struct Detector {
    rules: BTreeMap<String, Watched>,
    terms: Thresholds,
    under_way: Vec<Anomaly>,
}

#[derive(Debug)]
struct Watched {
    rate: OfRate,
    pops: OfPops,
    top_key: OfTopKey,
    share: OfShare,
    asked_at: u64,
}

impl Detector {
    pub(crate) fn new(terms: Thresholds) -> Self {
        Self { rules: BTreeMap::new(), terms, under_way: Vec::new() }
    }

    /// Applies the activity of the next `minute` since 1970. Returns the anomalies that begin or end.
    pub(crate) fn minute(&mut self, minute: u64, mut rules: BTreeMap<String, RuleMinute>) -> Vec<Anomaly> {
        for (rule, of) in &rules {
            if of.limited > 0 && !self.rules.contains_key(rule) && self.rules.len() < RULES_MAX {
                self.rules.insert(rule.clone(), Watched::new(minute, self.terms));
            }
        }
        let mut changes = Vec::new();
        for (rule, watched) in &mut self.rules {
            let of = rules.remove(rule).unwrap_or_default();
            if of.asked > 0 {
                watched.asked_at = minute;
            }
            watched.minute(minute, rule, &of, &mut changes);
        }
        let is_kept = |watched: &Watched| minute.saturating_sub(watched.asked_at) < KEPT_MINUTES;
        self.rules.retain(|_, watched| is_kept(watched));
        self.under_way = changes.iter().filter(|change| change.phase != Phase::Ends).cloned().collect();
        changes.retain(|change| change.phase != Phase::GoesOn);
        changes
    }

    pub(crate) fn under_way(&self) -> &[Anomaly] {
        &self.under_way
    }
}

impl Watched {
    fn new(minute: u64, Thresholds { share_max, learn }: Thresholds) -> Self {
        Self {
            rate: OfRate::new(learn),
            pops: OfPops::new(learn),
            top_key: OfTopKey::new(learn),
            share: OfShare::new(share_max),
            asked_at: minute,
        }
    }

    fn minute(&mut self, minute: u64, rule: &str, of: &RuleMinute, changes: &mut Vec<Anomaly>) {
        let mut add = |kind, pop: Option<&str>, key: Option<Box<[u8]>>, turn: Option<AlarmState>| {
            let Some(AlarmState { phase, reading, since }) = turn else { return };
            let (rule, pop) = (rule.to_owned(), pop.map(str::to_owned));
            changes.push(Anomaly { kind, phase, rule, pop, key, reading, since });
        };
        add(AnomalyKind::Rate, None, None, self.rate.minute(minute, of.limited));
        for (pop, turn) in self.pops.minute(minute, &of.pops) {
            add(AnomalyKind::Pop, Some(&pop), None, Some(turn));
        }
        for (key, turn) in self.top_key.minute(minute, of) {
            add(AnomalyKind::TopKey, None, Some(key), Some(turn));
        }
        add(AnomalyKind::Share, None, None, self.share.minute(minute, of));
    }
}

#[cfg(test)]
mod tests;
