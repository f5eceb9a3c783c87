//! Which keys are worth a place: heavy hitters of a stream, in bounded room.
//!
//! A key's weight grows by what is counted of it. Where there are too many keys, the weight of the one at the end of those that
//! are kept is taken from all of them, and those that have none left go: the algorithm of Misra and Gries ("Finding repeated
//! elements", 1982; "Space-Saving", Metwally et al. 2005, is the same in other words), many decrements at a time as in
//! Anderson et al., "A High-Performance Algorithm for Identifying Frequent Items in Data Streams" (2017). Each time, what is
//! taken from one is taken from [`KEPT`] others, too. So a key lacks at most a part of 1 / [`KEPT`] of all that was
//! counted, and keys that come once cannot crowd out one that comes often, however many they are.
//!
//! Every [`HALF_NS`] all weights are halved, so that what counts is the last seconds.

use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_wire::time::SECOND_NS;

use crate::scaled::scaled;

/// Keys that keep a weight where there are too many.
pub const KEPT: usize = 512;
/// How often weights are halved, in nanoseconds.
pub const HALF_NS: u64 = 10 * SECOND_NS;
/// A burst's weight.
const BURST_WEIGHT: u64 = 1 << 20;

/// The weight of `tokens` of a quota with this burst. In bursts, a rule that counts bytes does not outweigh one that counts
/// requests.
pub(super) fn weight(tokens: u64, burst: u32) -> u64 {
    scaled(tokens, BURST_WEIGHT, burst.into()).min(1 << 60)
}

/// What was taken from all weights, of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Worn(u64);

impl Worn {
    /// What to take from each of `weights` so that at most [`KEPT`] have any left.
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

    /// The most that a key can have counted that has no weight, in thousandths of a burst per second. A steady rate weighs at
    /// least what it gives in [`HALF_NS`].
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
