//! Rates of a key's demand and admitted tokens, from the counts of reports as they arrive.
//!
//! This is a sliding window of [`WINDOW_NS`] in constant memory: the counts of the current window, and the part
//! of the previous one that is within the last [`WINDOW_NS`], as if its counts had arrived evenly. A report's
//! counts cover the time since the previous report. They are divided at the end of a window, and the rate is
//! that at the last report, until the next report of a warm key is overdue.

use weir_protocol::time::{SECOND_NS, Time};

use crate::demand::{TokenCounts, WARM_GAP_NS};

/// Length of the window over which rates are measured, in nanoseconds.
pub const WINDOW_NS: u64 = 5 * SECOND_NS;
/// Assumed time of demand before the first report of an unknown key, in nanoseconds.
const FIRST_NS: u64 = SECOND_NS / 4;
/// Minimum time over which rates are measured, in nanoseconds.
const SPAN_NS_MIN: u64 = SECOND_NS;
/// Silence after which a key has no demand any more, in nanoseconds.
const SILENT_NS: u64 = *WARM_GAP_NS.end();

/// Thousandths of a token per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyRates {
    /// Asked for, admitted or not.
    pub asked_milli: u64,
    /// Admitted.
    pub admitted_milli: u64,
}

/// Counts of the last seconds.
#[derive(Clone, Debug)]
pub(super) struct KeyMeter {
    /// Start of the first window.
    began: Time,
    /// Start of the current window.
    from: Time,
    /// Time of the last counts.
    heard_at: Time,
    current: TokenCounts,
    before: TokenCounts,
}

impl KeyRates {
    /// Rate of limited tokens.
    pub fn limited_milli(&self) -> u64 {
        self.asked_milli.saturating_sub(self.admitted_milli)
    }

    /// Raises the demand to the admitted tokens if it is lower. A bucket counts admitted tokens at once, but
    /// demand only when a worker reports, and after an outage of the store some tokens are charged twice.
    #[must_use]
    pub fn whole(self) -> Self {
        Self { asked_milli: self.asked_milli.max(self.admitted_milli), ..self }
    }

    /// Limits both rates to `most_milli`.
    pub(super) fn at_most(self, most_milli: u64) -> Self {
        let Self { asked_milli, admitted_milli } = self;
        Self { asked_milli: asked_milli.min(most_milli), admitted_milli: admitted_milli.min(most_milli) }
    }

    /// Adds the rates of `other`.
    pub fn add(&mut self, other: Self) {
        self.asked_milli = self.asked_milli.saturating_add(other.asked_milli);
        self.admitted_milli = self.admitted_milli.saturating_add(other.admitted_milli);
    }
}

impl KeyMeter {
    /// Creates a meter without counts for a key that is new at `now`.
    pub(super) fn new(now: Time) -> Self {
        let began = Time::from_nanos(now.as_nanos().saturating_sub(FIRST_NS));
        Self {
            began,
            from: began,
            heard_at: now,
            current: TokenCounts::default(),
            before: TokenCounts::default(),
        }
    }

    /// Adds the counts since the last report.
    pub(super) fn add(&mut self, now: Time, counts: TokenCounts) {
        let end = self.from + WINDOW_NS;
        if now >= end + WINDOW_NS {
            *self = Self::new(now);
        } else if now >= end {
            let since = self.heard_at.max(Time::from_nanos(now.as_nanos().saturating_sub(SILENT_NS)));
            let old = counts.part(end.nanos_since(since), now.nanos_since(since));
            self.current.add(old);
            (self.before, self.from) = (self.current, end);
            self.current =
                TokenCounts { asked: counts.asked - old.asked, admitted: counts.admitted - old.admitted };
            self.heard_at = now;
            return;
        }
        self.current.add(counts);
        self.heard_at = self.heard_at.max(now);
    }

    /// Rates over the last seconds.
    pub(super) fn rates(&self, now: Time) -> KeyRates {
        let at = self.heard_at.max(Time::from_nanos(now.as_nanos().saturating_sub(SILENT_NS)));
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
        let milli = |count: u64| {
            let milli = u128::from(count) * u128::from(SECOND_NS * 1_000) / u128::from(span_ns);
            u64::try_from(milli).unwrap_or(u64::MAX)
        };
        KeyRates { asked_milli: milli(counts.asked), admitted_milli: milli(counts.admitted) }
    }

    /// Time since the last counts, in nanoseconds.
    pub(super) fn silent_ns(&self, now: Time) -> u64 {
        now.nanos_since(self.heard_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn a_steady_rate_is_told_within_a_tenth_from_the_first_second_on() {
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
    fn a_burst_is_not_a_rate_of_its_own() {
        let mut meter = KeyMeter::new(at(1_000));
        meter.add(at(1_000), TokenCounts { asked: 100, admitted: 100 });
        assert_eq!(meter.rates(at(1_000)).asked_milli, 100_000, "over a second");
        assert!(meter.rates(at(8_000)).asked_milli <= 22_000, "over the window");
    }

    #[test]
    fn what_is_over_fades() {
        let meter = steady(1_000, 250, 11_000);
        assert!(meter.rates(at(13_000)).asked_milli > 90_000, "the next report may be late");
        assert!(meter.rates(at(17_000)).asked_milli < 70_000);
        assert_eq!(meter.rates(at(24_000)), KeyRates::default());
    }

    proptest! {
        #[test]
        fn holds_for_any_counts(reports in prop::collection::vec((0..12_000_u64, 0..u64::MAX / 4, 0..u64::MAX / 4), 0..50)) {
            let (mut meter, mut ms) = (KeyMeter::new(at(500)), 500);
            for (gap_ms, asked, admitted) in reports {
                ms += gap_ms;
                meter.add(at(ms), TokenCounts { asked, admitted });
                let rates = meter.rates(at(ms)).whole();
                prop_assert!(rates.asked_milli >= rates.admitted_milli);
                prop_assert_eq!(meter.rates(at(ms + 60_000)), KeyRates::default());
            }
        }
    }
}
