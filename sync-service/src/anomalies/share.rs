//! Whether a rule limits most of what it is asked for.

use super::alarm::{Alarm, Reading, Turn};
use super::minute::{FLOOR, RuleMinute};

/// How many keys must be limited: fewer are clients that ask too much, more look like a rule that allows too little.
const KEYS_MIN: u64 = 10;
/// It is over below this part of the maximum.
const OVER: f64 = 0.8;

/// What is known of a rule.
#[derive(Debug)]
pub struct OfShare {
    share_max: f64,
    alarm: Alarm,
}

impl OfShare {
    /// Out of the ordinary above `share_max`, a part of one.
    pub fn new(share_max: f64) -> Self {
        Self { share_max, alarm: Alarm::new(5, 5) }
    }

    /// Takes in a minute.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn minute(&mut self, minute: u64, of: &RuleMinute) -> Option<Turn> {
        let share = of.limited as f64 / (of.asked as f64).max(1.0);
        let counts = of.limited as f64 >= FLOOR && of.keys >= KEYS_MIN;
        let reading = Reading { found: share, usual: 0.0, bound: self.share_max };
        let is_over = !counts || share < OVER * self.share_max;
        self.alarm.minute(minute, reading, counts && share > self.share_max, is_over)
    }

    /// As of an anomaly that is under way.
    pub fn goes_on(&self) -> Option<Turn> {
        self.alarm.goes_on()
    }
}
