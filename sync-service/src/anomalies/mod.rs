//! What is out of the ordinary, minute by minute: pure code, which is told the time.
//!
//! | anomaly | what it compares |
//! |---|---|
//! | [`Kind::Rate`] | what a rule limits, with what it usually limits at that hour ([`rate`]) |
//! | [`Kind::Pop`] | what a rule limits at one POP, with what it usually does there, as the other POPs have changed ([`pops`]) |
//! | [`Kind::TopKey`] | the key that a rule limits most, with those that were it within a day ([`top_key`]) |
//! | [`Kind::Share`] | what a rule limits, with what is asked of it ([`share`]) |
//!
//! Counts are compared as logarithms, so that a band is a factor. What is usual is a median, and the width of the band the
//! median of absolute deviations (MAD), which a few strange minutes do not move, by hour of the week: as in Hochenbaum,
//! Vallis and Kejariwal, "Automatic Anomaly Detection in the Cloud Via Statistical Learning" (2017), arXiv:1704.07706.
//! Levels of POPs and keys, of which there are many, are smoothed exponentially and robustly: Gelper, Fried and Croux,
//! "Robust Forecasting with Exponential and Holt-Winters Smoothing" (2010), Journal of Forecasting 29(3).

pub mod alarm;
pub mod minute;
pub mod pops;
pub mod rate;
pub mod season;
pub mod share;
pub mod smooth;
pub mod top_key;

use std::collections::BTreeMap;

pub use alarm::Reading;
use alarm::Turn;
pub use minute::{FLOOR, RuleMinute};
use pops::OfPops;
use rate::OfRate;
use season::LEARN_MAX;
use share::OfShare;
use top_key::OfTopKey;

/// The most rules that are watched.
pub const RULES_MAX: usize = 1_000;
/// How long a rule is watched that nobody reports, in minutes.
const KEPT_MINUTES: u64 = 8 * 24 * 60;

/// What is out of the ordinary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A rule limits more than it usually does.
    Rate,
    /// A POP limits more than it usually does, beside the others.
    Pop,
    /// A key that was not among those a rule limits most is it now.
    TopKey,
    /// A rule limits most of what it is asked for.
    Share,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Rate, Self::Pop, Self::TopKey, Self::Share];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Pop => "pop",
            Self::TopKey => "top_key",
            Self::Share => "share",
        }
    }
}

/// An anomaly begins or ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What is out of the ordinary.
    pub kind: Kind,
    /// Whether it begins.
    pub is_begin: bool,
    /// The rule.
    pub rule: String,
    /// The POP, if it is about one.
    pub pop: Option<String>,
    /// The key, if it is about one.
    pub key: Option<Box<[u8]>>,
    /// What was found and what is usual. At the end: the most that was found.
    pub reading: Reading,
    /// The minute since 1970 in which it began.
    pub since: u64,
}

/// When something is out of the ordinary.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// A rule may limit this part of what it is asked for.
    pub share_max: f64,
    /// How long a rule, a POP or a key must have been watched before it is known what is usual of it, in minutes; at most
    /// [`LEARN_MAX`].
    pub learn: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self { share_max: 0.5, learn: LEARN_MAX }
    }
}

/// Watches rules.
#[derive(Debug)]
pub struct Detector {
    rules: BTreeMap<String, Watched>,
    terms: Terms,
}

#[derive(Debug)]
struct Watched {
    rate: OfRate,
    pops: OfPops,
    top_key: OfTopKey,
    share: OfShare,
    heard_at: u64,
}

impl Detector {
    /// By these terms.
    pub fn new(terms: Terms) -> Self {
        Self { rules: BTreeMap::new(), terms }
    }

    /// Takes in what rules did in `minute` (since 1970). Call it once for each minute: rules that are not named did nothing.
    pub fn minute(&mut self, minute: u64, mut rules: BTreeMap<String, RuleMinute>) -> Vec<Change> {
        for (rule, of) in &rules {
            if of.limited > 0 && !self.rules.contains_key(rule) && self.rules.len() < RULES_MAX {
                self.rules.insert(rule.clone(), Watched::new(minute, self.terms));
            }
        }
        let mut changes = Vec::new();
        for (rule, watched) in &mut self.rules {
            let of = rules.remove(rule).unwrap_or_default();
            if of.asked > 0 {
                watched.heard_at = minute;
            }
            watched.minute(minute, rule, &of, &mut changes);
        }
        let is_kept = |watched: &Watched| minute.saturating_sub(watched.heard_at) < KEPT_MINUTES;
        self.rules.retain(|_, watched| is_kept(watched));
        changes
    }

    /// The anomalies that are under way, each with what was found in the last minute.
    pub fn under_way(&self) -> Vec<Change> {
        self.rules.iter().flat_map(|(rule, watched)| watched.under_way(rule)).collect()
    }
}

impl Watched {
    fn new(minute: u64, Terms { share_max, learn }: Terms) -> Self {
        Self {
            rate: OfRate::new(learn),
            pops: OfPops::new(learn),
            top_key: OfTopKey::new(learn),
            share: OfShare::new(share_max),
            heard_at: minute,
        }
    }

    fn under_way(&self, rule: &str) -> Vec<Change> {
        let of =
            |kind, pop: Option<&str>, key: Option<&[u8]>, Turn { is_begin, reading, since }: Turn| Change {
                kind,
                is_begin,
                rule: rule.to_owned(),
                pop: pop.map(str::to_owned),
                key: key.map(Into::into),
                reading,
                since,
            };
        let rate = self.rate.goes_on().map(|turn| of(Kind::Rate, None, None, turn));
        let pops = self.pops.go_on().map(|(pop, turn)| of(Kind::Pop, Some(pop), None, turn));
        let top_key = self.top_key.goes_on().map(|(key, turn)| of(Kind::TopKey, None, Some(key), turn));
        let share = self.share.goes_on().map(|turn| of(Kind::Share, None, None, turn));
        rate.into_iter().chain(pops).chain(top_key).chain(share).collect()
    }

    fn minute(&mut self, minute: u64, rule: &str, of: &RuleMinute, changes: &mut Vec<Change>) {
        let mut add = |kind, pop: Option<&str>, key: Option<Box<[u8]>>, turn: Option<Turn>| {
            let Some(Turn { is_begin, reading, since }) = turn else { return };
            let (rule, pop) = (rule.to_owned(), pop.map(str::to_owned));
            changes.push(Change { kind, is_begin, rule, pop, key, reading, since });
        };
        add(Kind::Rate, None, None, self.rate.minute(minute, of.limited));
        for (pop, turn) in self.pops.minute(minute, &of.pops) {
            add(Kind::Pop, Some(&pop), None, Some(turn));
        }
        for (key, turn) in self.top_key.minute(minute, of) {
            add(Kind::TopKey, None, Some(key), Some(turn));
        }
        add(Kind::Share, None, None, self.share.minute(minute, of));
    }
}

#[cfg(test)]
mod tests;
