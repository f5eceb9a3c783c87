//! Detects a rule that limits most of its demand.

use super::alarm::{Alarm, AlarmTransition, Reading};
use super::minute::{FLOOR, RuleMinute};

/// Minimum number of limited keys. A few limited keys are greedy clients; many suggest a quota that is too
/// small.
const KEYS_MIN: u64 = 10;
/// Fraction of the maximum below which the anomaly ends.
const OVER: f64 = 0.8;

/// State of a rule.
#[derive(Debug)]
pub struct OfShare {
    share_max: f64,
    alarm: Alarm,
}

impl OfShare {
    /// State with the maximum fraction `share_max`, between 0 and 1.
    pub fn new(share_max: f64) -> Self {
        Self { share_max, alarm: Alarm::new(5, 5) }
    }

    /// Applies the activity of a minute.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn minute(&mut self, minute: u64, of: &RuleMinute) -> Option<AlarmTransition> {
        let share = of.limited as f64 / (of.asked as f64).max(1.0);
        let counts = of.limited as f64 >= FLOOR && of.keys >= KEYS_MIN;
        let reading = Reading { found: share, usual: 0.0, bound: self.share_max };
        let is_over = !counts || share < OVER * self.share_max;
        self.alarm.minute(minute, reading, counts && share > self.share_max, is_over)
    }

    /// Reading of the last minute, if an anomaly is under way.
    pub fn goes_on(&self) -> Option<AlarmTransition> {
        self.alarm.goes_on()
    }
}
