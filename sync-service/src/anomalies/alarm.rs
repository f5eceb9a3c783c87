//! State machine that begins and ends anomalies, and levels to compare.

use std::collections::BTreeMap;

/// Maximum duration of an anomaly, in minutes: a day. A level that lasts longer is considered usual: it is learned, and
/// no anomaly begins until there are calm minutes again.
const LONGEST: u64 = 24 * 60;

/// Value of a minute, with the usual value.
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
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Calm,
    /// The minute in which the anomaly under way began, and its highest reading.
    Ringing(u64, Reading),
    /// After an anomaly that lasted for [`LONGEST`], until the next calm minutes.
    Muted,
}

impl Alarm {
    pub(crate) fn new(begin_after: u32, end_after: u32) -> Self {
        Self { begin_after, end_after, run: 0, state: State::Calm }
    }

    pub(crate) fn is_ringing(&self) -> bool {
        matches!(self.state, State::Ringing(..))
    }

    /// True if the last minute is to be learned: it is neither strange nor part of an anomaly, or the anomaly is muted.
    pub(crate) fn learns(&self, is_strange: bool) -> bool {
        match self.state {
            State::Calm => self.run == 0 && !is_strange,
            State::Ringing(..) => false,
            State::Muted => true,
        }
    }

    /// Applies the next minute. Returns the anomaly that is under way, or has just ended.
    pub(crate) fn minute(
        &mut self,
        minute: u64,
        reading: Reading,
        is_strange: bool,
        is_calm: bool,
    ) -> Option<AlarmState> {
        let (counts, needed) = match self.state {
            State::Calm => (is_strange, self.begin_after),
            State::Ringing(..) | State::Muted => (is_calm, self.end_after),
        };
        let run = if counts { self.run + 1 } else { 0 };
        let turns = run >= needed;
        self.run = if turns { 0 } else { run };
        match self.state {
            State::Calm if turns => {
                let since = (minute + 1).saturating_sub(u64::from(run));
                self.state = State::Ringing(since, reading);
                Some(AlarmState { phase: Phase::Begins, reading, since })
            }
            State::Ringing(since, most) => {
                let most = if reading.found > most.found { reading } else { most };
                if !turns && minute.saturating_sub(since) < LONGEST {
                    self.state = State::Ringing(since, most);
                    return Some(AlarmState { phase: Phase::GoesOn, reading, since });
                }
                (self.run, self.state) = (0, if turns { State::Calm } else { State::Muted });
                Some(AlarmState { phase: Phase::Ends, reading: most, since })
            }
            State::Muted if turns => {
                self.state = State::Calm;
                None
            }
            State::Calm | State::Muted => None,
        }
    }
}

/// Minimum of an anomaly of a rule, a POP or a key, in limited tokens a minute: one per second.
pub(crate) const FLOOR: f64 = 60.0;
/// Constant added to each count before its logarithm is taken.
const ADDED: f64 = 2.0;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleMinute {
    /// Limited tokens.
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

/// Exponentially smoothed level of minutes.
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
