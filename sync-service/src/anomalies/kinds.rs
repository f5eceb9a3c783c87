//! Detectors of a rule's anomalies, one per kind.

use std::collections::{BTreeMap, HashMap};

use super::alarm::{Alarm, AlarmState, FLOOR, Phase, Reading, RuleMinute, Smooth, count, level};
use super::season::{Season, median};

/// Margin above the usual peaks of this time of day, as a level: a factor of 1.8.
const ABOVE_PEAK: f64 = 0.5878;

#[derive(Debug)]
pub(crate) struct OfRate {
    season: Season,
    alarm: Alarm,
}

impl OfRate {
    /// Empty state. Nothing is reported in the first `learn` minutes.
    pub(crate) fn new(learn: u32) -> Self {
        Self { season: Season::new(learn), alarm: Alarm::new(2, 5) }
    }

    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn minute(&mut self, minute: u64, limited: u64) -> Option<AlarmState> {
        let found = limited as f64;
        let now = level(found);
        let Some(expected) = self.season.expected(minute) else {
            self.season.observe(minute, now, true);
            return None;
        };
        let width = WIDTH_MIN.max(WIDTH_SPREADS * self.season.spread());
        let peak = self.season.peak(minute).map_or(0.0, |peak| peak + ABOVE_PEAK);
        let bound = expected + width.max(peak);
        let reading = Reading { found, usual: count(expected), bound: count(bound) };
        let is_strange = now > bound && found >= FLOOR;
        let is_over = now < expected + width.max(peak) / 2.0 || found < FLOOR / 2.0;
        let turn = self.alarm.minute(minute, reading, is_strange, is_over);
        self.season.observe(minute, now, self.alarm.learns(is_strange));
        turn
    }
}

/// Minimum number of POPs: among fewer, none can stand out.
const POPS_MIN: usize = 4;
const POPS_MAX: usize = 1_000;
/// Minimum width of the band: a factor of three.
const WIDTH_MIN: f64 = 1.0986;
/// Width of the band in standard deviations.
const WIDTH_SPREADS: f64 = 4.0;
/// Minutes for which a POP that limits nothing stays watched.
const POP_KEPT: u32 = 24 * 60;

#[derive(Debug)]
pub(crate) struct OfPops {
    pops: BTreeMap<String, OfPop>,
    /// Minutes for which a POP must have been watched.
    learn: u32,
}

#[derive(Debug)]
struct OfPop {
    /// Level relative to the median of all POPs.
    usual: Smooth,
    alarm: Alarm,
    idle: u32,
}

impl OfPops {
    /// Empty state. A POP is checked only after `learn` minutes.
    pub(crate) fn new(learn: u32) -> Self {
        Self { pops: BTreeMap::new(), learn }
    }

    /// Applies the tokens that each POP limited in a minute. POPs that are absent limited nothing.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn minute(&mut self, minute: u64, limited: &BTreeMap<String, u64>) -> Vec<(String, AlarmState)> {
        let found_at = |pop: &str| limited.get(pop).map_or(0.0, |limited| *limited as f64);
        // Subtracts the trend that all POPs share.
        let names = self.pops.keys().chain(limited.keys().filter(|pop| !self.pops.contains_key(*pop)));
        let of_all = median(names.map(|pop| level(found_at(pop)))).unwrap_or_default();
        for pop in limited.keys() {
            if self.pops.len() < POPS_MAX && !self.pops.contains_key(pop) {
                let usual = Smooth::new(level(found_at(pop)) - of_all);
                self.pops.insert(pop.clone(), OfPop { usual, alarm: Alarm::new(3, 5), idle: 0 });
            }
        }
        let spread = median(self.pops.values().map(|of| of.usual.deviation)).unwrap_or_default();
        let is_known = self.pops.len() >= POPS_MIN;
        let mut turns = Vec::new();
        for (pop, of) in &mut self.pops {
            let found = found_at(pop);
            // A POP whose counts vary more than the others' has a wider band.
            let width = WIDTH_MIN.max(WIDTH_SPREADS * spread.max(of.usual.deviation));
            let (now, expected) = (level(found), of.usual.level + of_all);
            let reading = Reading { found, usual: count(expected), bound: count(expected + width) };
            let is_learned = is_known && of.usual.minutes >= self.learn;
            let is_strange = is_learned && now > expected + width && found >= FLOOR;
            let is_over = now < expected + width / 2.0 || found < FLOOR / 2.0;
            turns.extend(of.alarm.minute(minute, reading, is_strange, is_over).map(|turn| (pop.clone(), turn)));
            if of.alarm.learns(is_strange) {
                of.usual.observe(now - of_all);
            }
            of.idle = if limited.contains_key(pop) { 0 } else { of.idle + 1 };
        }
        self.pops.retain(|_, of| of.idle < POP_KEPT || of.alarm.is_ringing());
        turns
    }
}

