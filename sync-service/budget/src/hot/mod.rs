//! Hot keys of a region, and the POPs that have to be sent grants for them.
//!
//! A key is hot when its demand is a large part of its quota, or its level has fallen: then every POP must hold a grant
//! before its client arrives there. Regions exchange hot keys through the store ([`HotList`]), and push grants with the
//! next replies. A key rests when it has no demand, and its budget is far from full or has a remembered fan-out: its
//! grants are pushed less often, and its budget is read at growing intervals, or at once when another region lists it.

mod held_grants;
mod list;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_protocol::messages::{AdmitRatio, Grant, KEYS_MAX, PushedGrant, RULES_MAX, Report};
use weir_protocol::quota::Quota;
use weir_protocol::sharing::Sharing;
use weir_protocol::time::{SECOND_NS, Time};

use crate::budget::{BudgetId, PlanEntry};
use crate::divide::{Division, WatchLevel};
use crate::id::ByBudget;
use crate::push::{PushStates, index_of};

pub use crate::divide::RANK_MAX;
use held_grants::HeldGrants;
pub use held_grants::PUSH_BYTES_PER_S;
pub use list::{HOT_MAX, HotKey, HotList, LISTED_MS};

/// Number of keys from which the one to replace is chosen.
const NEIGHBOURS_MAX: usize = 8;
/// Maximum number of resting keys whose budgets are read together; all get their turn within [`RESTING_NS`].
const RESTING_PEEKS_MAX: usize = HOT_MAX / 8;

/// Hot and resting keys of a region, and the grants of them that its POPs hold.
#[derive(Debug, Default)]
pub struct HotKeys {
    /// By serial number: in the order of arrival.
    tracked: BTreeMap<u64, Tracked>,
    serials: ByBudget<u64>,
    sent: PushStates<HeldGrants>,
    swept_at: Time,
    pub dropped: u64,
    serial: u64,
    /// Serial number from which the search for the next key to replace starts.
    next_leaving: u64,
}

impl HotKeys {
    /// Updates a key from its budget's newest account: a hot or resting key is kept, a warm one dropped.
    pub fn record(&mut self, entry: &PlanEntry, division: &Division, now: Time) {
        if division.watch_level == WatchLevel::Warm {
            self.forget(&entry.id);
        } else if let Some(known) = self.get_mut(&entry.id) {
            known.renew(entry, division, now);
        } else if self.tracked.len() < HOT_MAX || self.make_room(division) {
            self.serial += 1;
            self.serials.insert(entry.id.clone(), self.serial);
            self.tracked.insert(self.serial, Tracked::new(entry, division, self.serial, now));
        }
    }

    fn get(&self, id: &BudgetId) -> Option<&Tracked> {
        self.tracked.get(self.serials.get(id)?)
    }

    fn get_mut(&mut self, id: &BudgetId) -> Option<&mut Tracked> {
        self.tracked.get_mut(self.serials.get(id)?)
    }

    /// Drops the least important of a few keys, different ones each time; returns false if none is below the newcomer.
    fn make_room(&mut self, newcomer: &Division) -> bool {
        self.dropped += 1;
        let from = self.next_leaving;
        let next = self.tracked.range(from..).chain(self.tracked.range(..from)).take(NEIGHBOURS_MAX);
        let next = next.inspect(|(serial, _)| self.next_leaving = *serial + 1);
        let least = next.min_by_key(|(_, known)| known.division.importance());
        let least = least.filter(|(_, known)| known.division.importance() < newcomer.importance());
        let least = least.map(|(_, known)| known.id.clone());
        least.inspect(|least| self.forget(least)).is_some()
    }

    /// Drops a key, whose budget is full again. POPs need not be notified: they forget it as well.
    pub fn forget(&mut self, id: &BudgetId) {
        if let Some(serial) = self.serials.remove(id) {
            self.tracked.remove(&serial);
        }
    }

    /// Number of grants that POPs were sent and still hold; at most [`crate::push::SENT_MAX`].
    pub fn sent_len(&self) -> usize {
        self.sent.len()
    }

    /// Keys to add to the list that regions share; [`HotKeys::are_listed`] confirms them.
    pub fn to_list(&self, now: Time) -> Vec<HotKey> {
        self.tracked.values().filter(|known| known.is_to_be_named(now)).map(Tracked::named).collect()
    }

    pub fn are_listed(&mut self, now: Time, keys: &[HotKey]) {
        for key in keys {
            if let Some(known) = self.get_mut(&key.id) {
                known.listed_at = now;
            }
        }
    }

    /// Keys whose budgets have to be read: hot keys of the fleet if their accounts are older than `age_ns`, and
    /// resting keys of this region at their intervals.
    pub fn to_look_at(&mut self, now: Time, fleet: &[HotKey], age_ns: u64) -> Vec<HotKey> {
        self.are_listed(now, fleet);
        let mut unseen = Vec::new();
        for key in fleet {
            match self.get(&key.id) {
                // A key that rests elsewhere is nothing new to a region that has it.
                Some(known) if key.rests || now.nanos_since(known.at) < age_ns => {}
                // The quota that POPs here report is newer.
                Some(known) if known.is_reported(now) => unseen.push(known.named()),
                _ => unseen.push(key.clone()),
            }
        }
        let due = self.tracked.values().filter(|known| known.is_to_be_looked_at(now));
        unseen.extend(due.take(RESTING_PEEKS_MAX).map(Tracked::named));
        unseen
    }

