//! Tokens that a worker has withdrawn from a key's bucket for its next requests: a prefetch.
//!
//! **No prefetch makes a bucket give more than burst + rate x t.** A bucket is the time at which it is full again
//! ([`crate::buckets`]), and what is taken from it moves that on. So a prefetch is a stretch of that time, from `paid` to `until`, and
//! ends where the bucket was left. Each request that it pays for moves `paid` on as it would have moved the bucket: to
//! now, if that is later, since a full bucket gains nothing, and then by what it costs. The stretches of all workers' prefetches of
//! one bucket do not overlap, and end where the bucket is full or before. So what the bucket and all prefetches have is a
//! burst at most at any time, and grows by the rate at most.
//!
//! A prefetch holds the tokens that its client is likely to ask for while it lasts, and its stretch is as much longer: so
//! none of these lapses before its time. When its client comes to the table again, what was not spent goes back, unless somebody
//! else has taken from the bucket since.
//!
//! **The fleet hears of what was spent, and of nothing else.** A budget takes no count back, so of a watched key only spent
//! tokens are counted, as the worker spends them: on its watch list, and in the key's entry with the next report. An even
//! share, of which nobody hears, gives what is withdrawn.

use crate::buckets::{Bucket, Take};
use crate::table::slot::{Cold, Entry, Unheard};
use weir_wire::quota::Quota;
use weir_wire::sharing::Sharing;
use weir_wire::time::{SECOND_NS, Time};

/// A bucket that would lack more than one part in so many gives nothing in advance.
const LACKS_PART: u64 = 4;
/// The longest that a bucket takes to gain what a prefetch has, in nanoseconds: a client that stays away has lost no more.
const REFILLS_NS_MAX: u64 = SECOND_NS;
/// The most requests that a prefetch pays for.
const REQUESTS_MAX: u64 = 16;

/// What a rule's requests take from a bucket, for prefetches.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) quota: &'a Quota,
    /// The most that the bucket holds.
    pub(crate) burst: u32,
    pub(crate) cost: u32,
}

impl Terms<'_> {
    fn cost_ns(&self) -> u64 {
        self.quota.token_ns().saturating_mul(u64::from(self.cost)).max(1)
    }

    /// How long the bucket takes to fill, in nanoseconds.
    fn fill_ns(&self) -> u64 {
        self.quota.token_ns().saturating_mul(u64::from(self.burst))
    }

    /// For how long a prefetch is believed, in nanoseconds.
    fn lasts_ns(&self) -> u64 {
        Sharing::prefetch_ns(*self.quota, self.burst)
    }
}

/// A prefetch; an empty one shows when its client last came to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefetch {
    /// What the bucket would be if only what was paid for had been taken.
    paid: Bucket,
    /// What the withdrawal left of it.
    until: Bucket,
    made_at: Time,
    ends_at: Time,
    /// Requests that it can still pay for.
    left: u32,
    /// Requests that it has paid for.
    spent: u32,
    /// Whether an even share gave its tokens, so that they are counted before they are spent.
    of_share: bool,
}

impl Prefetch {
    /// An empty one of a client that left the bucket so.
    pub(crate) fn empty(after: Bucket, now: Time) -> Self {
        Self { paid: after, until: after, made_at: now, ends_at: now, left: 0, spent: 0, of_share: true }
    }

    /// Withdraws from `entry`, which a request has just been charged to, what its client is likely to ask for next, if the
    /// `last` prefetch says that it comes often.
    pub(crate) fn withdraw(
        last: Option<Self>,
        entry: &mut Entry,
        terms: &Terms<'_>,
        unheard: Option<&Unheard>,
        now: Time,
    ) -> Self {
        let none = Self::empty(entry.bucket(), now);
        let Some(last) = last else { return none };
        let withheld_ns = terms.quota.fill_ns().saturating_sub(terms.fill_ns());
        let lacks_ns = none.paid.fill_ns(now).saturating_sub(withheld_ns).saturating_add(terms.lasts_ns());
        let room_ns = (terms.fill_ns() / LACKS_PART).saturating_sub(lacks_ns);
        let n = last.expects(terms.lasts_ns(), now).min(room_ns.min(REFILLS_NS_MAX) / terms.cost_ns());
        let Some(n) = u32::try_from(n).ok().filter(|n| *n > 0) else { return none };
        let tokens = n.saturating_mul(terms.cost);
        let stretch_ns = terms.lasts_ns() + terms.cost_ns().saturating_mul(u64::from(n));
        let until = Bucket::full_at(none.paid.refilled().max(now) + stretch_ns);
        match entry {
            Entry::Cold(cold) => {
                let share = match unheard {
                    None => Some(cold.share),
                    Some(Unheard { quota, parts, .. }) => cold.share.take(quota, tokens, *parts, now),
                };
                let Some(share) = share else { return none };
                *cold = Cold { bucket: until, share };
            }
            Entry::Watched(watched) => {
                if now < watched.until {
                    return none;
                }
                watched.bucket = until;
            }
        }
        let of_share = matches!(entry, Entry::Cold(_));
        Self { until, ends_at: now + terms.lasts_ns(), left: n, of_share, ..none }
    }

    /// How many requests to expect in `lasts_ns` from `now` on: as many as came in that time since it was made, but not many more
    /// than that were in all.
    fn expects(&self, lasts_ns: u64, now: Time) -> u64 {
        let came = u64::from(self.spent) + 1;
        let pace = came.saturating_mul(lasts_ns) / now.nanos_since(self.made_at).max(1);
        pace.min(2 * came).min(REQUESTS_MAX)
    }

    /// Gives back to `entry` what it has not paid for, unless somebody else has taken from the bucket since.
    pub(crate) fn give_back(&self, entry: &mut Entry, cost: u32) {
        if entry.bucket() != self.until {
            return;
        }
        *entry.bucket_mut() = self.paid;
        if let Entry::Cold(cold) = entry {
            cold.share = cold.share.give_back(self.left.saturating_mul(cost));
        }
    }

    /// The bucket after it pays for one more request; none if it has too little left.
    pub(crate) fn pay(&mut self, terms: &Terms<'_>, now: Time) -> Option<Bucket> {
        let held = self.paid.held_to(terms.quota, terms.burst, now);
        let Take::Taken(paid) = held.take(terms.quota, terms.cost, now) else { return None };
        self.left = self.left.checked_sub(1).filter(|_| paid <= self.until)?;
        (self.paid, self.spent) = (paid, self.spent + 1);
        Some(paid)
    }

    /// Requests that it can still pay for, or was not asked to.
    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// Whether an even share gave its tokens; if not, each is to be counted as it is spent.
    pub(crate) fn is_of_share(&self) -> bool {
        self.of_share
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    pub(crate) fn ends_at(&self) -> Time {
        self.ends_at
    }
}
