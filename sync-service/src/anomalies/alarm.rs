//! State machine that begins and ends an anomaly, and the levels that it compares.

use std::collections::BTreeMap;

/// Maximum duration of an anomaly in minutes: a day. A level that lasts longer is considered usual: it is learned,
/// and nothing begins before it was calm.
const LONGEST: u64 = 24 * 60;

/// Value found in a minute, beside the usual one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    pub(crate) found: f64,
    pub(crate) usual: f64,
    /// Upper end of the usual band.
    pub(crate) bound: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Begins,
    GoesOn,
    Ends,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AlarmState {
    pub(crate) phase: Phase,
    /// Reading of the minute; at the end, the highest reading of the anomaly.
    pub(crate) reading: Reading,
    pub(crate) since: u64,
}

/// Begins an anomaly after a number of strange minutes in a row, and ends it after a number of calm ones.
#[derive(Clone, Debug)]
pub(crate) struct Alarm {
    begin_after: u32,
    end_after: u32,
    /// Consecutive minutes that indicate a change of state.
    run: u32,
    /// Minute in which the anomaly under way began, and its highest reading.
    ringing: Option<(u64, Reading)>,
    /// True after an anomaly that lasted for [`LONGEST`], until the next calm minutes.
    is_muted: bool,
}

impl Alarm {
    pub(crate) fn new(begin_after: u32, end_after: u32) -> Self {
        Self { begin_after, end_after, run: 0, ringing: None, is_muted: false }
    }

    pub(crate) fn is_ringing(&self) -> bool {
        self.ringing.is_some()
    }

    /// True if the last minute is usual: not strange and without an anomaly, or part of a muted one.
    pub(crate) fn learns(&self, is_strange: bool) -> bool {
        self.is_muted || self.ringing.is_none() && self.run == 0 && !is_strange
    }

    /// Applies the next minute. Returns the anomaly that is under way, or has just ended.
    pub(crate) fn minute(
        &mut self,
        minute: u64,
        reading: Reading,
        is_strange: bool,
        is_calm: bool,
    ) -> Option<AlarmState> {
        let counts = if self.ringing.is_some() || self.is_muted { is_calm } else { is_strange };
        self.run = if counts { self.run + 1 } else { 0 };
        if self.is_muted {
            self.is_muted = self.run < self.end_after;
            self.run = if self.is_muted { self.run } else { 0 };
            return None;
        }
        match &mut self.ringing {
            None if self.run >= self.begin_after => {
                let since = (minute + 1).saturating_sub(u64::from(self.run));
                self.run = 0;
                self.ringing = Some((since, reading));
                Some(AlarmState { phase: Phase::Begins, reading, since })
            }
            None => None,
            Some((since, most)) => {
                if reading.found > most.found {
                    *most = reading;
                }
                let (since, most) = (*since, *most);
                if self.run < self.end_after && minute.saturating_sub(since) < LONGEST {
                    return Some(AlarmState { phase: Phase::GoesOn, reading, since });
                }
                self.is_muted = self.run < self.end_after;
                self.run = 0;
                self.ringing = None;
                Some(AlarmState { phase: Phase::Ends, reading: most, since })
            }
        }
    }
}

/// Requests that a rule, a POP or a key must limit in a minute to be out of the ordinary: one per second.
pub(crate) const FLOOR: f64 = 60.0;
/// Constant added to each count before its logarithm is taken.
const ADDED: f64 = 2.0;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleMinute {
    /// Tokens that were limited.
    pub(crate) limited: u64,
    /// Tokens limited by each POP. POPs that limited nothing are absent.
    pub(crate) pops: BTreeMap<String, u64>,
    /// The key that was limited most, with its number of limited tokens.
    pub(crate) top: Option<(Box<[u8]>, u64)>,
}

/// Logarithmic level of a count. The added constant keeps small counts from looking like large changes.
pub(crate) fn level(count: f64) -> f64 {
    (count + ADDED).ln()
}

pub(crate) fn count(level: f64) -> f64 {
    (level.exp() - ADDED).max(0.0)
}

/// Smoothing factor per minute: the level follows a change mostly within an hour.
const PACE: f64 = 1.0 / 60.0;
/// Distance from the level, in deviations, beyond which a minute is clipped.
const CLIP: f64 = 2.0;
const DEVIATION_MIN: f64 = 0.05;
const DEVIATION_FIRST: f64 = 0.3;

/// Smoothed level and the usual distance of minutes from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Smooth {
    pub(crate) level: f64,
    /// Usual distance of minutes from the level: about a standard deviation.
    pub(crate) deviation: f64,
    pub(crate) minutes: u32,
}

impl Smooth {
    pub(crate) fn new(level: f64) -> Self {
        Self { level, deviation: DEVIATION_FIRST, minutes: 1 }
    }

    pub(crate) fn observe(&mut self, level: f64) {
        self.minutes = self.minutes.saturating_add(1);
        // The first minutes are averaged.
        let pace = PACE.max(1.0 / f64::from(self.minutes));
        let (step, most) = (level - self.level, CLIP * self.deviation);
        self.level += pace * step.clamp(-most, most);
        // 1.2533 converts the mean absolute deviation into a standard deviation.
        let deviation = (1.2533 * step.abs()).min(CLIP * self.deviation);
        self.deviation += pace.min(PACE * 2.0) * (deviation - self.deviation);
        self.deviation = self.deviation.max(DEVIATION_MIN);
    }
}
