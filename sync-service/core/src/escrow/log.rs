//! Log of spent tokens, for refill policies where each token comes back by itself.

use alloc::collections::VecDeque;

/// Counted tokens, sorted by the time at which they expire, in microseconds of the store's clock.
///
/// They are added in that order: spent tokens are reported in the order of the draws, and tokens that count as
/// spent because their lease ended are added before the draw that finds it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    ends: VecDeque<(u64, u64)>,
}

impl Log {
    /// Adds `tokens` that count until `end_us`.
    pub(super) fn add(&mut self, end_us: u64, tokens: u64) {
        if tokens > 0 {
            self.ends.push_back((end_us, tokens));
        }
    }

    /// Drops the tokens that have expired at `now_us`; returns their number.
    pub(super) fn fade(&mut self, now_us: u64) -> u64 {
        let mut faded = 0;
        while let Some((_, tokens)) = self.ends.pop_front_if(|(end_us, _)| *end_us <= now_us) {
            faded += tokens;
        }
        faded
    }

    /// Removes up to `tokens` of those that were spent last; returns the number removed.
    pub(super) fn remove(&mut self, tokens: u64) -> u64 {
        let mut rest = tokens;
        while rest > 0
            && let Some((_, last)) = self.ends.back_mut()
        {
            let removed = rest.min(*last);
            (rest, *last) = (rest - removed, *last - removed);
            if *last == 0 {
                self.ends.pop_back();
            }
        }
        tokens - rest
    }

    /// Time at which the next of them expires.
    pub(super) fn first_us(&self) -> Option<u64> {
        self.ends.front().map(|(end_us, _)| *end_us)
    }

    /// All times, to shift them.
    pub(super) fn times_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.ends.iter_mut().map(|(end_us, _)| end_us)
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}
