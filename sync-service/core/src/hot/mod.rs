//! Hot keys: which keys are hot, and which POPs have to hear of them.
//!
//! A key is hot when the fleet asks for a large part of its quota, or its level has fallen: then every POP must hold an
//! allowance for it before its client arrives there. Regions hear of each other's hot keys through the store
//! ([`HotList`]), and tell their POPs with the next reply. A key rests when nobody asks for it, and its budget is far
//! from full or was spread over many POPs. POPs are told of it too, but at leisure, since its allowance does not
//! change. Its budget is looked at ever more seldom, and at once when another region names it as hot.

mod list;
mod told;
mod tracked;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::messages::{KEYS_MAX, Pushed, RULES_MAX, Report};
use weir_wire::time::{SECOND_NS, Time};

use told::Held;
use tracked::Tracked;

pub use crate::heat::RANK_MAX;
pub use list::{HOT_MAX, HotKey, HotList, LISTED_MS};
pub use told::PUSH_BYTES_PER_S;
pub use tracked::RESTING_NS;

use crate::budget::BudgetId;
pub use crate::clock::RESTING_NS_MAX;
use crate::divide::Division;
use crate::heat::Heat;
use crate::id::ByBudget;
use crate::plan::Entry;
use crate::push::{Told, index_of};

/// Among how many keys one is chosen that has to make room.
const NEIGHBOURS_MAX: usize = 8;
/// The most keys that are looked at together because their time has come; all get their turn within [`RESTING_NS`].
const RESTING_PEEKS_MAX: usize = HOT_MAX / 8;

/// The hot and resting keys that a region knows, and what its POPs hold of them.
#[derive(Debug, Default)]
pub struct HotKeys {
    /// By their serials: in the order in which they came.
    tracked: BTreeMap<u64, Tracked>,
    serials: ByBudget<u64>,
    told: Told<Held>,
    swept_at: Time,
    /// Keys that found no room, or had to make it.
    dropped: u64,
    /// The last serial that was given to a key.
    serial: u64,
    /// From which serial on the next key is looked for that has to make room.
    next_leaving: u64,
}

impl HotKeys {
    /// Notes what a budget's newest account says: a key that is hot or rests is kept, a warm one goes.
    pub fn note(&mut self, entry: &Entry, division: &Division, now: Time) {
        if division.heat == Heat::Warm {
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

    /// Drops the key that matters least among a few, which are others each time. False if none matters less than the
    /// newcomer, which then stays out.
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

    /// Drops a key, whose budget is full again. What POPs were told of it does not matter: they forget it.
    pub fn forget(&mut self, id: &BudgetId) {
        self.remove(id);
    }

    /// How many found no room, or had to make it.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How many notes there are of what POPs were told; at most [`crate::push::TOLD_MAX`].
    pub fn told_len(&self) -> usize {
        self.told.len()
    }

    /// What the other regions have to hear of; [`HotKeys::are_listed`] says that the store has it.
    pub fn to_list(&self, now: Time) -> Vec<HotKey> {
        self.tracked.values().filter(|known| known.is_to_be_named(now)).map(Tracked::named).collect()
    }

    /// The store has put these keys on the list at `now`.
    pub fn are_listed(&mut self, now: Time, keys: &[HotKey]) {
        for key in keys {
            if let Some(known) = self.get_mut(&key.id) {
                known.listed_at = now;
            }
        }
    }

    /// Which of the fleet's hot keys and the keys that rest here to look at: what is hot anywhere if its account is
    /// older than `age_ns`, what rests when its time has come.
    pub fn to_look_at(&mut self, now: Time, fleet: &[HotKey], age_ns: u64) -> Vec<HotKey> {
        self.are_listed(now, fleet);
        let mut unseen = Vec::new();
        for key in fleet {
            match self.get(&key.id) {
                // A region that knows the key learns nothing from its resting elsewhere.
                Some(known) if key.rests || now.nanos_since(known.at) < age_ns => {}
                // The quota that POPs here have is newer.
                Some(known) if known.is_reported(now) => unseen.push(known.named()),
                _ => unseen.push(key.clone()),
            }
        }
        let due = self.tracked.values().filter(|known| known.is_to_be_looked_at(now));
        unseen.extend(due.take(RESTING_PEEKS_MAX).map(Tracked::named));
        unseen
    }

    /// What the sender of `report` has to be told beside what it `asked` for: rule names, and grants. A key that it
    /// `is_asked` for is left out while all requests are let through: the last answer is better.
    pub(crate) fn pushes<'a>(
        &mut self,
        now: Time,
        report: &Report,
        is_repeated: bool,
        asked: impl Iterator<Item = &'a BudgetId>,
        is_asked: impl Fn(&BudgetId) -> bool,
    ) -> (Vec<String>, Vec<Pushed>) {
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
        let due = self.told.tell(now, report, is_repeated, |held| {
            let version = report.running.version;
            let due = held.due(version, known, now);
            let letter: Vec<_> = due.iter().map(|known| (version, known.serial)).collect();
            (due, Some(letter).filter(|letter| !letter.is_empty()))
        });
        let (mut rules, mut pushed) = (Vec::new(), Vec::new());
        for known in due {
            // There is room for the rule of every key that is told.
            const { assert!(KEYS_MAX <= RULES_MAX) };
            let Some(rule) = index_of(&known.id.rule, &mut rules) else { break };
            let (value, quota, grant) = (known.id.value.clone(), known.quota, known.grant(now));
            pushed.push(Pushed { rule, value, quota, grant });
        }
        (rules, pushed)
    }

    /// Forgets what nobody confirms, at most once a second.
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
        self.told.sweep(now, |held| held.sweep(now));
    }
}
