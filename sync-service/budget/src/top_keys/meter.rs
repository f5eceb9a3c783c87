//! Measures of a top key: its rates, and the weights that select the keys to keep.
//!
//! Rates are measured over a sliding window of [`WINDOW_NS`] in constant memory: the current window's counts, plus the
//! previous window's share within the last [`WINDOW_NS`], as if those had arrived evenly. A report's counts cover the
//! time since the previous report, and are split where a window ends. Until a warm key's next report is overdue, its
//! rate stays as it was at the last one.
//!
//! The weights find the heavy hitters of a stream in bounded memory. A key's weight grows by its counts. When there are
//! too many keys, the weight of the first key beyond the [`KEPT`] heaviest is subtracted from all, and keys without a
//! weight left are dropped: the algorithm of Misra and Gries ("Finding repeated elements", 1982; "Space-Saving",
//! Metwally et al. 2005, is the same in other words), with many decrements at a time as in Anderson et al., "A
//! High-Performance Algorithm for Identifying Frequent Items in Data Streams" (2017). So a key lacks at most a fraction
//! of 1 / [`KEPT`] of all counts, and keys that occur once cannot displace one that occurs often. Every [`HALF_NS`] all
//! weights are halved.

use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_protocol::time::{SECOND_NS, Time};

use crate::demand::{TokenCounts, WARM_GAP_NS};
use crate::scaled;

pub const WINDOW_NS: u64 = 5 * SECOND_NS;
/// Assumed time of demand before the first report of an unknown key, in nanoseconds.
const FIRST_NS: u64 = SECOND_NS / 4;
const SPAN_NS_MIN: u64 = SECOND_NS;
/// Silence after which a key no longer has demand, in nanoseconds.
const SILENT_NS: u64 = *WARM_GAP_NS.end();

/// Rates of a key, in thousandths of a token per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyRates {
    /// Asked for, admitted or not.
    pub asked_milli: u64,
    pub admitted_milli: u64,
}

#[derive(Clone, Debug)]
pub(super) struct KeyMeter {
    began: Time,
    from: Time,
    seen_at: Time,
    current: TokenCounts,
    before: TokenCounts,
}

impl KeyRates {
    pub fn limited_milli(&self) -> u64 {
        self.asked_milli.saturating_sub(self.admitted_milli)
    }

    /// Raises the demand to the admitted tokens: buckets count those at once, and an outage may charge some twice.
    #[must_use]
    pub fn whole(self) -> Self {
        Self { asked_milli: self.asked_milli.max(self.admitted_milli), ..self }
    }

    pub(super) fn at_most(self, most_milli: u64) -> Self {
        let Self { asked_milli, admitted_milli } = self;
        Self { asked_milli: asked_milli.min(most_milli), admitted_milli: admitted_milli.min(most_milli) }
    }

    pub fn add(&mut self, other: Self) {
        self.asked_milli = self.asked_milli.saturating_add(other.asked_milli);
        self.admitted_milli = self.admitted_milli.saturating_add(other.admitted_milli);
    }
}

impl KeyMeter {
    pub(super) fn new(now: Time) -> Self {
        let began = Time::from_nanos(now.as_nanos().saturating_sub(FIRST_NS));
        Self { began, from: began, seen_at: now, current: TokenCounts::default(), before: TokenCounts::default() }
    }

    pub(super) fn add(&mut self, now: Time, counts: TokenCounts) {
        let end = self.from + WINDOW_NS;
        if now >= end + WINDOW_NS {
            *self = Self::new(now);
        } else if now >= end {
            let since = self.seen_at.max(Time::from_nanos(now.as_nanos().saturating_sub(SILENT_NS)));
            let old = counts.part(end.nanos_since(since), now.nanos_since(since));
            self.current.add(old);
            (self.before, self.from) = (self.current, end);
            self.current = TokenCounts { asked: counts.asked - old.asked, admitted: counts.admitted - old.admitted };
            self.seen_at = now;
            return;
        }
        self.current.add(counts);
        self.seen_at = self.seen_at.max(now);
    }