/// Minutes for which a key is remembered after it was on top.
const KNOWN: u64 = 24 * 60;
/// Minutes for which a key counts as new.
const NEW: u64 = 15;
const KNOWN_MAX: usize = 256;
/// Fraction of the rule's limited tokens that the key must account for.
const PART_MIN: f64 = 0.2;
/// Width of the band in standard deviations.
const TOP_KEY_SPREADS: f64 = 2.5;

#[derive(Debug)]
pub(crate) struct OfTopKey {
    /// Minutes for which the rule must have been watched.
    learn: u32,
    /// First and last minute in which each key was on top.
    known: HashMap<Box<[u8]>, (u64, u64)>,
    usual: Option<Smooth>,
    /// New key that is under observation, with its alarm.
    watched: Option<(Box<[u8]>, Alarm)>,
}

impl OfTopKey {
    /// Empty state. Nothing is reported in the first `learn` minutes.
    pub(crate) fn new(learn: u32) -> Self {
        Self { learn, known: HashMap::new(), usual: None, watched: None }
    }

    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn minute(&mut self, minute: u64, of: &RuleMinute) -> Vec<(Box<[u8]>, AlarmState)> {
        let (top, found) = match &of.top {
            Some((key, found)) => (Some(key), *found as f64),
            None => (None, 0.0),
        };
        let now = level(found);
        let usual = *self.usual.get_or_insert(Smooth::new(now));
        let width = WIDTH_MIN.max(TOP_KEY_SPREADS * usual.deviation);
        let reading = Reading { found, usual: count(usual.level), bound: count(usual.level + width) };
        let is_large = usual.minutes >= self.learn
            && now > usual.level + width
            && found >= FLOOR
            && found >= PART_MIN * of.limited as f64;
        let mut turns = Vec::new();
        if let Some((key, alarm)) = &mut self.watched {
            let is_it = top == Some(&*key);
            let is_strange = is_it && is_large;
            let reading = if is_it { reading } else { Reading { found: 0.0, ..reading } };
            let turn = alarm.minute(minute, reading, is_strange, !is_strange);
            turns.extend(turn.map(|turn| (key.clone(), turn)));
            if !is_strange && !alarm.is_ringing() {
                self.watched = None;
            }
        }
        let is_new = top.is_some_and(|key| {
            let is_old = |(first, last): &(u64, u64)| minute - last < KNOWN && minute - first >= NEW;
            !self.known.get(key).is_some_and(is_old)
        });
        if self.watched.is_none() && is_new && is_large {
            let mut alarm = Alarm::new(2, 5);
            // The current minute is the first one of the alarm.
            alarm.minute(minute, reading, true, false);
            self.watched = top.map(|key| (key.clone(), alarm));
        }
        let is_watched = self.watched.as_ref().is_some_and(|(key, _)| top == Some(key));
        if !is_watched || turns.iter().any(|(_, turn)| turn.phase == Phase::Ends) {
            self.know(minute, top.map(AsRef::as_ref));
        }
        if !is_watched {
            self.usual.iter_mut().for_each(|usual| usual.observe(now));
        }
        turns
    }

    fn know(&mut self, minute: u64, top: Option<&[u8]>) {
        let Some(key) = top else { return };
        let (first, last) = self.known.entry(key.into()).or_insert((minute, minute));
        if minute - *last >= KNOWN {
            *first = minute;
        }
        *last = minute;
        if self.known.len() > KNOWN_MAX {
            let oldest = self.known.iter().min_by_key(|(_, (_, last))| *last).map(|(key, _)| key.clone());
            oldest.map(|key| self.known.remove(&key));
        }
    }
}
