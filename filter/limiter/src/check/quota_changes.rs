//! Changes of a rule's quota. A client keeps the part of a burst that it has left, and the grant that it holds.

use alloc::vec::Vec;
use core::cell::Cell;

use crate::algorithms::{Bucket, deepest_ns};
use crate::table::slot::{Entry, Placement, Slot, Tag};
use weir_protocol::quota::Quota;
use weir_protocol::time::Time;

/// Most changes over which a client's level is carried, if the client had no request in between.
const CHANGES_MAX: usize = 4;

/// A token bucket's quota, and those that its rule had before.
pub(crate) struct QuotaChanges {
    /// Salt of the rule with this quota.
    salt: u64,
    quota: Quota,
    /// The rule before each change, the latest first.
    before: Vec<Before>,
    /// Number of these changes since the rule last had this quota; 0 if it had not. A bucket may have a place from that
    /// time.
    returned_after: usize,
}

/// A rule before its quota changed.
#[derive(Clone)]
struct Before {
    salt: u64,
    quota: Quota,
    /// Time of the first request since the change; zero until then. What a bucket lacked then refills at the new rate.
    at: Cell<Time>,
    /// True once no bucket lacks anything from before the change any more.
    is_over: bool,
    /// [`QuotaChanges::returned_after`] at that time.
    returned_after: usize,
}

impl Before {
    fn since(&self, now: Time) -> Time {
        if self.at.get() == Time::ZERO {
            self.at.set(now);
        }
        self.at.get()
    }

    /// Time that `ns` of refill before the change take under `quota`: the same part of a burst. For a larger burst,
    /// debt beyond one burst keeps its tokens instead, as in the fleet's budget. Never more than a bucket may lack.
    fn scaled_ns(&self, ns: u64, quota: &Quota) -> u64 {
        let scaled = |ns: u64, to: u64, from: u64| u128::from(ns) * u128::from(to) / u128::from(from.max(1));
        let burst_ns = if quota.burst() > self.quota.burst() { ns.min(self.quota.fill_ns()) } else { ns };
        let of_burst = scaled(burst_ns, quota.fill_ns(), self.quota.fill_ns());
        let of_debt = scaled(ns - burst_ns, quota.token_ns(), self.quota.token_ns());
        u64::try_from(of_burst + of_debt).unwrap_or(u64::MAX).min(deepest_ns(quota))
    }

    /// A bucket under `quota` that lacks what `bucket` lacked at the change.
    fn carried(&self, bucket: Bucket, quota: &Quota, now: Time) -> Bucket {
        let at = self.since(now);
        Bucket::full_at(at + self.scaled_ns(bucket.fill_ns(at), quota))
    }
}

impl QuotaChanges {
    pub(super) fn none(salt: u64, quota: Quota) -> Self {
        Self { salt, quota, before: Vec::new(), returned_after: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.before.is_empty()
    }

    /// Records that the rule had the quota of `other` before.
    pub(super) fn follow(&mut self, other: &Self) {
        self.before.clone_from(&other.before);
        if self.salt == other.salt {
            self.returned_after = other.returned_after;
            return;
        }
        let Self { salt, quota, returned_after, .. } = *other;
        self.before.insert(0, Before { salt, quota, at: Cell::new(Time::ZERO), is_over: false, returned_after });
        if let Some(same) = self.before.iter().position(|before| before.salt == self.salt) {
            self.before.remove(same);
            self.returned_after = same;
            for (at, before) in self.before.iter_mut().enumerate().take(same) {
                before.returned_after -= usize::from(at + before.returned_after >= same);
            }
        }
        self.before.truncate(CHANGES_MAX);
    }

    /// Ends the changes from which no bucket lacks anything any more.
    pub(super) fn end(&mut self, now: Time) {
        for before in &mut self.before {
            let longest_ns = before.scaled_ns(deepest_ns(&before.quota), &self.quota);
            before.is_over |= now.nanos_since(before.since(now)) >= longest_ns;
        }
    }

    /// The tags that the key `tag` had before each change.
    pub(crate) fn tags_before(&self, tag: Tag) -> impl Iterator<Item = Tag> {
        self.before.iter().map(move |before| tag.under(self.salt, before.salt))
    }

    /// True if the bucket of a key may be from before a change that is not over yet.
    pub(super) fn have_returned(&self) -> bool {
        self.before.iter().take(self.returned_after).any(|before| !before.is_over)
    }

    /// Charges a key for what its bucket lacked when the quota changed since. A key without a grant keeps the one that
    /// it had until the next one, for the same part of the rate.
    pub(super) fn carry_over(&self, placement: &mut Placement, slot: &Slot, now: Time) {
        let mut changes = if placement.has_place() { self.returned_after } else { self.before.len() };
        let mut is_found = placement.has_place();
        for (at, before) in self.before.iter().enumerate().filter(|(_, before)| !before.is_over) {
            if at >= changes {
                break;
            }
            let known = slot.find_or_new(placement.tag.under(self.salt, before.salt), now);
            let bucket = if known.has_place() { known.entry.bucket() } else { known.owed };
            placement.owe(before.carried(bucket, &self.quota, now));
            if !known.has_place() {
                continue;
            }
            // A place is not changed under other quotas, so it may be older than the quotas between.
            changes = changes.min(at + 1 + before.returned_after);
            // The counts of an entry stay its own.
            if let (false, Entry::Watched(watched)) = (is_found, known.entry)
                && let Some(going_on) = watched.under(&self.quota, &before.quota, placement.entry.bucket(), now)
            {
                placement.entry = Entry::Watched(going_on);
            }
            is_found = true;
        }
    }
}
