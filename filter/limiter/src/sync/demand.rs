//! Tokens that a report wants for a strict rule's key: some in advance of its requests, or to give back the
//! rest.
//!
//! Under a token bucket, only a key in frequent demand is worth a lease. A token that is not used soon is
//! given back, and the next request waits for its own. The next call for tokens states how many were spent.
//! Until then, or until the lease ends, that part of the burst does not refill, so only a small part may go
//! unreported. A calendar quota has long leases, and a POP keeps a small part of it while the key is asked
//! for at all, so that a steady client rarely waits. That part is given back shortly before the lease ends,
//! if the key was not asked for.

use alloc::vec::Vec;

use crate::RuleIndex;
use crate::table::slot::{Tag, Watched};
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::{GIVEN_BACK_S, RefillPolicy};
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::key::KeyValue;

/// Demand between two reports, in requests, from which a strict rule's key acquires tokens in advance. Below
/// that, tokens that expire unused would cost more than the waits they save.
pub(super) const AHEAD_MIN: u64 = 4;
/// Default time between two reports, in nanoseconds.
pub(super) const INTERVAL_NS: u64 = SECOND_NS / 4;
/// A key in demand holds one part in this many of its calendar quota, but at least one token.
const CHUNK_PART: u32 = 1_000;
/// One part in this many of a token bucket's burst may be spent without a report of its own.
const UNREPORTED_PART: u32 = 64;
/// Time before the end of the lease at which tokens of a calendar quota are given back, in nanoseconds.
const REST_NS: u64 = GIVEN_BACK_S * SECOND_NS;

/// The demand for a strict rule's key, and the limits for what it may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Demand in tokens that no answered report contained. For a calendar quota, no answered call for tokens
    /// either, because the acquired tokens are held already.
    pub(crate) asked: u64,
    /// Tokens that a request costs if it does not state its cost.
    pub(crate) usual_cost: u32,
    /// True if the worker has too many keys to hold tokens for one without demand.
    pub(crate) is_crowded: bool,
    /// Tokens to hold of a calendar quota; none for other rules.
    pub(crate) chunk: Option<u32>,
    /// Tokens of a token bucket that may be spent without a report of their own.
    pub(crate) unreported: u32,
    /// Number of this POP's requests in flight, if the fleet counts them.
    pub(crate) in_flight: Option<u32>,
    /// Time-out of a request that waits, in nanoseconds.
    pub(crate) timeout_ns: u64,
}

/// Content of a report about a strict rule's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Nothing, because the key holds nothing. A POP that needs a token acquires it.
    Nothing,
    /// Nothing before this time, unless the key is asked for.
    Later(Time),
    /// The key wants this many tokens beyond those it spent. 0 gives back the rest of its epoch, which has
    /// ended here.
    Ahead(u32),
}

/// Tokens to hold of a calendar quota.
pub(crate) fn chunk_of(quota: Quota) -> u32 {
    (quota.burst() / CHUNK_PART).max(1)
}

/// Tokens that may be spent without a report of their own: none under windows, whose epochs are long.
pub(crate) fn unreported_of(refill_policy: RefillPolicy, quota: Quota) -> u32 {
    if refill_policy == RefillPolicy::Continuous { quota.burst() / UNREPORTED_PART } else { 0 }
}

/// Time at which a key of a calendar quota must be reported again, if its lease ends at `until`.
pub(crate) fn rest_until(until: Time) -> Time {
    Time::from_nanos(until.as_nanos().saturating_sub(REST_NS))
}

impl Wish {
    /// The want for a key in the state `watched`, as it was before an epoch that [`Wish::ends`] was ended.
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

    /// Number of places to keep free beside the requests in flight, if the fleet counts them. They are few,
    /// because other POPs may be waiting for the places that are free here.
    pub(crate) fn free(&self, watched: &Watched, now: Time) -> Option<u32> {
        let in_flight = self.in_flight?;
        let most = if self.is_seldom_asked() { 0 } else { (in_flight / 2).saturating_add(self.usual_cost) };
        Some(most.max(watched.awaited(self.timeout_ns, now)))
    }

