//! A budget's records: the counts of its sources and the timing that their reports imply; the refill that it lost while
//! it was full, which late reports may claim; and the fan-out of bursts.
//!
//! A client that bursts at m points of presence finds m whole bursts the first time, and the budget goes m bursts deep.
//! As long as that is remembered, every POP holds about an m-th of a burst for it.

use alloc::string::String;
use alloc::vec::Vec;

use weir_protocol::messages::POPS_MAX;
use weir_protocol::quota::Quota;

/// Maximum count in a record; larger counts are clamped to it.
pub const COUNT_MAX: u64 = (1 << 53) - 1;
/// Maximum number of tokens in one charge: twelve days at the highest rate there is.
pub const CHARGE_TOKENS_MAX: u64 = 1 << 40;

/// Maximum time of a POP's clock, in milliseconds, over a century; larger times are clamped to it.
pub const MADE_MS_MAX: u64 = 1 << 42;
/// Maximum delay of a report, in microseconds: as long as a POP waits for it. Beyond that, the store's clock stepped.
pub const DELAY_US_MAX: u64 = 10_000_000;
/// Reduction of a delay for each millisecond of the POP's clock, in microseconds: one per cent more than a
/// millisecond, so that a drift or a jump of clocks does not count as a delay for ever.
pub const PACE_US: u64 = 1_010;

// Lua's doubles must hold each of these exactly.
const _: () = assert!(MADE_MS_MAX * PACE_US < 1 << 53);

/// Name of a sequence of counts: one bucket of one POP. Ordered by epoch, then name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId {
    pub epoch: u64,
    pub pop: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    pub epoch: u64,
    pub admitted: u64,
    /// Part of `admitted` to charge if the epoch is not on record.
    pub unconfirmed: u64,
    /// Age of the oldest admission that is not on record, in microseconds.
    pub span_us: u64,
    /// Tokens that the POP's own bucket lacks: it admitted them recently.
    pub missing: u64,
    pub made_ms: u64,
}

/// Charged count of a source, and the time of its last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceRecord {
    admitted: u64,
    /// Time of the latest report by the budget's clock, in microseconds.
    pub(crate) seen_us: u64,
    /// Time of the latest report by the POP's clock.
    made_ms: u64,
    /// Excess of that report's transit time over the quickest, in microseconds.
    delay_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) tokens: u64,
    /// Time between the record's latest report and this one by the POP's clock, in microseconds.
    pub(crate) since_us: u64,
    /// That time by the budget's clock, in microseconds: less if the reports were delayed, and arrived in a bunch.
    pub(crate) passed_us: u64,
    pub(crate) delay_us: u64,
}

impl SourceRecord {
    /// Creates the record of a source at its first count. Returns the new part of the count, too.
    pub(crate) fn begin(now_us: u64, count: &Count) -> (Self, News) {
        let admitted = count.admitted.min(COUNT_MAX);
        let made_ms = count.made_ms.min(MADE_MS_MAX);
        let tokens = count.unconfirmed.min(admitted).min(CHARGE_TOKENS_MAX);
        let record = Self { admitted, seen_us: now_us, made_ms, delay_us: 0 };
        (record, News { tokens, since_us: now_us, passed_us: now_us, delay_us: 0 })
    }

    /// Records a count, and returns its new part.
    ///
    /// The time between two reports is measured by the POP's clock. If they arrive farther apart, the later one was
    /// delayed by the difference; if closer together, the delay has shrunk by it. A report that was overtaken changes
    /// no timing.
    pub(crate) fn observe(&mut self, now_us: u64, count: &Count) -> News {
        let admitted = count.admitted.min(COUNT_MAX);
        let made_ms = count.made_ms.min(MADE_MS_MAX);
        let gap_ms = made_ms.saturating_sub(self.made_ms);
        let passed_us = now_us.saturating_sub(self.seen_us);
        let is_step = passed_us.saturating_sub(gap_ms * 1_000) > DELAY_US_MAX;
        let passed_us = if is_step { gap_ms * 1_000 } else { passed_us };
        let delay_us = self.delay_us.saturating_add(passed_us);
        let delay_us = delay_us.saturating_sub(gap_ms * PACE_US).min(DELAY_US_MAX);
        let tokens = admitted.saturating_sub(self.admitted).min(CHARGE_TOKENS_MAX);
        *self = Self {
            admitted: self.admitted.max(admitted),
            seen_us: now_us,
            made_ms: self.made_ms.max(made_ms),
            delay_us,
        };
        News { tokens, since_us: gap_ms * 1_000, passed_us, delay_us }
    }
}

/// Maximum number of full spans that a budget remembers; beyond it the shortest is dropped first.
pub const UNUSED_SPANS_MAX: usize = 8;
/// Time for which a span is remembered after its end, in microseconds: the longest delay of a report.
pub const UNUSED_KEPT_US: u64 = 10_000_000;