    pub(super) fn rates(&self, now: Time) -> KeyRates {
        let at = self.seen_at.max(Time::from_nanos(now.as_nanos().saturating_sub(SILENT_NS)));
        let passed_ns = at.nanos_since(self.from);
        let (current, before, elapsed_ns) = match passed_ns / WINDOW_NS {
            0 => (self.current, self.before, passed_ns),
            1 => (TokenCounts::default(), self.current, passed_ns - WINDOW_NS),
            _ => return KeyRates::default(),
        };
        let before_ns = WINDOW_NS.min(self.from.nanos_since(self.began) + (passed_ns - elapsed_ns));
        let overlap_ns = before_ns.min(WINDOW_NS - elapsed_ns);
        let mut counts = before.part(overlap_ns, before_ns);
        counts.add(current);
        let span_ns = (elapsed_ns + overlap_ns).max(SPAN_NS_MIN);
        let milli = |count: u64| scaled(count, SECOND_NS * 1_000, span_ns);
        KeyRates { asked_milli: milli(counts.asked), admitted_milli: milli(counts.admitted) }
    }

    pub(super) fn silent_ns(&self, now: Time) -> u64 {
        now.nanos_since(self.seen_at)
    }
}

/// Number of keys that keep a weight when there are too many.
pub const KEPT: usize = 512;
/// Interval at which weights are halved, in nanoseconds.
pub const HALF_NS: u64 = 10 * SECOND_NS;
const BURST_WEIGHT: u64 = 1 << 20;

/// Weight of `tokens` in bursts, so that a rule that counts bytes does not outweigh one that counts requests.
pub(super) fn weight(tokens: u64, burst: u32) -> u64 {
    scaled(tokens, BURST_WEIGHT, burst.into()).min(1 << 60)
}

/// Recent sum of the subtractions from all weights.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Worn(u64);

impl Worn {
    /// Returns the amount to subtract from each of `weights` so that at most [`KEPT`] have any left.
    pub(super) fn wear(&mut self, weights: impl Iterator<Item = u64>) -> u64 {
        let mut weights: Vec<_> = weights.filter(|weight| *weight > 0).map(Reverse).collect();
        if weights.len() <= KEPT {
            return 0;
        }
        let (_, Reverse(taken), _) = weights.select_nth_unstable(KEPT);
        self.0 = self.0.saturating_add(*taken);
        *taken
    }

    pub(super) fn halve(&mut self) {
        self.0 /= 2;
    }

    /// Upper limit for a key without a weight, in thousandths of a burst per second. A steady rate weighs at least its
    /// tokens of [`HALF_NS`].
    pub(super) fn unseen_milli(self) -> u64 {
        let milli =
            u128::from(self.0) * 1_000 * u128::from(SECOND_NS) / (u128::from(BURST_WEIGHT) * u128::from(HALF_NS));
        u64::try_from(milli).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// A key that is asked for 100 tokens a second and admitted 40, and reported every `every_ms` from `from_ms` on.
    fn steady(from_ms: u64, every_ms: u64, until_ms: u64) -> KeyMeter {
        let mut meter = KeyMeter::new(at(from_ms));
        let mut ms = from_ms;
        while ms <= until_ms {
            let span_ms = if ms == from_ms { every_ms.min(250) } else { every_ms };
            meter.add(at(ms), TokenCounts { asked: span_ms / 10, admitted: span_ms / 25 });
            ms += every_ms;
        }
        meter
    }

    #[test]
    fn a_steady_rate_is_within_a_tenth_after_the_first_second() {
        for (every_ms, first_ms) in [(250, 1_000), (500, 1_000), (2_000, 4_000)] {
            for until_ms in (first_ms..30_000).step_by(130) {
                let rates = steady(7_130, every_ms, 7_130 + until_ms).rates(at(7_130 + until_ms));
                let near = |milli: u64, expected: u64| milli.abs_diff(expected) * 10 <= expected;
                assert!(
                    near(rates.asked_milli, 100_000) && near(rates.admitted_milli, 40_000),
                    "{rates:?} after {until_ms} ms, every {every_ms}"
                );
            }
        }
    }

    #[test]
    fn a_rate_fades_once_reports_end() {
        let meter = steady(1_000, 250, 11_000);
        assert!(meter.rates(at(13_000)).asked_milli > 90_000, "the next report may be late");
        assert!(meter.rates(at(17_000)).asked_milli < 70_000);
        assert_eq!(meter.rates(at(24_000)), KeyRates::default());
    }
}
