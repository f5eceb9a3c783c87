//! Jitter on `Retry-After`, which spreads the times at which refused clients return.

use crate::limiter::Limiter;
use crate::{FIBONACCI, RuleIndex};

impl Limiter {
    /// Jitter for a refusal of the key `tag` by `rule`: 0 to the rule's `retry_after_jitter_s`, in seconds.
    ///
    /// Each refusal gets another value, so that clients who share a key are spread, too. Multiples of
    /// [`FIBONACCI`] are spread as evenly as possible for any number of refusals.
    #[inline]
    pub(crate) fn jitter_s(&mut self, rule: RuleIndex, tag: impl FnOnce() -> u64) -> u32 {
        let most_s = self.terms.get(usize::from(rule)).map_or(0, |terms| terms.retry_after_jitter_s);
        if most_s == 0 {
            return 0;
        }
        self.dealt = self.dealt.wrapping_add(FIBONACCI);
        // The tag makes keys and workers differ: all workers start at the same number.
        part_of(tag().wrapping_add(self.dealt), most_s)
    }
}

/// Maps all numbers evenly to 0 to `most_s`.
fn part_of(number: u64, most_s: u32) -> u32 {
    let spread = (u128::from(number) * (u128::from(most_s) + 1)) >> 64;
    // Never fails: `spread` is at most `most_s`.
    u32::try_from(spread).unwrap_or(most_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        /// However few clients there are.
        #[test]
        fn the_clients_of_a_key_are_dealt_out_evenly(tag: u64, begin: u64, most_s in 1..60_u32, each in 1..20_u32) {
            let mut told = vec![0_u32; most_s as usize + 1];
            for n in 0..u64::from(each * (most_s + 1)) {
                let dealt = begin.wrapping_add(n).wrapping_mul(FIBONACCI);
                told[part_of(tag.wrapping_add(dealt), most_s) as usize] += 1;
            }
            prop_assert!(told.iter().all(|n| n.abs_diff(each) <= 3), "{each}: {told:?}");
        }

        #[test]
        fn is_within_its_bounds(number: u64, most_s: u32) {
            prop_assert!(part_of(number, most_s) <= most_s);
        }
    }
}
