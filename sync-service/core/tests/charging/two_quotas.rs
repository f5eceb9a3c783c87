//! A budget that POPs of two rule sets charge, each by its own quota: while a canary runs.

use proptest::collection::vec;
use proptest::prelude::*;
use weir_budget::budget::Budget;
use weir_protocol::quota::{Period, Quota};

use super::{charge, quota};

/// What the budget has by this quota.
fn level(budget: &mut Budget, now_us: u64, quota: Quota, pop: &str) -> u64 {
    charge(budget, now_us, quota, pop, &[]);
    quota.fill_ns().saturating_sub(budget.deficit_ns()) / quota.token_ns()
}

proptest! {
    /// POPs that admit what the budget has by their own quota, and report it at once, get no more together than the
    /// larger burst and the larger rate x t.
    // I4
    #[test]
    fn no_more_is_admitted_than_by_the_larger_burst_and_the_larger_rate(
        rates in [1_u32..200, 1..200],
        bursts in [1_u32..300, 1..300],
        steps in vec((0_u64..3_000_000, 0_usize..2, 0_u64..400), 1..60),
    ) {
        let quotas = [0, 1].map(|of| quota(rates[of], Period::Second, bursts[of]));
        let (mut budget, mut now_us, mut admitted) = (Budget::default(), 1_u64 << 50, [0_u64; 2]);
        let begun_us = now_us;
        for (pause_us, of, wanted) in steps {
            now_us += pause_us;
            let pop = ["a", "b"][of];
            let given = wanted.min(level(&mut budget, now_us, quotas[of], pop));
            admitted[of] += given;
            prop_assert_eq!(charge(&mut budget, now_us, quotas[of], pop, &[(1, admitted[of], given)]), given);
            let (burst, rate) = (bursts[0].max(bursts[1]), rates[0].max(rates[1]));
            let most = u64::from(burst) + (now_us - begun_us) * u64::from(rate) / 1_000_000 + 1;
            prop_assert!(admitted[0] + admitted[1] <= most, "{} {:?}", most, admitted);
        }
    }
}
