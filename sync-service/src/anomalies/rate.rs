//! Detects a rule that limits more than usual.

use super::alarm::{Alarm, AlarmTransition, Reading};
use super::minute::{FLOOR, count, level};
use super::season::Season;

/// Minimum width of the band: a factor of three.
const WIDTH_MIN: f64 = 1.0986;
/// Width of the band in standard deviations.
const WIDTH_SPREADS: f64 = 4.0;
/// Margin above the usual peaks of this time of day, as a level: a factor of 1.8.
const ABOVE_PEAK: f64 = 0.5878;

/// State of a rule.
#[derive(Debug)]
pub struct OfRate {
    season: Season,
    alarm: Alarm,
}

impl OfRate {
    /// Empty state. Nothing is reported in the first `learn` minutes.
    pub fn new(learn: u32) -> Self {
        Self { season: Season::new(learn), alarm: Alarm::new(2, 5) }
    }

    /// Applies a minute in which `limited` tokens were limited.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn minute(&mut self, minute: u64, limited: u64) -> Option<AlarmTransition> {
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
        self.season.observe(minute, now, self.alarm.is_calm() && !is_strange);
        turn
    }

    /// Reading of the last minute, if an anomaly is under way.
    pub fn goes_on(&self) -> Option<AlarmTransition> {
        self.alarm.goes_on()
    }
}
