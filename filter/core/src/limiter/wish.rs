//! What a report asks for a strict rule's key: tokens ahead of its requests, or to give back what it has.
//!
//! A key of a token bucket is asked for often or not worth a lease: a token on hand that is not used soon
//! is given back, and the next request waits for its own. A quota of the calendar has long leases, and
//! a small part of it stays on hand while its key is asked for at all, so that a steady client hardly ever
//! waits. It is given back shortly before the lease ends, if nobody asked.

use crate::slot::Watched;
use weir_wire::quota::Quota;
use weir_wire::time::{SECOND_NS, Time};

/// A strict rule's key that is asked for so often between two reports is paid for in advance; asked
/// less often, a token that it does not use in time is worth more than the pause it saves.
const AHEAD_MIN: u64 = 4;
/// One part in so many of a calendar's quota is on hand for a key that is asked for, at least one token.
const CHUNK_PART: u32 = 1_000;
/// How long before its lease ends, in nanoseconds, what is on hand of a calendar's quota is given back.
const REST_NS: u64 = 30 * SECOND_NS;

/// How a strict rule's key was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// Tokens asked for that no answered report has said; of a calendar's quota, of which what is drawn is
    /// on hand already, no answered draw either.
    pub(super) asked: u64,
    /// Tokens that a request of its rule takes that says nothing of it.
    pub(super) usual_cost: u32,
    /// Whether the worker has too many keys to hold anything for one that nobody asks for.
    pub(super) is_crowded: bool,
    /// What is to be on hand of a calendar's quota.
    pub(super) chunk: Option<u32>,
}

/// What to say of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Nothing: it holds nothing. A POP that needs a token draws it.
    Nothing,
    /// Nothing before then, unless it is asked for.
    Later(Time),
    /// So many tokens beyond those it spent; none gives its epoch back, which has ended here.
    Ahead(u32),
}

/// What is to be on hand of a calendar's quota.
pub(super) fn chunk_of(quota: Quota) -> u32 {
    (quota.burst() / CHUNK_PART).max(1)
}

/// When a key of a calendar's quota whose lease ends at `until` has something to say again.
pub(super) fn rest_until(until: Time) -> Time {
    Time::from_nanos(until.as_nanos().saturating_sub(REST_NS))
}

impl Wish {
    /// What to say of `watched`, as it was before [`Wish::ends`].
    pub(super) fn of(&self, watched: &Watched, now: Time) -> Want {
        if watched.charged == 0 || watched.is_over(now) || self.is_closed(watched, now) {
            return Want::Nothing;
        }
        if self.gives_back(watched, now) {
            return Want::Ahead(0);
        }
        match self.chunk {
            Some(_) if self.is_idle(watched, now) => Want::Later(rest_until(watched.until)),
            chunk => Want::Ahead(
                u32::try_from(self.asked)
                    .unwrap_or(u32::MAX)
                    .max(watched.on_hand(now))
                    .max(chunk.unwrap_or_default())
                    .max(self.usual_cost),
            ),
        }
    }

    /// Whether the epoch ends with this report, or has ended.
    pub(super) fn ends(&self, watched: &Watched, now: Time) -> bool {
        !self.is_closed(watched, now) && (self.gives_back(watched, now) || watched.is_over(now))
    }

    /// Whether its window has no tokens any more. A token bucket that has none refills, and its key is paid for
    /// ahead as before.
    fn is_closed(&self, watched: &Watched, now: Time) -> bool {
        self.chunk.is_some() && watched.barred_ns(now) > 0
    }

    fn gives_back(&self, watched: &Watched, now: Time) -> bool {
        if self.chunk.is_none() {
            return self.asked < AHEAD_MIN * u64::from(self.usual_cost) && watched.awaited(now) == 0;
        }
        let is_late = rest_until(watched.until) <= now;
        self.is_idle(watched, now) && (is_late || self.is_crowded)
    }

    fn is_idle(&self, watched: &Watched, now: Time) -> bool {
        self.asked == 0 && watched.awaited(now) == 0
    }
}
