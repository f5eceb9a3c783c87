//! Weights that select the keys to keep: heavy hitters of a stream, in bounded memory.
//!
//! A key's weight grows by its counts. When there are too many keys, the weight of the first key beyond the
//! [`KEPT`] heaviest is subtracted from all of them, and keys without a weight left are dropped. This is the
//! algorithm of Misra and Gries ("Finding repeated elements", 1982; "Space-Saving", Metwally et al. 2005, is
//! the same in other words), with many decrements at a time as in Anderson et al., "A High-Performance
//! Algorithm for Identifying Frequent Items in Data Streams" (2017). Each subtraction from one key is also made
//! from [`KEPT`] others. So a key lacks at most a fraction of 1 / [`KEPT`] of all counts, and keys that occur
//! once cannot displace one that occurs often, however many they are.
//!
//! Every [`HALF_NS`] all weights are halved, so that only the last seconds count.

use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_protocol::time::SECOND_NS;

use crate::scaled::scaled;

/// Number of keys that keep a weight when there are too many.
pub const KEPT: usize = 512;
/// Interval at which weights are halved, in nanoseconds.
pub const HALF_NS: u64 = 10 * SECOND_NS;
/// Weight of a burst.
const BURST_WEIGHT: u64 = 1 << 20;

/// Weight of `tokens` of a quota with this burst. In units of bursts, a rule that counts bytes does not
/// outweigh one that counts requests.
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

    /// Upper limit for a key without a weight, in thousandths of a burst per second. A steady rate weighs at
    /// least its tokens of [`HALF_NS`].
    pub(super) fn unseen_milli(self) -> u64 {
        let milli = u128::from(self.0) * 1_000 * u128::from(SECOND_NS)
            / (u128::from(BURST_WEIGHT) * u128::from(HALF_NS));
        u64::try_from(milli).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_has_weight_and_what_is_taken_is_told() {
        let mut worn = Worn::default();
        let weights = || 1..=2 * KEPT as u64;
        assert_eq!(worn.wear(weights().take(KEPT)), 0);
        let taken = worn.wear(weights());
        assert_eq!(weights().filter(|weight| *weight > taken).count(), KEPT);
        assert_eq!(worn.0, taken);
        worn = Worn(weight(50, 5));
        assert_eq!(worn.unseen_milli(), 1_000, "ten bursts in ten seconds");
        worn.halve();
        assert_eq!(worn.unseen_milli(), 500);
    }
}
