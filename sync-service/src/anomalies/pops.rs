//! Detects a POP that limits more than usual while the others do not.

use std::collections::BTreeMap;

use super::alarm::{Alarm, AlarmTransition, Reading};
use super::minute::{FLOOR, count, level};
use super::season::median;
use super::smooth::Smooth;

/// Minimum number of POPs: among fewer, none can stand out.
const POPS_MIN: usize = 4;
/// Maximum number of POPs per rule that are watched.
const POPS_MAX: usize = 1_000;
/// Minimum width of the band: a factor of three.
const WIDTH_MIN: f64 = 1.0986;
/// Width of the band in standard deviations.
const WIDTH_SPREADS: f64 = 4.0;
/// Minutes for which a POP that limits nothing stays watched.
const KEPT: u32 = 24 * 60;

/// State of a rule's POPs.
#[derive(Debug)]
pub struct OfPops {
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
    /// Empty state. A POP is judged only after `learn` minutes.
    pub fn new(learn: u32) -> Self {
        Self { pops: BTreeMap::new(), learn }
    }

    /// Applies the tokens that each POP limited in a minute. POPs that are absent limited nothing.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn minute(&mut self, minute: u64, limited: &BTreeMap<String, u64>) -> Vec<(String, AlarmTransition)> {
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
            let can_tell = is_known && of.usual.heard >= self.learn;
            let is_strange = can_tell && now > expected + width && found >= FLOOR;
            let is_over = now < expected + width / 2.0 || found < FLOOR / 2.0;
            turns.extend(
                of.alarm.minute(minute, reading, is_strange, is_over).map(|turn| (pop.clone(), turn)),
            );
            if of.alarm.is_calm() && !is_strange {
                of.usual.observe(now - of_all);
            }
            of.idle = if limited.contains_key(pop) { 0 } else { of.idle + 1 };
        }
        self.pops.retain(|_, of| of.idle < KEPT || of.alarm.is_ringing());
        turns
    }

    /// Anomalies that are under way, by POP, each with the last minute's reading.
    pub fn go_on(&self) -> impl Iterator<Item = (&str, AlarmTransition)> {
        self.pops.iter().filter_map(|(pop, of)| Some((pop.as_str(), of.alarm.goes_on()?)))
    }
}
