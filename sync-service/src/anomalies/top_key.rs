//! Detects a new key at the top of a rule's limited keys, limited more than its predecessors.

use std::collections::HashMap;

use super::alarm::{Alarm, AlarmTransition, Reading};
use super::minute::{FLOOR, RuleMinute, count, level};
use super::smooth::Smooth;

/// Minutes for which a key is remembered after it was on top.
const KNOWN: u64 = 24 * 60;
/// Minutes for which a key counts as new.
const NEW: u64 = 15;
/// Maximum number of keys that are remembered.
const KNOWN_MAX: usize = 256;
/// Fraction of the rule's limited tokens that the key must account for.
const PART_MIN: f64 = 0.2;
/// Minimum width of the band: a factor of three.
const WIDTH_MIN: f64 = 1.0986;
/// Width of the band in standard deviations.
const WIDTH_SPREADS: f64 = 2.5;

/// State of a rule's top keys.
#[derive(Debug)]
pub struct OfTopKey {
    /// Minutes for which the rule must have been watched.
    learn: u32,
    /// First and last minute in which each key was on top.
    known: HashMap<Box<[u8]>, (u64, u64)>,
    /// Usual level of the top key.
    usual: Option<Smooth>,
    /// New key that is under observation, with its alarm.
    watched: Option<(Box<[u8]>, Alarm)>,
}

impl OfTopKey {
    /// Empty state. Nothing is reported in the first `learn` minutes.
    pub fn new(learn: u32) -> Self {
        Self { learn, known: HashMap::new(), usual: None, watched: None }
    }

    /// Applies the activity of a minute.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn minute(&mut self, minute: u64, of: &RuleMinute) -> Vec<(Box<[u8]>, AlarmTransition)> {
        let (top, found) = match &of.top {
            Some((key, found)) => (Some(key), *found as f64),
            None => (None, 0.0),
        };
        let now = level(found);
        let usual = *self.usual.get_or_insert(Smooth::new(now));
        let width = WIDTH_MIN.max(WIDTH_SPREADS * usual.deviation);
        let reading = Reading { found, usual: count(usual.level), bound: count(usual.level + width) };
        let is_large = usual.heard >= self.learn
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
        if !is_watched || turns.iter().any(|(_, turn)| !turn.is_begin) {
            self.know(minute, top.map(AsRef::as_ref));
        }
        if !is_watched {
            self.usual.iter_mut().for_each(|usual| usual.observe(now));
        }
        turns
    }

    /// Key and last reading, if an anomaly is under way.
    pub fn goes_on(&self) -> Option<(&[u8], AlarmTransition)> {
        let (key, alarm) = self.watched.as_ref()?;
        Some((key, alarm.goes_on()?))
    }

    fn know(&mut self, minute: u64, top: Option<&[u8]>) {
        let Some(key) = top else { return };
        let (first, last) = self.known.entry(key.into()).or_insert((minute, minute));
        if minute - *last >= KNOWN {
            *first = minute;
        }
        *last = minute;
        if self.known.len() > KNOWN_MAX {
            self.known.retain(|_, (_, last)| minute - *last < KNOWN);
        }
        if self.known.len() > KNOWN_MAX {
            let oldest = self.known.iter().min_by_key(|(_, (_, last))| *last).map(|(key, _)| key.clone());
            oldest.map(|key| self.known.remove(&key));
        }
    }
}
