//! A key that is hot or rests, as a region tracks it.

use weir_wire::messages::{AdmitRatio, Grant};
use weir_wire::quota::Quota;
use weir_wire::sharing::Sharing;
use weir_wire::time::{SECOND_NS, Time};

use super::list::HotKey;
use crate::budget::BudgetId;
use crate::clock::RESTING_NS_MAX;
use crate::divide::Division;
use crate::heat::Heat;
use crate::plan::Entry;

/// How soon a region looks at the budget of a key that has come to rest, in nanoseconds, and names it to the other
/// regions. Each time after that takes twice as long, up to [`RESTING_NS_MAX`].
pub const RESTING_NS: u64 = 2 * SECOND_NS;
/// For how long a key counts as reported, in nanoseconds: hot keys are reported every interval.
const REPORTED_NS: u64 = SECOND_NS;
/// A key is forgotten if nobody has seen its account for so long after its turn to be looked at, in nanoseconds.
const LOST_NS: u64 = 10 * SECOND_NS;

/// What is known of a key.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) id: BudgetId,
    pub(super) quota: Quota,
    sharing: Sharing,
    pub(super) division: Division,
    /// When its account was last seen.
    pub(super) at: Time,
    /// When a POP of this region last reported it.
    reported_at: Time,
    /// When it was last seen on the shared list or put there.
    pub(super) listed_at: Time,
    /// How long after `at` it is to be looked at, and after `listed_at` named again, if it rests.
    look_ns: u64,
    /// A short name of the key while it is tracked, as there is a note of it for each POP that holds it. Who came later has a
    /// higher one.
    pub(super) serial: u64,
}

impl Tracked {
    pub(super) fn new(entry: &Entry, division: &Division, serial: u64, now: Time) -> Self {
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

    /// Takes over the newer account of `entry`, unless that is of a quota from the list that POPs here do not have.
    pub(super) fn renew(&mut self, entry: &Entry, division: &Division, now: Time) {
        if entry.is_reported() {
            self.reported_at = now;
        } else if entry.quota != self.quota && self.is_reported(now) {
            return;
        }
        if division.heat == Heat::Hot {
            self.look_ns = RESTING_NS;
        } else if self.is_to_be_looked_at(now) {
            self.look_ns = (2 * self.look_ns).min(RESTING_NS_MAX);
        }
        (self.quota, self.division, self.at) = (entry.quota, *division, now);
        self.sharing.clone_from(&entry.sharing);
    }

    /// Whether its POPs thin no requests out: each admits what its bucket holds.
    pub(super) fn is_open(&self) -> bool {
        self.division.is_alone || self.division.elsewhere.ratio == AdmitRatio::ONE
    }

    /// Whether nobody asks for it.
    fn rests(&self) -> bool {
        self.division.heat != Heat::Hot
    }

    /// Whether a POP of this region reported it of late: its quota is that of its rule.
    pub(super) fn is_reported(&self, now: Time) -> bool {
        now.nanos_since(self.reported_at) < REPORTED_NS
    }

    /// Whether the other regions have to hear of it now: if it is hot, because POPs here report it; if it rests, because
    /// nobody has named it for a while. If a region named hot keys that it only knows from the list, they would stay
    /// there for ever, with a quota that no POP has any more.
    pub(super) fn is_to_be_named(&self, now: Time) -> bool {
        let is_due = now.nanos_since(self.listed_at) >= self.look_ns && !self.is_lost(now);
        if self.rests() { is_due } else { self.is_reported(now) }
    }

    /// Whether nobody has seen its account for so long that its time to be looked at has come.
    pub(super) fn is_to_be_looked_at(&self, now: Time) -> bool {
        now.nanos_since(self.at) >= self.look_ns
    }

    /// Whether nobody has seen its account for so long that POPs are no longer told of it.
    pub(super) fn is_lost(&self, now: Time) -> bool {
        now.nanos_since(self.at) >= self.look_ns + LOST_NS
    }

    /// What POPs without requests for the key are to hold at `now`, with what has refilled since the account was seen.
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
