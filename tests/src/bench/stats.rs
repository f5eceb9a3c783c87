//! Medians, quartiles, and how sure a figure is.

use std::fmt;
use std::time::Duration;

/// The median of some values, and the quartiles around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// A quarter of the values is below.
    pub low: f64,
    /// Half of them are.
    pub median: f64,
    /// Three quarters are.
    pub high: f64,
}

impl Spread {
    /// Of `values`; between two of them, in proportion. All zero where there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let sorted = sorted(values);
        let at = |part| quantile(&sorted, part);
        Self { low: at(0.25), median: at(0.5), high: at(0.75) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        interval(f, [self.median, self.low, self.high])
    }
}

/// A figure, and the interval that has it with a confidence of nine in ten: of as many samples drawn at random from
/// those that were measured, one in twenty gives less, and one in twenty more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Of all samples.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper one.
    pub high: f64,
}

/// The number of times that samples are drawn.
const DRAWS: usize = 400;

impl Estimate {
    /// The estimate of `figure` from `samples`. The same samples give the same estimate.
    pub fn of<T>(samples: &[T], figure: impl Fn(&[&T]) -> f64) -> Self {
        let mut random = fastrand::Rng::with_seed(1);
        let all: Vec<&T> = samples.iter().collect();
        let draw = |_| {
            let drawn: Vec<&T> = (0..all.len()).filter_map(|_| random.choice(&all).copied()).collect();
            figure(&drawn)
        };
        let drawn = sorted((0..DRAWS).map(draw));
        Self { value: figure(&all), low: quantile(&drawn, 0.05), high: quantile(&drawn, 0.95) }
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        interval(f, [self.value, self.low, self.high])
    }
}

fn interval(f: &mut fmt::Formatter<'_>, numbers: [f64; 3]) -> fmt::Result {
    let digits = f.precision().unwrap_or(2);
    let [value, low, high] =
        numbers.map(|number| if digits == 0 { grouped(number) } else { format!("{number:.digits$}") });
    write!(f, "{value} ({low} to {high})")
}

/// The part of all visits that is undisturbed even on a machine with busy neighbours.
const QUIET: f64 = 0.1;

/// The lower decile: of times, the one that is typical of those that were not disturbed.
pub fn quiet(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(&sorted(values), QUIET)
}

/// From the least to the greatest.
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The value below which `part` (0 to 1) of the sorted values are.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index into fewer than 2^52 values"
)]
pub fn quantile(sorted: &[f64], part: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = part.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    low + (high - low) * place.fract()
}

/// The median and the 99th percentile.
pub fn p50_and_p99(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    let sorted = sorted(values);
    [0.5, 0.99].map(|part| quantile(&sorted, part))
}

/// Nanoseconds of CPU time in microseconds.
pub fn micros(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64() * 1e6
}

/// A whole number with its thousands apart.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) && digit.is_ascii_digit() {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A count as a number to reckon with.
#[allow(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
pub fn float(count: u64) -> f64 {
    count as f64
}
