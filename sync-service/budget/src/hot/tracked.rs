//! A hot or resting key, as a region tracks it.

use weir_protocol::messages::{AdmitRatio, Grant};
use weir_protocol::quota::Quota;
use weir_protocol::sharing::Sharing;
use weir_protocol::time::{SECOND_NS, Time};

use super::list::HotKey;
use crate::budget::BudgetId;
use crate::divide::{Division, WatchLevel};
use crate::plan::PlanEntry;

/// Interval after which a region first reads the budget of a key that has come to rest, in nanoseconds, and
/// lists the key for the other regions. The interval doubles each time, up to [`RESTING_NS_MAX`].
pub const RESTING_NS: u64 = 2 * SECOND_NS;
/// Longest such interval, in nanoseconds.
pub const RESTING_NS_MAX: u64 = 32 * SECOND_NS;
/// Time for which a key counts as reported, in nanoseconds: hot keys are reported every interval.
const REPORTED_NS: u64 = SECOND_NS;
/// Time without a new account after its budget was due to be read, in nanoseconds, until a key is forgotten.
const LOST_NS: u64 = 10 * SECOND_NS;

/// State of a key.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) id: BudgetId,
    pub(super) quota: Quota,
    sharing: Sharing,
    pub(super) division: Division,
    /// Time of its last account.
    pub(super) at: Time,
    /// Time of the last report of it from a POP of this region.
    reported_at: Time,
    /// Time at which it was last seen on the shared list or added to it.
    pub(super) listed_at: Time,
    /// Interval after `at` at which its budget is read, and after `listed_at` at which it is listed again if it
    /// rests.
    look_ns: u64,
    /// Short name of the key while it is tracked, since it is recorded for each POP that holds the key. Later keys
    /// have higher ones.
    pub(super) serial: u64,
}

impl Tracked {
    pub(super) fn new(entry: &PlanEntry, division: &Division, serial: u64, now: Time) -> Self {
        let mut new = Self {
            id: entry.id.clone(),
            quota: entry.quota,
            sharing: entry.sharing.clone(),
            division: *division,
            at: now,
            reported_at: Time::ZERO,
            listed_at: Time::ZERO,
            look_ns: RESTING_NS,
            serial,
        };
        new.renew(entry, division, now);
        new
    }

    /// Updates the key from the newer account of `entry`, unless that has a quota from the list that POPs here
    /// do not report.
    pub(super) fn renew(&mut self, entry: &PlanEntry, division: &Division, now: Time) {
        if entry.is_reported() {
            self.reported_at = now;
        } else if entry.quota != self.quota && self.is_reported(now) {
            return;
        }
        if division.watch_level == WatchLevel::Hot {
            self.look_ns = RESTING_NS;
        } else if self.is_to_be_looked_at(now) {
            self.look_ns = (2 * self.look_ns).min(RESTING_NS_MAX);
        }
        (self.quota, self.division, self.at) = (entry.quota, *division, now);
        self.sharing.clone_from(&entry.sharing);
    }

    /// True if its POPs refuse no requests by ratio: each admits the content of its bucket.
    pub(super) fn is_open(&self) -> bool {
        self.division.is_single_pop || self.division.elsewhere.ratio == AdmitRatio::ONE
    }

    /// True if it has no demand.
    fn rests(&self) -> bool {
        self.division.watch_level != WatchLevel::Hot
    }

    /// True if a POP of this region reported it recently; its quota is then its rule's.
    pub(super) fn is_reported(&self, now: Time) -> bool {
        now.nanos_since(self.reported_at) < REPORTED_NS
    }

    /// True if it has to be listed for the other regions now: a hot key if POPs here report it, a resting one
    /// if no region has listed it for a while. Hot keys known only from the list are not listed again: they
    /// would stay there for ever, with a quota that no POP has any more.
    pub(super) fn is_to_be_named(&self, now: Time) -> bool {
        let is_due = now.nanos_since(self.listed_at) >= self.look_ns && !self.is_lost(now);
        if self.rests() { is_due } else { self.is_reported(now) }
    }

    /// True if its last account is old enough for its budget to be read.
    pub(super) fn is_to_be_looked_at(&self, now: Time) -> bool {
        now.nanos_since(self.at) >= self.look_ns
    }

    /// True if its last account is too old to push grants.
    pub(super) fn is_lost(&self, now: Time) -> bool {
        now.nanos_since(self.at) >= self.look_ns + LOST_NS
    }

    /// Grant at `now` for POPs without demand for the key, including the refill since the account.
    pub(super) fn grant(&self, now: Time) -> Grant {
        let grant = self.division.elsewhere;
        let refilled = self.quota.refill_micro(now.nanos_since(self.at)) / 1_000;
        let level_milli = grant.level_milli.saturating_add(i64::try_from(refilled).unwrap_or(i64::MAX));
        Grant { level_milli, ..grant }
    }

    pub(super) fn named(&self) -> HotKey {
        let rests = self.rests();
        let rank = if rests { 0 } else { self.division.weight.rank() };
        HotKey { id: self.id.clone(), quota: self.quota, sharing: self.sharing.clone(), rests, rank }
    }
}
