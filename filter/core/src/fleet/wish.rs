//! What a report wants for a strict rule's key: tokens ahead of its requests, or to give back what it has.
//!
//! Under a token bucket, only a key that is asked for often is worth a lease: a token that is not used soon is
//! given back, and the next request waits for its own. What it has spent, its next draw says; until then, or until the
//! lease ends, that much of the burst does not refill, so only a small part of it may go unsaid. A calendar quota has
//! long leases, and a small part of it stays on hand while the key is asked for at all, so that a steady client hardly
//! ever waits. That part is given back shortly before the lease ends, if the key was not asked for.

use crate::table::slot::Watched;
use weir_wire::law::{GIVEN_BACK_S, Law};
use weir_wire::quota::Quota;
use weir_wire::time::{SECOND_NS, Time};

/// A strict rule's key that is asked for this often between two reports is paid for in advance. Below
/// that, tokens that expire unused would cost more than the pauses they save.
pub(super) const AHEAD_MIN: u64 = 4;
/// The time between two reports if nothing else is said, in nanoseconds.
#[cfg(feature = "takes")]
pub(super) const INTERVAL_NS: u64 = SECOND_NS / 4;
/// A key that is asked for has one part in this many of its calendar quota on hand, at least one token.
const CHUNK_PART: u32 = 1_000;
/// One part in this many of a token bucket's burst may be spent without a report of its own.
const UNSAID_PART: u32 = 64;
/// How long before the lease ends tokens of a calendar quota are given back, in nanoseconds.
const REST_NS: u64 = GIVEN_BACK_S * SECOND_NS;

/// How a strict rule's key was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Tokens asked for that no answered report has said; for a calendar quota, no answered draw either, because
    /// drawn tokens are on hand already.
    pub(crate) asked: u64,
    /// Tokens that a request takes if it does not state its cost.
    pub(crate) usual_cost: u32,
    /// Whether the worker has too many keys to hold tokens for one that is not asked for.
    pub(crate) is_crowded: bool,
    /// What is to be on hand of a calendar's quota.
    pub(crate) chunk: Option<u32>,
    /// How much of a token bucket may be spent without a report of its own.
    pub(crate) unsaid: u32,
    /// If the fleet counts requests in flight: how many of this POP are.
    pub(crate) in_flight: Option<u32>,
    /// How long a request waits at most, in nanoseconds.
    pub(crate) timeout_ns: u64,
}

/// What to say about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Nothing, because it holds nothing. A POP that needs a token draws it.
    Nothing,
    /// Nothing before this time, unless it is asked for.
    Later(Time),
    /// It wants this many tokens beyond those it spent; 0 gives back the rest of its epoch, which has ended here.
    Ahead(u32),
}

/// What is to be on hand of a calendar's quota.
pub(crate) fn chunk_of(quota: Quota) -> u32 {
    (quota.burst() / CHUNK_PART).max(1)
}

/// How much of a quota may be spent without a report of its own: none of a window's, whose epochs are long.
pub(crate) fn unsaid_of(law: Law, quota: Quota) -> u32 {
    if law == Law::Steady { quota.burst() / UNSAID_PART } else { 0 }
}

/// When a key of a calendar quota must be reported again if its lease ends at `until`.
pub(crate) fn rest_until(until: Time) -> Time {
    Time::from_nanos(until.as_nanos().saturating_sub(REST_NS))
}

impl Wish {
    /// What to say about `watched`, in its state before an epoch that [`Wish::ends`] was ended.
    pub(crate) fn of(&self, watched: &Watched, now: Time) -> Want {
        let is_over = watched.charged == 0 || watched.is_over(now) || self.is_closed(watched);
        if is_over || self.is_spent(watched, now) {
            return Want::Nothing;
        }
        if self.gives_back(watched, now) {
            return Want::Ahead(0);
        }
        if let (Some(in_flight), Some(free)) = (self.in_flight, self.free(watched, now)) {
            return Want::Ahead(in_flight.saturating_add(free));
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

    /// If the fleet counts requests in flight: how many places are to be free beside them. For as long as there are
    /// requests, other POPs would wait for what is free here.
    pub(crate) fn free(&self, watched: &Watched, now: Time) -> Option<u32> {
        let in_flight = self.in_flight?;
        let most = if self.is_seldom_asked() { 0 } else { (in_flight / 2).saturating_add(self.usual_cost) };
        Some(most.max(watched.awaited(self.timeout_ns, now)))
    }

    /// Whether the epoch ends with this report, or has ended.
    pub(crate) fn ends(&self, watched: &Watched, now: Time) -> bool {
        !self.is_closed(watched) && (self.gives_back(watched, now) || watched.is_over(now))
    }

    /// Whether its calendar window has no tokens left. An empty token bucket refills, so its key goes on being paid
    /// for ahead.
    fn is_closed(&self, watched: &Watched) -> bool {
        self.chunk.is_some() && watched.is_barred()
    }

    fn gives_back(&self, watched: &Watched, now: Time) -> bool {
        if self.chunk.is_none() {
            let is_held = self.in_flight.is_some_and(|in_flight| in_flight > 0);
            return self.is_seldom(watched, now) && !is_held && !self.is_spent(watched, now);
        }
        let is_late = rest_until(watched.until) <= now;
        self.is_idle(watched, now) && (is_late || self.is_crowded || watched.on_hand(now) == 0)
    }

    /// Whether it is not worth a lease, and no request waits for one.
    fn is_seldom(&self, watched: &Watched, now: Time) -> bool {
        self.is_seldom_asked() && watched.awaited(self.timeout_ns, now) == 0
    }

    fn is_seldom_asked(&self) -> bool {
        self.asked < AHEAD_MIN * u64::from(self.usual_cost)
    }

    /// Whether nothing is on hand, and so little was spent that the next draw may say it.
    fn is_spent(&self, watched: &Watched, now: Time) -> bool {
        watched.charged <= self.unsaid && watched.on_hand(now) == 0 && self.is_seldom(watched, now)
    }

    fn is_idle(&self, watched: &Watched, now: Time) -> bool {
        self.asked == 0 && watched.awaited(self.timeout_ns, now) == 0
    }
}
