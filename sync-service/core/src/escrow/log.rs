//! What was spent under a law by which each token comes back by itself: when, and how many.

use alloc::collections::VecDeque;

/// Tokens that count on, by when they end to, on the store's clock in microseconds.
///
/// They are added in the order in which they end: what is spent is heard of in the order of the draws, and what a lease's
/// end makes spent, before the draw that finds it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    ends: VecDeque<(u64, u64)>,
}

impl Log {
    /// `tokens` more count until `end_us`.
    pub(super) fn add(&mut self, end_us: u64, tokens: u64) {
        if tokens > 0 {
            self.ends.push_back((end_us, tokens));
        }
    }

    /// Forgets what does not count any more at `now_us`; returns how many tokens that is.
    pub(super) fn fade(&mut self, now_us: u64) -> u64 {
        let mut faded = 0;
        while let Some((_, tokens)) = self.ends.pop_front_if(|(end_us, _)| *end_us <= now_us) {
            faded += tokens;
        }
        faded
    }

    /// Removes `tokens` of those that were spent last; returns how many there were.
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

    /// When the next of them ends to count.
    pub(super) fn first_us(&self) -> Option<u64> {
        self.ends.front().map(|(end_us, _)| *end_us)
    }

    /// All times, to move them.
    pub(super) fn times_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.ends.iter_mut().map(|(end_us, _)| end_us)
    }

    /// How many of them are told apart.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}
