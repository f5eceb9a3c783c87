//! Single refill policies: the log, the sliding window, and the queue (virtual scheduling, as in ITU-T I.371, annex A).

use alloc::collections::VecDeque;

use weir_protocol::calendar::LENGTH_S_MAX;
use weir_protocol::messages::Leased;
use weir_protocol::quota::TOKENS_MAX;

use super::acquire::price_ns;
use super::{AcquireRequest, Claim, Escrow, Lease, NO_LEASE, full_ns};

/// Counted tokens, by the time at which they expire, in microseconds of the store's clock. They are added in that
/// order: as spent, or when the next acquire finds their lease ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    ends: VecDeque<(u64, u64)>,
}

impl Log {
    pub(super) fn add(&mut self, end_us: u64, tokens: u64) {
        if tokens > 0 {
            self.ends.push_back((end_us, tokens));
        }
    }

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

    pub(super) fn first_us(&self) -> Option<u64> {
        self.ends.front().map(|(end_us, _)| *end_us)
    }

    pub(super) fn times_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.ends.iter_mut().map(|(end_us, _)| end_us)
    }
}

/// Unit of time of sliding windows: each is a whole number of units, and products are exact in Redis's doubles.
pub const STEP_US: u64 = 4_000;

const _: () = assert!(LENGTH_S_MAX as u64 * (1_000_000 / STEP_US) * TOKENS_MAX as u64 <= 1 << 53);

/// Weight of `before` tokens of the previous window, if the current one lasts for another `left_us` of its `length_us`.
pub(super) fn weighed(before: u64, left_us: u64, length_us: u64) -> u64 {
    let left = left_us.min(length_us).div_ceil(STEP_US);
    (before * left).div_ceil(length_us / STEP_US)
}

/// Remaining time of a window of `length_us` at which `before` tokens of the previous one start to weigh `room`
/// or less, in microseconds.
pub(super) fn room_at_us(before: u64, room: u64, length_us: u64) -> u64 {
    match (room * (length_us / STEP_US)).checked_div(before) {
        Some(left) => left.saturating_mul(STEP_US).min(length_us),
        None => length_us,
    }
}

const MS_NS: u64 = 1_000_000;

impl Escrow {
    /// Gives a claim a turn for all its tokens, after all earlier turns, if the queue has places for it. Also returns
    /// the number of tokens. The lease states the wait for the turn, or for places, rounded up to a millisecond; for a
    /// claim of no tokens, the wait that a turn would have.
    pub(super) fn take_turn(&mut self, acquire: &AcquireRequest, claim: Claim, lease: Lease) -> (Leased, u64) {
        if claim.spent() > 0 {
            return (NO_LEASE, 0);
        }
        let tokens = u64::from(claim.ahead);
        let ends_ns = self.deficit_ns.saturating_add(price_ns(tokens, acquire.token_ns()));
        let beyond_ns = ends_ns.saturating_sub(full_ns(acquire));
        if tokens > 0 && beyond_ns > 0 {
            return (Leased { wait_ms: beyond_ns.div_ceil(MS_NS), ..Leased::of(0, lease.ms) }, 0);
        }
        let begins_ns = core::mem::replace(&mut self.deficit_ns, ends_ns);
        (Leased { wait_ms: begins_ns.div_ceil(MS_NS), ..Leased::of(tokens, lease.ms) }, tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_US: u64 = 1_000_000;

    proptest! {
        /// It never counts for less than it does by the formula, and for more by what fades in a step, and a token.
        #[test]
        fn it_is_the_formula_rounded_up(
            before in 0..=u64::from(TOKENS_MAX), seconds in 1..=u64::from(LENGTH_S_MAX), part in 0..1_000_000_u64,
        ) {
            let length = seconds * SECOND_US;
            let left = length / 1_000 * part / 1_000;
            let exact = |left: u64| (u128::from(before) * u128::from(left)).div_ceil(length.into());
            let found = weighed(before, left, length);
            prop_assert!((exact(left)..=exact((left + STEP_US).min(length))).contains(&found.into()));
        }

        #[test]
        fn there_is_room_at_the_returned_time_and_not_before(
            before in 0..=u64::from(TOKENS_MAX), seconds in 1..=u64::from(LENGTH_S_MAX),
            room in 0..=u64::from(TOKENS_MAX),
        ) {
            let length = seconds * SECOND_US;
            let at = room_at_us(before, room, length);
            prop_assert!(weighed(before, at, length) <= room);
            prop_assert!(at == length || weighed(before, at + 1, length) > room);
        }
    }
}
