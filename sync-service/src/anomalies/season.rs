//! Usual median and peak of a count, by hour of the week.

use std::collections::VecDeque;
use std::f64::consts::LN_2;

const HOUR: u64 = 60;
const DAY: usize = 24;
const DAYS: usize = 7;
const WEEK: usize = DAYS * DAY;
/// Maximum number of minutes to learn the usual value.
pub(crate) const LEARN_MAX: u32 = 60;
/// Number of recent minutes whose median is the current level.
const RECENT_MAX: usize = LEARN_MAX as usize;
const HOUR_MIN: usize = 15;
/// Maximum distance of the expected level from the seasonal one: a factor of two.
const LEAD: f64 = LN_2;

#[derive(Debug, Default)]
pub(crate) struct Season {
    /// The last week, by hour of the week.
    hours: Vec<Option<Hour>>,
    /// The hour a week before the one that ended last.
    before: Option<Hour>,
    hour: Option<u64>,
    /// Levels of the current hour's minutes.
    all: Vec<f64>,
    /// Levels of the current hour's calm minutes.
    calm: Vec<f64>,
    recent: VecDeque<f64>,
    /// Minimum length of `recent` for the current level to be known.
    recent_min: usize,
    /// Median distance of a minute's level from the expected one, for each of the last hours.
    spreads: VecDeque<f64>,
    deviations: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Hour {
    median: f64,
    /// Distance of the second highest minute from the median, because an anomaly takes two minutes.
    peak: f64,
}

impl Season {
    /// Empty state. Nothing is expected before `learn` calm minutes.
    pub(crate) fn new(learn: u32) -> Self {
        let recent_min = learn.clamp(1, LEARN_MAX) as usize;
        Self { hours: vec![None; WEEK], recent_min, ..Self::default() }
    }

    /// Expected level in `minute`, or `None` if too little is known.
    ///
    /// This is the level of the last hour, clamped to within a factor of two of the same hour a week ago, or in the
    /// first week, of the same hour on the previous days. So neither a busy day nor a quiet one is strange, but a slow
    /// rise eventually is.
    pub(crate) fn expected(&self, minute: u64) -> Option<f64> {
        let is_known = self.recent.len() >= self.recent_min;
        let recent = is_known.then(|| median(self.recent.iter().copied())).flatten();
        if let Some(week_ago) = self.week_ago(minute) {
            return Some(recent.map_or(week_ago, |recent| recent.clamp(week_ago - LEAD, week_ago + LEAD)));
        }
        let recent = recent?;
        let at = place(minute / HOUR);
        let days = (1..DAYS).filter_map(|day| self.hours[(at + WEEK - day * DAY) % WEEK]);
        let (low, high) = days.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), hour| {
            (low.min(hour.median), high.max(hour.median))
        });
        Some(if low > high { recent } else { recent.clamp(low - LEAD, high + LEAD) })
    }

    /// Usual peak above the hour's median at about this time of day; `None` with fewer than three days of history. It
    /// is a median over days: a daily job counts as usual, and one day's anomaly does not hide the next.
    pub(crate) fn peak(&self, minute: u64) -> Option<f64> {
        let at = place(minute / HOUR);
        let of_day = |day: usize| {
            let at = at + WEEK - day * DAY;
            let around = if day == DAYS { at..=at + 1 } else { at - 1..=at + 1 };
            around.filter_map(|at| self.hours[at % WEEK]).map(|hour| hour.peak).reduce(f64::max)
        };
        let mut peaks: Vec<f64> = (1..=DAYS).filter_map(of_day).collect();
        peaks.sort_by(f64::total_cmp);
        (peaks.len() > 2).then(|| peaks[(peaks.len() - 1) / 2])
    }

    /// Standard deviation of minutes from the expected level, assuming a normal distribution.
    pub(crate) fn spread(&self) -> f64 {
        // 1.4826 converts the MAD of a normal distribution into its standard deviation.
        1.4826 * median(self.spreads.iter().copied()).unwrap_or_default()
    }

    /// Applies the level of a minute. `is_calm` is true if nothing was strange in it.
    pub(crate) fn observe(&mut self, minute: u64, level: f64, is_calm: bool) {
        let hour = minute / HOUR;
        if let Some(known) = self.hour.filter(|known| *known != hour) {
            self.end_hour(known);
            // Hours that were not watched have no statistics.
            let unwatched = (known + 1..hour).take(WEEK);
            unwatched.for_each(|hour| self.hours[place(hour)] = None);
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
        let at = place(hour);
        let (mut all, calm) = (std::mem::take(&mut self.all), std::mem::take(&mut self.calm));
        self.before = self.hours[at];
        // An hour full of anomalies does not change the usual level.
        let median =
            if calm.len() >= HOUR_MIN { median(calm.into_iter()) } else { self.before.map(|before| before.median) };
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

    /// Level of the same time a week ago, interpolated between the middles of two hours.
    fn week_ago(&self, minute: u64) -> Option<f64> {
        let at = place(minute / HOUR);
        let this = self.hours[at]?.median;
        #[allow(clippy::cast_precision_loss, reason = "below 60")]
        let from_middle = ((minute % HOUR) as f64 + 0.5) / 60.0 - 0.5;
        // This week's value has just overwritten the previous hour's entry.
        let other = if from_middle < 0.0 { self.before } else { self.hours[(at + 1) % WEEK] };
        let part = from_middle.abs();
        Some(other.map_or(this, |other| (1.0 - part) * this + part * other.median))
    }
}

/// Index of an hour in its week.
fn place(hour: u64) -> usize {
    usize::try_from(hour).unwrap_or(0) % WEEK
}

/// Median; of an even number of values, the upper of the two in the middle. `None` without values.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}
