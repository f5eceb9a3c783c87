//! Unused refill: the refill that a full budget lost, which late reports may claim.

use alloc::vec::Vec;

/// Maximum number of full spans that a budget remembers; beyond it the shortest is dropped first.
pub const SPILLS_MAX: usize = 8;
/// Time for which a span is remembered after its end, in microseconds: the longest delay of a report.
pub const SPILL_KEPT_US: u64 = 10_000_000;

/// Spans in which the budget was full and lost its refill, as far as no late report has claimed them; in
/// microseconds of the budget's clock. They are sorted, not empty, and do not touch.
///
/// Tokens admitted while the budget was not full, or was full for less time than they cost, would have been
/// refilled by the next time that it was full. So late reports claim unused refill oldest first, starting at
/// the time when their tokens may have been admitted, and no refill is claimed twice.
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
    /// Records that the budget was full from `from_us` until now, `to_us`.
    pub(crate) fn add(&mut self, from_us: u64, to_us: u64) {
        match self.spans.last_mut() {
            Some(last) if last.to_us >= from_us => last.to_us = last.to_us.max(to_us),
            _ => self.spans.push(Span { from_us, to_us }),
        }
        self.spans.retain(|span| to_us.saturating_sub(span.to_us) <= SPILL_KEPT_US);
        self.bound();
    }

    /// Claims up to `price_us` of the unused refill since `since_us`; returns the amount claimed.
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
        while self.spans.len() > SPILLS_MAX {
            let but_last = self.spans.iter().take(self.spans.len() - 1);
            let shortest = but_last.enumerate().min_by_key(|(_, span)| span.length_us());
            let Some(at) = shortest.map(|(at, _)| at) else { return };
            self.spans.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        spilled: Vec<bool>,
    }

    impl Naive {
        fn pass(&mut self, us: u64, full_us: u64) {
            let is_full = (0..us).map(|at| at >= us - full_us);
            self.is_free.extend(is_full.clone());
            self.spilled.extend(is_full);
        }

        fn now_us(&self) -> u64 {
            self.is_free.len() as u64
        }

        fn claim(&mut self, since_us: u64, price_us: u64) -> u64 {
            let since = usize::try_from(since_us).unwrap();
            let free = self.is_free.iter_mut().skip(since).filter(|is_free| **is_free);
            free.take(usize::try_from(price_us).unwrap()).map(|is_free| *is_free = false).count() as u64
        }

        fn spilled_since(&self, since_us: u64) -> u64 {
            let since = usize::try_from(since_us).unwrap();
            self.spilled.iter().skip(since).filter(|spilled| **spilled).count() as u64
        }
    }

    #[test]
    fn a_late_report_is_paid_by_what_spilled_in_its_span() {
        let mut spill = UnusedRefill::default();
        spill.add(0, 10_000_000);
        assert_eq!(spill.claim(8_000_000, 5_000_000), 2_000_000, "no more than its span");
        assert_eq!(spill.claim(8_000_000, 5_000_000), 0, "and not twice");
        assert_eq!(
            spill.claim(5_000_000, 9_000_000),
            3_000_000,
            "a longer span has more, less what was claimed before"
        );
    }

    #[test]
    fn reports_in_a_bunch_are_each_paid_by_their_own_time() {
        let mut spill = UnusedRefill::default();
        spill.add(0, 4_000_000);
        for since_us in [0, 1_000_000, 2_000_000, 3_000_000] {
            assert_eq!(spill.claim(since_us, 1_000_000), 1_000_000, "{since_us}");
        }
        assert_eq!(spill.claim(0, 1), 0);
    }

    #[test]
    fn moments_do_not_replace_what_held_up_reports_speak_of() {
        let mut spill = UnusedRefill::default();
        spill.add(0, 10_000_000);
        for moment in 1..=100 {
            spill.add(10_000_000 + 1_000 * moment, 10_000_010 + 1_000 * moment);
        }
        assert_eq!(spill.claim(0, u64::MAX), 10_000_000 + 10 * (SPILLS_MAX as u64 - 1));
        spill.add(20_000_000, 20_000_001);
        spill.add(20_000_001 + SPILL_KEPT_US, 20_000_002 + SPILL_KEPT_US);
        assert_eq!(spill.claim(0, u64::MAX), 1, "what is long over is forgotten");
    }

    proptest! {
        /// It does what the model does until it has to forget a span. And tokens that were admitted after some
        /// moment are never paid for with more than what spilled after that moment.
        // I5
        #[test]
        fn no_time_pays_twice_nor_for_what_came_later(steps in prop::collection::vec(step(), 1..60)) {
            let (mut spill, mut naive) = (UnusedRefill::default(), Naive::default());
            let (mut is_exact, mut paid) = (true, Vec::new());
            for step in steps {
                match step {
                    Step::Pass { us, full_us } => {
                        naive.pass(us, full_us);
                        if full_us > 0 {
                            spill.add(naive.now_us() - full_us, naive.now_us());
                        }
                    }
                    Step::Claim { span_us, price_us } => {
                        let since_us = naive.now_us().saturating_sub(span_us);
                        let (got_us, expected_us) = (spill.claim(since_us, price_us), naive.claim(since_us, price_us));
                        prop_assert!(!is_exact || got_us == expected_us, "{} for {}", got_us, expected_us);
                        prop_assert!(got_us <= price_us);
                        paid.push((since_us, got_us));
                        for &(since_us, _) in &paid {
                            let later = paid.iter().filter(|(since, _)| *since >= since_us);
                            let later_us: u64 = later.map(|(_, paid_us)| paid_us).sum();
                            prop_assert!(later_us <= naive.spilled_since(since_us));
                        }
                    }
                }
                is_exact &= spill.spans.len() < SPILLS_MAX;
                prop_assert!(spill.spans.len() <= SPILLS_MAX);
                prop_assert!(spill.spans.iter().all(|span| span.from_us < span.to_us));
                prop_assert!(spill.spans.windows(2).all(|pair| pair[0].to_us < pair[1].from_us));
            }
        }
    }
}