    /// Rule names and grants to push to the sender of `report`, for keys other than those it `asked` for. A key that
    /// its POP has demand for is left out while all requests are let through: the last reply for it is more precise.
    pub fn pushes<'a>(
        &mut self,
        now: Time,
        report: &Report,
        is_repeated: bool,
        asked: impl Iterator<Item = &'a BudgetId>,
        is_asked: impl Fn(&BudgetId) -> bool,
    ) -> (Vec<String>, Vec<PushedGrant>) {
        self.sweep(now);
        let mut serials = Vec::with_capacity(report.keys.len());
        serials.extend(asked.filter_map(|id| self.serials.get(id)));
        serials.sort_unstable();
        let mut asked = serials.into_iter().peekable();
        let known = self
            .tracked
            .values()
            .filter(|known| {
                while asked.next_if(|serial| *serial < known.serial).is_some() {}
                asked.peek() != Some(&known.serial)
            })
            .filter(|known| !(known.is_lost(now) || known.is_open() && is_asked(&known.id)));
        let due = self.sent.push(now, report, is_repeated, |held| {
            let version = report.running.version;
            let due = held.due(version, known, now);
            let letter: Vec<_> = due.iter().map(|known| (version, known.serial)).collect();
            (due, Some(letter).filter(|letter| !letter.is_empty()))
        });
        let (mut rules, mut pushed) = (Vec::new(), Vec::new());
        for known in due {
            // There is room for the rule of every pushed key.
            const { assert!(KEYS_MAX <= RULES_MAX) };
            let Some(rule) = index_of(&known.id.rule, &mut rules) else { break };
            let (value, quota, grant) = (known.id.value.clone(), known.quota, known.grant(now));
            pushed.push(PushedGrant { rule, value, quota, grant });
        }
        (rules, pushed)
    }

    /// Forgets keys without a recent account, at most once a second.
    fn sweep(&mut self, now: Time) {
        if now.nanos_since(self.swept_at) < SECOND_NS {
            return;
        }
        self.swept_at = now;
        let serials = &mut self.serials;
        self.tracked.retain(|_, known| {
            let is_lost = known.is_lost(now);
            if is_lost {
                serials.remove(&known.id);
            }
            !is_lost
        });
        self.sent.sweep(now, |held| held.sweep(now));
    }
}

/// Interval after which a region first reads and lists a key that has come to rest, in nanoseconds; doubles each time.
pub const RESTING_NS: u64 = 2 * SECOND_NS;
pub const RESTING_NS_MAX: u64 = 32 * SECOND_NS;
/// Time for which a key counts as reported, in nanoseconds: hot keys are reported every interval.
const REPORTED_NS: u64 = SECOND_NS;
/// Time after which a key without a new account is forgotten, in nanoseconds since its budget was due to be read.
const LOST_NS: u64 = 10 * SECOND_NS;

#[derive(Clone, Debug)]
struct Tracked {
    id: BudgetId,
    quota: Quota,
    sharing: Sharing,
    division: Division,
    at: Time,
    /// Time of the last report of it from a POP of this region.
    reported_at: Time,
    /// Time at which it was last seen on the shared list or added to it.
    listed_at: Time,
    /// Interval after `at` at which its budget is read, and after `listed_at` at which it is listed again if it rests.
    look_ns: u64,
    /// Number of the key in the records of sent grants; later keys have higher ones.
    serial: u64,
}

impl Tracked {
    fn new(entry: &PlanEntry, division: &Division, serial: u64, now: Time) -> Self {
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

    /// Updates the key from the newer account of `entry`, unless that has a quota from the list and POPs here report
    /// another one.
    fn renew(&mut self, entry: &PlanEntry, division: &Division, now: Time) {
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
    fn is_open(&self) -> bool {
        self.division.is_single_pop || self.division.elsewhere.ratio == AdmitRatio::ONE
    }

    fn rests(&self) -> bool {
        self.division.watch_level != WatchLevel::Hot
    }

    /// True if a POP of this region reported it recently; its quota is then its rule's.
    fn is_reported(&self, now: Time) -> bool {
        now.nanos_since(self.reported_at) < REPORTED_NS
    }

    /// True if it has to be listed for the other regions now: a hot key if POPs here report it (or it would stay listed
    /// for ever, with a quota that no POP has any more), a resting one if no region has listed it for a while.
    fn is_to_be_named(&self, now: Time) -> bool {
        let is_due = now.nanos_since(self.listed_at) >= self.look_ns && !self.is_lost(now);
        if self.rests() { is_due } else { self.is_reported(now) }
    }

    /// True if its last account is old enough for its budget to be read.
    fn is_to_be_looked_at(&self, now: Time) -> bool {
        now.nanos_since(self.at) >= self.look_ns
    }

    /// True if its last account is too old to push grants.
    fn is_lost(&self, now: Time) -> bool {
        now.nanos_since(self.at) >= self.look_ns + LOST_NS
    }

    /// Grant at `now` for POPs without demand for the key, including the refill since the account.
    fn grant(&self, now: Time) -> Grant {
        let grant = self.division.elsewhere;
        let refilled = self.quota.refill_micro(now.nanos_since(self.at)) / 1_000;
        let level_milli = grant.level_milli.saturating_add(i64::try_from(refilled).unwrap_or(i64::MAX));
        Grant { level_milli, ..grant }
    }

    fn named(&self) -> HotKey {
        let rests = self.rests();
        let rank = if rests { 0 } else { self.division.weight.rank() };
        HotKey { id: self.id.clone(), quota: self.quota, sharing: self.sharing.clone(), rests, rank }
    }
}
