//! Spreads the times at which refused clients are told to return.

use super::hit::Hit;
use crate::RuleIndex;
use crate::limiter::Limiter;
use weir_wire::time::{SECOND_NS, Time};

impl Limiter {
    /// The seconds to add at `now` to the `Retry-After` of the rule at `rule`, which refused one of these `hits`:
    /// 0 to the rule's `retry_after_jitter_s`.
    ///
    /// It depends on the key and on the time, in windows as long as the largest jitter: a client that asks again within
    /// a window is told the same, different keys are told different values, and each key gets a new one every window.
    #[inline]
    pub(crate) fn jitter_s(&self, rule: RuleIndex, hits: &[Hit], now: Time) -> u32 {
        let most_s = self.terms.get(usize::from(rule)).map_or(0, |terms| terms.retry_after_jitter_s);
        if most_s == 0 {
            return 0;
        }
        hits.iter().find(|hit| hit.rule == rule).map_or(0, |hit| jitter_s(hit.tag.bits(), most_s, now))
    }
}

fn jitter_s(tag: u64, most_s: u32, now: Time) -> u32 {
    let window = now.as_nanos() / (u64::from(most_s.max(1)) * SECOND_NS);
    let hash = mixed(tag ^ mixed(window));
    let spread = (u128::from(hash) * (u128::from(most_s) + 1)) >> 64;
    // At most `most_s`.
    u32::try_from(spread).unwrap_or(most_s)
}

/// Mixes bits (the output function of `SplitMix64`: Steele et al., "Fast splittable pseudorandom number
/// generators", 2014). The tag is a keyed hash already, so clients cannot choose their jitter.
fn mixed(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST_S: u32 = 9;
    const WINDOW_NS: u64 = MOST_S as u64 * SECOND_NS;

    #[test]
    fn keys_are_spread_evenly_in_every_window() {
        for window in 0..5 {
            let mut told = [0_u32; MOST_S as usize + 1];
            for tag in 0..10_000 {
                told[jitter_s(tag, MOST_S, Time::from_nanos(window * WINDOW_NS)) as usize] += 1;
            }
            assert!(told.iter().all(|n| (850..1_150).contains(n)), "{told:?}");
        }
    }

    #[test]
    fn a_key_is_told_the_same_within_a_window_and_another_in_others() {
        let at = |ns| jitter_s(7, MOST_S, Time::from_nanos(ns));
        assert_eq!(at(0), at(WINDOW_NS - 1));
        let told: std::collections::BTreeSet<_> = (0..100).map(|window| at(window * WINDOW_NS)).collect();
        assert_eq!(told.len(), MOST_S as usize + 1, "{told:?}");
    }

    proptest! {
        #[test]
        fn is_within_its_bounds(tag: u64, most_s in 0..=u32::MAX, now: u64) {
            prop_assert!(jitter_s(tag, most_s, Time::from_nanos(now)) <= most_s);
        }
    }
}