    /// True if the epoch ends with this report, or has ended.
    pub(crate) fn ends(&self, watched: &Watched, now: Time) -> bool {
        !self.is_closed(watched) && (self.gives_back(watched, now) || watched.is_over(now))
    }

    /// True if the calendar window has no tokens left. An empty token bucket refills, so its key still
    /// acquires in advance.
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

    /// True if the key is not worth a lease, and no request waits for one.
    fn is_seldom(&self, watched: &Watched, now: Time) -> bool {
        self.is_seldom_asked() && watched.awaited(self.timeout_ns, now) == 0
    }

    fn is_seldom_asked(&self) -> bool {
        self.asked < AHEAD_MIN * u64::from(self.usual_cost)
    }

    /// True if no tokens are held, and few enough were spent that the next call for tokens may report them.
    fn is_spent(&self, watched: &Watched, now: Time) -> bool {
        watched.charged <= self.unreported && watched.on_hand(now) == 0 && self.is_seldom(watched, now)
    }

    fn is_idle(&self, watched: &Watched, now: Time) -> bool {
        self.asked == 0 && watched.awaited(self.timeout_ns, now) == 0
    }
}

/// Number of keys for which recent use is remembered.
const KEYS: usize = 4_096;
/// Time after a lease in which the key gets another one, in nanoseconds.
const LEASED_NS: u64 = SECOND_NS;

/// Tokens that a request consumes from the budget, all or none.
#[derive(Clone, Debug)]
pub struct Consume {
    /// Index of the rule in the rules in force.
    pub rule: RuleIndex,
    /// The key.
    pub value: KeyValue,
    /// The number of tokens.
    pub tokens: u32,
    /// Tag of the key's entry.
    pub(crate) tag: Tag,
}

/// A budget's answer to a [`Consume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumeReply {
    /// True if all tokens were debited.
    pub is_taken: bool,
    /// Tokens left in the budget.
    pub left: u32,
    /// Milliseconds until the missing tokens may be there; 0 if unknown.
    pub wait_ms: u64,
}

/// A worker's state for consuming from budgets.
pub(crate) struct ConsumeState {
    recent: Vec<Recent>,
}

/// A key that consumed recently. Two keys with the same place displace each other, and then count as rarely
/// used.
#[derive(Clone, Copy, Default)]
pub(super) struct Recent {
    tag: u64,
    /// Start of the current interval, and the number of requests in it.
    since: Time,
    count: u64,
    leased_at: Option<Time>,
    pub(super) is_low: bool,
}

impl Default for ConsumeState {
    fn default() -> Self {
        Self { recent: alloc::vec![Recent::default(); KEYS] }
    }
}

impl ConsumeState {
    pub(super) fn recent(&mut self, tag: Tag) -> Option<&mut Recent> {
        let place = usize::try_from(tag.bits() % KEYS as u64).unwrap_or_default();
        let recent = self.recent.get_mut(place)?;
        if recent.tag != tag.bits() {
            *recent = Recent { tag: tag.bits(), ..Recent::default() };
        }
        Some(recent)
    }
}

impl Recent {
    /// Counts one more request. Returns true if the key is asked for often enough to be worth a lease.
    pub(super) fn is_often(&mut self, now: Time) -> bool {
        if self.count == 0 || now.nanos_since(self.since) >= INTERVAL_NS {
            (self.since, self.count) = (now, 0);
        }
        self.count += 1;
        let had_lease = self.leased_at.is_some_and(|at| now.nanos_since(at) < LEASED_NS);
        let is_often = !self.is_low && (self.count > AHEAD_MIN || had_lease);
        if is_often {
            self.leased_at = Some(now);
        }
        is_often
    }
}
