//! Medians, quartiles and percentiles.

use std::fmt;
use std::time::Duration;

/// The median of some rounds, and the quartiles around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    low: f64,
    median: f64,
    high: f64,
    digits: usize,
}

impl Spread {
    /// Of at least one round; shown with `digits` behind the point. Panics where a round came to no number.
    pub(super) fn of(rounds: &[f64], digits: usize) -> Self {
        let are_numbers = !rounds.is_empty() && rounds.iter().all(|round| round.is_finite());
        assert!(are_numbers, "bench-sync: a round came to no number: {rounds:?}");
        let mut sorted = rounds.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |percent| nearest(&sorted, percent).unwrap_or(f64::NAN);
        Self { low: at(25), median: at(50), high: at(75), digits }
    }

    /// The median.
    pub(super) fn median(&self) -> f64 {
        self.median
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |number: f64| {
            if self.digits == 0 { thousands(number) } else { format!("{number:.*}", self.digits) }
        };
        write!(f, "{} ({} to {})", show(self.median), show(self.low), show(self.high))
    }
}

/// The value below which `percent` of `sorted` lie, by the nearest rank; none of none.
fn nearest<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The median and the 99th percentile of some latencies, in milliseconds.
pub(super) fn median_and_p99_ms(mut latencies: Vec<Duration>) -> (f64, f64) {
    latencies.sort_unstable();
    let at = |percent| nearest(&latencies, percent).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3);
    (at(50), at(99))
}

/// Whether nothing in the text of a figure is what a division by nothing gives.
pub(super) fn has_only_numbers(text: &str) -> bool {
    !text.split(|letter: char| !letter.is_alphanumeric()).any(|word| matches!(word, "inf" | "NaN"))
}

/// A whole number, with commas.
pub(super) fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 && digit.is_ascii_digit() {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count as a number to reckon with.
#[allow(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_values_that_were_measured() {
        assert_eq!(Spread::of(&[5.0, 1.0, 4.0, 2.0, 3.0], 1).to_string(), "3.0 (2.0 to 4.0)");
        assert_eq!(Spread::of(&[1_234_567.0], 0).to_string(), "1,234,567 (1,234,567 to 1,234,567)");
    }

    #[test]
    #[should_panic(expected = "came to no number: [1.0, inf]")]
    fn a_round_in_which_nothing_was_charged_is_no_figure() {
        let _ = Spread::of(&[1.0, 1.0 / 0.0], 1);
    }

    #[test]
    fn a_figure_that_is_no_number_is_told_from_one() {
        let is = ["17.7 %; 26,482", "nan pops", "infinite", "0.5 us and inf us", "-inf", "NaN ms (1.00 ms)"];
        assert_eq!(is.map(has_only_numbers), [true, true, true, false, false, false]);
    }

    #[test]
    fn the_99th_percentile_is_not_the_largest_of_many() {
        let latencies = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(median_and_p99_ms(latencies), (100.0, 198.0));
    }
}
