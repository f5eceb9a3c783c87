//! What a count usually is at an hour of the week: its median, and how high it gets.

use std::collections::VecDeque;
use std::f64::consts::LN_2;

const HOUR: u64 = 60;
const DAY: usize = 24;
const DAYS: usize = 7;
const WEEK: usize = DAYS * DAY;
/// The most minutes that may be needed before anything is known.
pub const LEARN_MAX: u32 = 60;
/// The last minutes whose median is what is usual now.
const RECENT_MAX: usize = LEARN_MAX as usize;
/// The fewest minutes that tell what an hour is like.
const HOUR_MIN: usize = 15;
/// How far the present may lead away from the season: a factor of two.
const LEAD: f64 = LN_2;

/// What is known of a count, as levels.
#[derive(Debug)]
pub struct Season {
    /// The last week, by hour of the week.
    hours: Vec<Option<Hour>>,
    /// A week before the hour that ended last.
    before: Option<Hour>,
    /// The hour that is under way, since 1970.
    hour: Option<u64>,
    /// Its minutes, ...
    all: Vec<f64>,
    /// ... and those of them in which nothing was strange.
    calm: Vec<f64>,
    recent: VecDeque<f64>,
    /// Without so many of them, nothing is known.
    recent_min: usize,
    /// How far minutes usually are from what is expected: the median, of each of the last hours.
    spreads: VecDeque<f64>,
    deviations: Vec<f64>,
}

/// An hour.
#[derive(Clone, Copy, Debug)]
struct Hour {
    median: f64,
    /// How far the second highest of its minutes is above that: an anomaly takes two.
    peak: f64,
}

impl Season {
    /// One that knows nothing before it has heard so many calm minutes.
    pub fn new(learn: u32) -> Self {
        Self {
            hours: vec![None; WEEK],
            before: None,
            hour: None,
            all: Vec::new(),
            calm: Vec::new(),
            recent: VecDeque::new(),
            recent_min: learn.clamp(1, LEARN_MAX) as usize,
            spreads: VecDeque::new(),
            deviations: Vec::new(),
        }
    }

    /// The level that is expected in `minute`, if enough is known.
    ///
    /// That is what the last hour was like, unless it leads further than a factor of two away from what the same hour was a
    /// week ago, or in the first week, on the days before. So neither a busy day nor a slow one is strange, and what
    /// rises slowly is strange in the end.
    pub fn expected(&self, minute: u64) -> Option<f64> {
        let is_known = self.recent.len() >= self.recent_min;
        let recent = is_known.then(|| median(self.recent.iter().copied())).flatten();
        if let Some(week_ago) = self.week_ago(minute) {
            return Some(recent.map_or(week_ago, |recent| recent.clamp(week_ago - LEAD, week_ago + LEAD)));
        }
        let recent = recent?;
        let at = hour_of_week(minute);
        let days = (1..DAYS).filter_map(|day| self.hours[(at + WEEK - day * DAY) % WEEK]);
        let (low, high) = days.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), hour| {
            (low.min(hour.median), high.max(hour.median))
        });
        Some(if low > high { recent } else { recent.clamp(low - LEAD, high + LEAD) })
    }

    /// How far above its hour's median it gets about this time on most of the last days: a daily job is usual, and one day's
    /// anomaly is no excuse for another.
    pub fn peak(&self, minute: u64) -> Option<f64> {
        let at = hour_of_week(minute);
        let of_day = |day: usize| {
            let at = at + WEEK - day * DAY;
            let around = if day == DAYS { at..=at + 1 } else { at - 1..=at + 1 };
            around.filter_map(|at| self.hours[at % WEEK]).map(|hour| hour.peak).reduce(f64::max)
        };
        let mut peaks: Vec<f64> = (1..=DAYS).filter_map(of_day).collect();
        peaks.sort_by(f64::total_cmp);
        (peaks.len() > 2).then(|| peaks[(peaks.len() - 1) / 2])
    }

    /// How far minutes usually are from what is expected: their standard deviation, if they were normal.
    pub fn spread(&self) -> f64 {
        // The factor makes a standard deviation of the MAD of a normal distribution.
        1.4826 * median(self.spreads.iter().copied()).unwrap_or_default()
    }

    /// Takes in a minute, in which nothing was strange if it `is_calm`.
    pub fn hear(&mut self, minute: u64, level: f64, is_calm: bool) {
        let hour = minute / HOUR;
        if let Some(known) = self.hour.filter(|known| *known != hour) {
            self.end_hour(known);
            // Of hours that nobody watched, nothing is known.
            let unwatched = (known + 1..hour).take(WEEK);
            unwatched.for_each(|hour| self.hours[usize::try_from(hour).unwrap_or(0) % WEEK] = None);
        }
        self.hour = Some(hour);
        let expected = self.expected(minute);
        self.all.push(level);
        if !is_calm {
            return;
        }
        self.calm.push(level);
        self.deviations.extend(expected.map(|expected| (level - expected).abs()));
        self.recent.push_back(level);
        if self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
    }

    fn end_hour(&mut self, hour: u64) {
        let at = usize::try_from(hour).unwrap_or(0) % WEEK;
        let (mut all, calm) = (std::mem::take(&mut self.all), std::mem::take(&mut self.calm));
        self.before = self.hours[at];
        // An hour full of anomalies does not change what is usual.
        let median = if calm.len() >= HOUR_MIN {
            median(calm.into_iter())
        } else {
            self.before.map(|before| before.median)
        };
        all.sort_by(f64::total_cmp);
        let high = all.len().checked_sub(2).map(|second| all[second]);
        self.hours[at] = median.zip(high).map(|(median, high)| Hour { median, peak: high - median });
        let deviations = std::mem::take(&mut self.deviations);
        if deviations.len() >= HOUR_MIN {
            self.spreads.extend(self::median(deviations.into_iter()));
            if self.spreads.len() > DAY {
                self.spreads.pop_front();
            }
        }
    }

    /// The same time a week ago, between the middles of two hours.
    fn week_ago(&self, minute: u64) -> Option<f64> {
        let at = hour_of_week(minute);
        let this = self.hours[at]?.median;
        #[allow(clippy::cast_precision_loss, reason = "below 60")]
        let from_middle = ((minute % HOUR) as f64 + 0.5) / 60.0 - 0.5;
        // The hour before has just been overwritten by that of this week.
        let other = if from_middle < 0.0 { self.before } else { self.hours[(at + 1) % WEEK] };
        let part = from_middle.abs();
        Some(other.map_or(this, |other| (1.0 - part) * this + part * other.median))
    }
}

fn hour_of_week(minute: u64) -> usize {
    usize::try_from(minute / HOUR).unwrap_or(0) % WEEK
}

/// The median, of an even number the higher one in the middle.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}
