//! A key that is hot or rests, as a region knows it.

use weir_wire::messages::{AdmitRatio, Grant};
use weir_wire::quota::Quota;
use weir_wire::sharing::Sharing;
use weir_wire::time::{SECOND_NS, Time};

use super::list::HotKey;
use crate::budget::BudgetId;
use crate::clock::RESTING_NS_MAX;
use crate::divide::Division;
use crate::heat::Weight;
use crate::plan::Entry;

/// A hot key that no account confirms for so long, in nanoseconds, is not pushed any more.
pub(super) const HOT_NS: u64 = SECOND_NS;
/// The same for a key that rests, counted from its turn to be looked at.
const RESTING_LOST_NS: u64 = 10 * SECOND_NS;

/// What is known of a key.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) quota: Quota,
    pub(super) sharing: Sharing,
    /// What POPs without requests for the key hold.
    pub(super) grant: Grant,
    /// Whether at most one POP is asked for it.
    pub(super) is_alone: bool,
    /// When its account was last seen.
    pub(super) at: Time,
    /// When a POP of this region last reported it.
    pub(super) reported_at: Time,
    /// When it was last seen on the shared list or put there.
    pub(super) listed_at: Time,
    /// How long after `at` it is to be looked at, and after `listed_at` named again, if it rests.
    pub(super) look_ns: u64,
    pub(super) weight: Weight,
    /// A short name of the key while it is kept, as there is a note of it for each POP that holds it.
    pub(super) serial: u64,
}

impl Known {
    /// Whether its POPs thin no requests out: each admits what its bucket holds.
    pub(super) fn is_open(&self) -> bool {
        self.is_alone || self.grant.ratio == AdmitRatio::ONE
    }

    /// Whether a POP of this region reported it of late: its quota is that of its rule.
    pub(super) fn is_reported(&self, now: Time) -> bool {
        now.nanos_since(self.reported_at) < HOT_NS
    }

    /// Takes over the newer account of `entry`, unless that is of a quota from the list that POPs here do not have.
    pub(super) fn renew(&mut self, entry: &Entry, division: &Division, now: Time) {
        let (quota, sharing) = (entry.quota, &entry.sharing);
        if entry.is_reported() {
            self.reported_at = now;
        } else if quota != self.quota && self.is_reported(now) {
            return;
        }
        if now.nanos_since(self.at) >= self.look_ns {
            self.look_ns = (2 * self.look_ns).min(RESTING_NS_MAX);
        }
        (self.quota, self.grant, self.weight, self.at) = (quota, division.elsewhere, division.weight, now);
        self.is_alone = division.is_alone;
        if self.sharing != *sharing {
            self.sharing.clone_from(sharing);
        }
    }

    /// After how long without an account POPs are no longer told of it.
    pub(super) fn lost_ns(&self, is_hot: bool) -> u64 {
        if is_hot { HOT_NS } else { self.look_ns + RESTING_LOST_NS }
    }

    /// What POPs are to hold at `now`, with what has refilled since the account was seen.
    pub(super) fn refilled(&self, now: Time) -> Grant {
        let refilled = self.quota.refill_micro(now.nanos_since(self.at)) / 1_000;
        let level_milli = self.grant.level_milli.saturating_add(i64::try_from(refilled).unwrap_or(i64::MAX));
        Grant { level_milli, ..self.grant }
    }

    pub(super) fn named(&self, id: &BudgetId, rests: bool) -> HotKey {
        let rank = if rests { 0 } else { self.weight.rank() };
        HotKey { id: id.clone(), quota: self.quota, sharing: self.sharing.clone(), rests, rank }
    }
}
