//! Hot keys of a region, and the POPs that have to be sent grants for them.
//!
//! A key is hot when its demand is a large part of its quota, or its level has fallen: then every POP must hold
//! a grant for it before its client arrives there. Regions exchange their hot keys through the store
//! ([`HotList`]), and push grants to their POPs with the next replies. A key rests when it has no demand, and
//! its budget is far from full or has a remembered fan-out. Its grants are pushed too, but less often, since
//! they do not change. Its budget is read at growing intervals, and at once when another region lists it as
//! hot.

mod held_grants;
mod list;
mod tracked;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_protocol::messages::{KEYS_MAX, PushedGrant, RULES_MAX, Report};
use weir_protocol::time::{SECOND_NS, Time};

use held_grants::HeldGrants;
use tracked::Tracked;

pub use crate::divide::RANK_MAX;
pub use held_grants::PUSH_BYTES_PER_S;
pub use list::{HOT_MAX, HotKey, HotList, LISTED_MS};
pub use tracked::{RESTING_NS, RESTING_NS_MAX};

use crate::budget::BudgetId;
use crate::divide::Division;
use crate::divide::WatchLevel;
use crate::id::ByBudget;
use crate::plan::PlanEntry;
use crate::push::{PushStates, index_of};

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
    /// Number of keys that found no room, or were replaced.
    dropped: u64,
    /// Last serial number assigned.
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

    /// Drops the least important of a few keys, which are different ones each time. Returns false if none is
    /// less important than the newcomer, which is then not kept.
    fn make_room(&mut self, newcomer: &Division) -> bool {
        self.dropped += 1;
        let from = self.next_leaving;
        let next = self.tracked.range(from..).chain(self.tracked.range(..from)).take(NEIGHBOURS_MAX);
        let next = next.inspect(|(serial, _)| self.next_leaving = *serial + 1);
        let least = next.min_by_key(|(_, known)| known.division.importance());
        let least = least.filter(|(_, known)| known.division.importance() < newcomer.importance());
        let least = least.map(|(_, known)| known.id.clone());
        least.is_some_and(|least| self.remove(&least))
    }

    fn remove(&mut self, id: &BudgetId) -> bool {
        self.serials.remove(id).is_some_and(|serial| self.tracked.remove(&serial).is_some())
    }

    /// Drops a key, whose budget is full again. POPs need not be notified: they forget it as well.
    pub fn forget(&mut self, id: &BudgetId) {
        self.remove(id);
    }

    /// Number of keys that found no room, or were replaced.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Number of grants that POPs were sent and still hold; at most [`crate::push::SENT_MAX`].
    pub fn sent_len(&self) -> usize {
        self.sent.len()
    }

    /// Keys to add to the list that regions share; [`HotKeys::are_listed`] confirms them.
    pub fn to_list(&self, now: Time) -> Vec<HotKey> {
        self.tracked.values().filter(|known| known.is_to_be_named(now)).map(Tracked::named).collect()
    }

    /// Records that the store has put these keys on the list at `now`.
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
                // A key that rests elsewhere brings nothing new to a region that has it.
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

    /// Rule names and grants to push to the sender of `report` beside the keys it `asked` for. A key that its
    /// POP has demand for is left out while all requests are let through: the last reply for it is more
    /// precise.
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
