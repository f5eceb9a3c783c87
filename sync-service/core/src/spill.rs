//! What a full budget lets go, and what late reports may claim of it.

/// For how long a spill is not replaced by a moment's, in microseconds.
pub const SPILL_KEPT_US: u64 = 2_000_000;
/// A spill shorter than this is a moment's, in microseconds.
pub const SPILL_MOMENT_US: u64 = 100_000;

/// The latest time in which the budget was full and let its refill go, on the store's clock in
/// microseconds, and how much of that late reports have claimed.
///
/// What was claimed is worked off at the pace of the clock. So all claims together, of however many
/// POPs, get at most what spilled within the longest of their spans and what has passed since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_field_names, reason = "the unit stands last in every name")]
pub(crate) struct Spill {
    from_us: u64,
    to_us: u64,
    claimed_us: u64,
}

impl Spill {
    /// The budget was full from `from_us` to `to_us`; `goes_on` if it was when it was last looked at.
    pub(crate) fn add(&mut self, from_us: u64, to_us: u64, goes_on: bool) {
        if goes_on {
            self.to_us = to_us;
            return;
        }
        // Reports that were held up arrive in a bunch; the moments between them are no spill to
        // remember in place of the one that they speak of.
        let length_us = to_us - from_us;
        let is_moment = length_us < SPILL_MOMENT_US && length_us < self.to_us.saturating_sub(self.from_us);
        if !is_moment || from_us.saturating_sub(self.to_us) >= SPILL_KEPT_US {
            *self = Self { from_us, to_us, claimed_us: 0 };
        }
    }

    /// Works off what was claimed while `elapsed_us` pass.
    pub(crate) fn pass(&mut self, elapsed_us: u64) {
        self.claimed_us = self.claimed_us.saturating_sub(elapsed_us);
    }

    /// Claims up to `price_us` of what spilled since `since_us`; returns how much that was.
    pub(crate) fn claim(&mut self, since_us: u64, price_us: u64) -> u64 {
        let spilled_us = self.to_us.saturating_sub(self.from_us.max(since_us));
        let claimed = price_us.min(spilled_us.saturating_sub(self.claimed_us));
        self.claimed_us += claimed;
        claimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BEGIN_US: u64 = 1_000_000_000;

    /// One thing that happens to a budget that is full and not charged.
    #[derive(Clone, Debug)]
    enum Step {
        /// So many microseconds pass, of which it is full for the last so many thousandths.
        Pass { us: u64, full_milli: u64 },
        /// A report of so long a span claims so much.
        Claim { span_us: u64, price_us: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..3_000_000_u64, 0..=1_000_u64).prop_map(|(us, full_milli)| Step::Pass { us, full_milli }),
            (0..5_000_000_u64, 0..5_000_000_u64)
                .prop_map(|(span_us, price_us)| Step::Claim { span_us, price_us }),
        ]
    }

    #[test]
    fn a_late_report_is_paid_by_what_spilled_in_its_span() {
        let mut spill = Spill::default();
        spill.add(0, 10_000_000, false);
        assert_eq!(spill.claim(8_000_000, 5_000_000), 2_000_000, "no more than its span");
        assert_eq!(spill.claim(8_000_000, 5_000_000), 0, "and not twice");
        assert_eq!(spill.claim(5_000_000, 1_000_000), 1_000_000, "a longer span has more, less what is gone");
    }

    #[test]
    fn a_moment_does_not_replace_what_held_up_reports_speak_of() {
        let mut spill = Spill::default();
        spill.add(0, 10_000_000, false);
        spill.add(10_500_000, 10_500_000 + SPILL_MOMENT_US - 1, false);
        assert_eq!(spill.claim(0, u64::MAX), 10_000_000);
        let late_us = 10_000_000 + SPILL_KEPT_US;
        spill.add(late_us, late_us + 1, false);
        assert_eq!(spill.claim(0, u64::MAX), 1, "after a while it does");
    }

    proptest! {
        /// However spans overlap and whoever claims: no more in all than what passed and the longest span
        /// before it; and nothing of what did not spill within the span of the claim.
        #[test]
        fn claims_together_get_at_most_the_longest_span_and_what_passed(steps in prop::collection::vec(step(), 1..100)) {
            let (mut spill, mut now_us, mut spilled_at_us) = (Spill::default(), BEGIN_US, 0);
            let (mut claimed_us, mut longest_us, mut goes_on) = (0, 0, false);
            for step in steps {
                match step {
                    Step::Pass { us, full_milli } => {
                        let full_us = us * full_milli / 1_000;
                        now_us += us;
                        spill.pass(us);
                        if full_us > 0 {
                            spill.add(now_us - full_us, now_us, goes_on && full_us == us);
                            spilled_at_us = now_us;
                        }
                        goes_on = full_us > 0;
                    }
                    Step::Claim { span_us, price_us } => {
                        longest_us = longest_us.max(span_us);
                        let got_us = spill.claim(now_us - span_us, price_us);
                        prop_assert!(got_us <= price_us);
                        prop_assert!(got_us <= span_us.saturating_sub(now_us - spilled_at_us));
                        claimed_us += got_us;
                        // A claim that does not pay all leaves a deficit.
                        goes_on &= got_us == price_us;
                    }
                }
                prop_assert!(claimed_us <= longest_us + (now_us - BEGIN_US));
            }
        }
    }
}