/// Spans in which the budget was full and lost its refill, and that no late report has claimed yet, in microseconds
/// of the budget's clock; sorted, not empty, not touching.
///
/// Tokens admitted while the budget was not full, or full for less time than they cost, would have been refilled by the
/// next time that it was full. So late reports claim unused refill oldest first, from the time when their tokens may
/// have been admitted, and none is claimed twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnusedRefill {
    spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from_us: u64,
    to_us: u64,
}

impl Span {
    fn length_us(self) -> u64 {
        self.to_us - self.from_us
    }
}

impl UnusedRefill {
    pub(crate) fn add(&mut self, from_us: u64, to_us: u64) {
        match self.spans.last_mut() {
            Some(last) if last.to_us >= from_us => last.to_us = last.to_us.max(to_us),
            _ => self.spans.push(Span { from_us, to_us }),
        }
        self.spans.retain(|span| to_us.saturating_sub(span.to_us) <= UNUSED_KEPT_US);
        self.bound();
    }

    pub(crate) fn claim(&mut self, since_us: u64, price_us: u64) -> u64 {
        if self.spans.is_empty() || price_us == 0 {
            return 0;
        }
        let (mut left, mut spans) = (Vec::with_capacity(self.spans.len() + 1), self.spans.as_slice());
        let mut claimed_us = 0;
        while let Some((&span, rest)) = spans.split_first() {
            spans = rest;
            let from_us = since_us.clamp(span.from_us, span.to_us);
            let end_us = from_us + (price_us - claimed_us).min(span.to_us - from_us);
            claimed_us += end_us - from_us;
            let parts = [Span { to_us: from_us, ..span }, Span { from_us: end_us, ..span }];
            if end_us == from_us {
                left.push(span);
            } else {
                left.extend(parts.into_iter().filter(|part| part.length_us() > 0));
            }
        }
        self.spans = left;
        self.bound();
        claimed_us
    }

    /// Drops the shortest spans, the earliest of equal ones first, but never the latest.
    fn bound(&mut self) {
        while self.spans.len() > UNUSED_SPANS_MAX {
            let but_last = self.spans.iter().take(self.spans.len() - 1);
            let shortest = but_last.enumerate().min_by_key(|(_, span)| span.length_us());
            let Some(at) = shortest.map(|(at, _)| at) else { return };
            self.spans.remove(at);
        }
    }
}

/// Time after which the fan-out is forgotten once the debt is paid, in microseconds.
pub const FAN_OUT_KEPT_US: u64 = 600_000_000;
pub const FAN_OUT_MAX: u32 = POPS_MAX;
/// A debt below this, in microseconds of refill, does not count. A client that keeps its bucket at one POP
/// empty seems to have that debt when a report travels faster than the previous one.
pub const FAN_OUT_MOMENT_US: u64 = 100_000;
/// An overshoot of fewer bursts does not multiply the known fan-out: a client with an empty budget often causes one.
pub const AGAIN_MIN: u32 = 3;
/// Maximum debt, in microseconds, that a store with doubles can add to its clock.
pub const FAN_OUT_DEBT_US_MAX: u64 = 1 << 52;

/// Fan-out of a budget, and the end of the time for which it is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FanOut {
    bursts: u32,
    until_us: u64,
    /// Fan-out remembered when the current overshoot began; 0 if there is no overshoot.
    before: u32,
}

