//! Fan-out of a client: the number of bursts by which its budget was overdrawn, remembered for some time.
//!
//! A client that bursts at m points of presence at once finds m whole bursts there the first time, because no
//! POP has a grant for it yet. The budget goes m bursts deep. As long as that is remembered, every POP holds
//! about an m-th of a burst for the client, so the same trick does not work twice.

use weir_protocol::messages::POPS_MAX;
use weir_protocol::quota::Quota;

/// Time after which the fan-out is forgotten once the debt is paid, in microseconds.
pub const SPREAD_KEPT_US: u64 = 600_000_000;
/// Maximum fan-out: one burst at every POP.
pub const SPREAD_MAX: u32 = POPS_MAX;
/// A debt below this, in microseconds of refill, does not count. A client that keeps its bucket at one POP
/// empty seems to have that debt when a report travels faster than the previous one.
pub const SPREAD_MOMENT_US: u64 = 100_000;
/// An overshoot of fewer bursts does not multiply the remembered fan-out: a client that keeps its budget empty
/// causes such overshoots all the time.
pub const AGAIN_MIN: u32 = 3;
/// Maximum debt, in microseconds, that a store with doubles can add to its clock.
pub const SPREAD_DEBT_US_MAX: u64 = 1 << 52;

/// Fan-out of a budget, and the end of the time for which it is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FanOut {
    bursts: u32,
    until_us: u64,
    /// Fan-out remembered when the current overshoot began; 0 if there is no overshoot.
    before: u32,
}

impl FanOut {
    /// Updates the fan-out of a budget of `quota` that is `deficit_us` from full at `now_us`.
    pub(crate) fn record(&mut self, now_us: u64, deficit_us: u64, quota: Quota) {
        if now_us >= self.until_us {
            self.bursts = 0;
        }
        // Rounded up, so that m whole bursts do not count as more.
        let fill_us = fill_us(quota);
        let depth = deficit_us.saturating_sub(SPREAD_MOMENT_US).div_ceil(fill_us);
        let depth = u32::try_from(depth).unwrap_or(u32::MAX).min(SPREAD_MAX);
        let debt_us = deficit_us.saturating_sub(fill_us).min(SPREAD_DEBT_US_MAX);
        let longest_us = now_us.saturating_add(debt_us).saturating_add(SPREAD_KEPT_US);
        if depth > 1 {
            let before = if self.before > 0 { self.before } else { self.bursts.max(1) };
            // The budget went this deep although every POP held only one part in `before` of a burst.
            let times = if depth < AGAIN_MIN { 1 } else { before };
            let bursts = self.bursts.max(depth.saturating_mul(times).min(SPREAD_MAX));
            *self = Self { bursts, until_us: longest_us, before };
        } else {
            self.before = 0;
            // A clock that stepped back must not prolong it.
            self.until_us = self.until_us.min(longest_us);
        }
    }

    /// Number of bursts; at least 2, or 0 if none is remembered.
    pub(crate) fn bursts(&self) -> u32 {
        self.bursts
    }

    /// End of the time for which it is remembered; 0 if none is.
    pub(crate) fn until_us(&self) -> u64 {
        if self.bursts > 0 { self.until_us } else { 0 }
    }
}

/// Time that an empty budget takes to fill, in microseconds, rounded up.
pub fn fill_us(quota: Quota) -> u64 {
    quota.fill_ns().div_ceil(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_protocol::quota::{Period, Rate};

    const SECOND_US: u64 = 1_000_000;

    fn quota(count: u32, burst: u32) -> Quota {
        Quota::new(Rate::new(count, Period::Second).unwrap(), burst).unwrap()
    }

    // I4
    #[test]
    fn whole_bursts_are_counted_and_forgotten_a_while_after_they_are_paid() {
        let quota = quota(100, 100);
        let mut spread = FanOut::default();
        spread.record(0, SECOND_US, quota);
        assert_eq!(spread.bursts(), 0, "an empty budget owes nothing");
        spread.record(0, 8 * SECOND_US, quota);
        assert_eq!(spread.bursts(), 8);
        let until_us = 7 * SECOND_US + SPREAD_KEPT_US;
        assert_eq!(spread.until_us(), until_us, "seven bursts are owed");
        spread.record(until_us - 1, 0, quota);
        assert_eq!(spread.bursts(), 8);
        spread.record(until_us, 0, quota);
        assert_eq!((spread.bursts(), spread.until_us()), (0, 0));
    }

    #[test]
    fn a_smaller_debt_refreshes_a_larger_spread() {
        let quota = quota(100, 100);
        let mut spread = FanOut::default();
        spread.record(0, 8 * SECOND_US, quota);
        spread.record(500 * SECOND_US, 2 * SECOND_US, quota);
        assert_eq!((spread.bursts(), spread.until_us()), (8, 501 * SECOND_US + SPREAD_KEPT_US));
    }

    #[test]
    fn a_quicker_report_is_no_debt() {
        let quota = quota(100, 100);
        let mut spread = FanOut::default();
        spread.record(0, SECOND_US + SPREAD_MOMENT_US, quota);
        assert_eq!(spread.bursts(), 0);
        spread.record(0, SECOND_US + SPREAD_MOMENT_US + 1, quota);
        assert_eq!(spread.bursts(), 2);
    }

    #[test]
    fn a_burst_at_many_pops_of_which_each_held_a_part_multiplies() {
        let (quota, mut spread) = (quota(100, 100), FanOut::default());
        spread.record(0, 18 * SECOND_US, quota);
        spread.record(SECOND_US, 17 * SECOND_US, quota);
        assert_eq!(spread.bursts(), 18, "one overshoot");
        spread.record(60 * SECOND_US, 0, quota);
        spread.record(61 * SECOND_US, 2 * SECOND_US, quota);
        assert_eq!(spread.bursts(), 18, "too small to say anything");
        spread.record(62 * SECOND_US, 0, quota);
        spread.record(63 * SECOND_US, 4 * SECOND_US, quota);
        assert_eq!(spread.bursts(), 72, "four bursts deep, of eighteenths");
    }

    proptest! {
        /// A debt of m bursts counts as m, also if a token does not refill in a whole number of microseconds.
        #[test]
        fn whole_bursts_are_as_many(count in 1..10_000_u32, burst in 1..1_000_u32, bursts in 2..400_u64) {
            let quota = quota(count, burst);
            prop_assume!(quota.fill_ns() > 2 * SPREAD_MOMENT_US * 1_000);
            let mut spread = FanOut::default();
            spread.record(0, bursts * quota.fill_ns() / 1_000, quota);
            prop_assert_eq!(u64::from(spread.bursts()), bursts);
        }

        /// Whatever the clock does, it is not forgotten while the budget is in debt, nor kept longer than it should be.
        #[test]
        fn lasts_as_long_as_it_should(
            steps in prop::collection::vec((-10_000_000_000_i64..10_000_000_000, 0..400_000_000_u64), 1..60),
        ) {
            let quota = quota(100, 100);
            let (mut spread, mut now_us) = (FanOut::default(), 1_u64 << 50);
            for (step_us, deficit_us) in steps {
                now_us = now_us.saturating_add_signed(step_us);
                spread.record(now_us, deficit_us, quota);
                let debt_us = deficit_us.saturating_sub(SECOND_US);
                let depth = deficit_us.saturating_sub(SPREAD_MOMENT_US).div_ceil(SECOND_US);
                prop_assert!(depth <= 1 || u64::from(spread.bursts()) >= depth);
                prop_assert!(spread.bursts() != 1 && spread.until_us() <= now_us + debt_us + SPREAD_KEPT_US);
            }
        }
    }
}