impl FanOut {
    pub(crate) fn record(&mut self, now_us: u64, deficit_us: u64, quota: Quota) {
        if now_us >= self.until_us {
            self.bursts = 0;
        }
        // Rounded up, so that m whole bursts do not count as more.
        let fill_us = fill_us(quota);
        let depth = deficit_us.saturating_sub(FAN_OUT_MOMENT_US).div_ceil(fill_us);
        let depth = u32::try_from(depth).unwrap_or(u32::MAX).min(FAN_OUT_MAX);
        let debt_us = deficit_us.saturating_sub(fill_us).min(FAN_OUT_DEBT_US_MAX);
        let longest_us = now_us.saturating_add(debt_us).saturating_add(FAN_OUT_KEPT_US);
        if depth > 1 {
            let before = if self.before > 0 { self.before } else { self.bursts.max(1) };
            // The budget went this deep although every POP held only one part in `before` of a burst.
            let times = if depth < AGAIN_MIN { 1 } else { before };
            let bursts = self.bursts.max(depth.saturating_mul(times).min(FAN_OUT_MAX));
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

    proptest! {
        /// A debt of m bursts counts as m, also if a token does not refill in a whole number of microseconds.
        #[test]
        fn whole_bursts_are_as_many(count in 1..10_000_u32, burst in 1..1_000_u32, bursts in 2..400_u64) {
            let quota = quota(count, burst);
            prop_assume!(quota.fill_ns() > 2 * FAN_OUT_MOMENT_US * 1_000);
            let mut fan_out = FanOut::default();
            fan_out.record(0, bursts * quota.fill_ns() / 1_000, quota);
            prop_assert_eq!(u64::from(fan_out.bursts()), bursts);
        }

        /// Whatever the clock does, it is not forgotten while the budget is in debt, nor kept longer than it should be.
        #[test]
        fn lasts_as_long_as_it_should(
            steps in prop::collection::vec((-10_000_000_000_i64..10_000_000_000, 0..400_000_000_u64), 1..60),
        ) {
            let quota = quota(100, 100);
            let (mut fan_out, mut now_us) = (FanOut::default(), 1_u64 << 50);
            for (step_us, deficit_us) in steps {
                now_us = now_us.saturating_add_signed(step_us);
                fan_out.record(now_us, deficit_us, quota);
                let debt_us = deficit_us.saturating_sub(SECOND_US);
                let depth = deficit_us.saturating_sub(FAN_OUT_MOMENT_US).div_ceil(SECOND_US);
                prop_assert!(depth <= 1 || u64::from(fan_out.bursts()) >= depth);
                prop_assert!(fan_out.bursts() != 1 && fan_out.until_us() <= now_us + debt_us + FAN_OUT_KEPT_US);
            }
        }
    }

    /// One thing that happens to a budget.
    #[derive(Clone, Debug)]
    enum Step {
        /// Time passes, and the budget is full for the last `full_us` of it.
        Pass { us: u64, full_us: u64 },
        /// A late report of tokens that were admitted in the last `span_us` claims refill for them.
        Claim { span_us: u64, price_us: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..60_u64, 0..60_u64).prop_map(|(us, full_us)| Step::Pass { us, full_us: full_us.min(us) }),
            (0..200_u64, 0..80_u64).prop_map(|(span_us, price_us)| Step::Claim { span_us, price_us }),
        ]
    }

    /// The model: for each microsecond, whether the full budget let its refill go, and whether that may still be
    /// claimed.
    #[derive(Default)]
    struct Naive {
        is_free: Vec<bool>,
        unused: Vec<bool>,
    }

    impl Naive {
        fn pass(&mut self, us: u64, full_us: u64) {
            let is_full = (0..us).map(|at| at >= us - full_us);
            self.is_free.extend(is_full.clone());
            self.unused.extend(is_full);
        }

        fn now_us(&self) -> u64 {
            self.is_free.len() as u64
        }

        fn claim(&mut self, since_us: u64, price_us: u64) -> u64 {
            let since = usize::try_from(since_us).unwrap();
            let free = self.is_free.iter_mut().skip(since).filter(|is_free| **is_free);
            free.take(usize::try_from(price_us).unwrap()).map(|is_free| *is_free = false).count() as u64
        }

        fn unused_since(&self, since_us: u64) -> u64 {
            let since = usize::try_from(since_us).unwrap();
            self.unused.iter().skip(since).filter(|unused| **unused).count() as u64
        }
    }

    #[test]
    fn short_spans_do_not_replace_those_that_late_reports_claim() {
        let mut unused = UnusedRefill::default();
        unused.add(0, 10_000_000);
        for moment in 1..=100 {
            unused.add(10_000_000 + 1_000 * moment, 10_000_010 + 1_000 * moment);
        }
        assert_eq!(unused.claim(0, u64::MAX), 10_000_000 + 10 * (UNUSED_SPANS_MAX as u64 - 1));
        unused.add(20_000_000, 20_000_001);
        unused.add(20_000_001 + UNUSED_KEPT_US, 20_000_002 + UNUSED_KEPT_US);
        assert_eq!(unused.claim(0, u64::MAX), 1, "what is long over is forgotten");
    }

    proptest! {
        /// It does what the model does until it has to forget a span. And tokens that were admitted after some
        /// moment are never paid for with more than the refill unused after that moment.
        // I5
        #[test]
        fn no_time_pays_twice_nor_for_what_came_later(steps in prop::collection::vec(step(), 1..60)) {
            let (mut unused, mut naive) = (UnusedRefill::default(), Naive::default());
            let (mut is_exact, mut paid) = (true, Vec::new());
            for step in steps {
                match step {
                    Step::Pass { us, full_us } => {
                        naive.pass(us, full_us);
                        if full_us > 0 {
                            unused.add(naive.now_us() - full_us, naive.now_us());
                        }
                    }
                    Step::Claim { span_us, price_us } => {
                        let since_us = naive.now_us().saturating_sub(span_us);
                        let (got_us, expected_us) = (unused.claim(since_us, price_us), naive.claim(since_us, price_us));
                        prop_assert!(!is_exact || got_us == expected_us, "{} for {}", got_us, expected_us);
                        prop_assert!(got_us <= price_us);
                        paid.push((since_us, got_us));
                        for &(since_us, _) in &paid {
                            let later = paid.iter().filter(|(since, _)| *since >= since_us);
                            let later_us: u64 = later.map(|(_, paid_us)| paid_us).sum();
                            prop_assert!(later_us <= naive.unused_since(since_us));
                        }
                    }
                }
                is_exact &= unused.spans.len() < UNUSED_SPANS_MAX;
                prop_assert!(unused.spans.len() <= UNUSED_SPANS_MAX);
                prop_assert!(unused.spans.iter().all(|span| span.from_us < span.to_us));
                prop_assert!(unused.spans.windows(2).all(|pair| pair[0].to_us < pair[1].from_us));
            }
        }
    }
}
