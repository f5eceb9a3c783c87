//! Hot keys: which keys are hot, and which POPs have to hear of them.
//!
//! A key is hot when the fleet asks for a large part of its quota, or its level has fallen: then every POP must hold an
//! allowance for it before its client arrives there. Regions hear of each other's hot keys through the store
//! ([`HotList`]), and tell their POPs with the next reply. A key rests when nobody asks for it, and its budget is far
//! from full or was spread over many POPs. POPs are told of it too, but at leisure, since its allowance does not
//! change. Its budget is looked at ever more seldom, and at once when another region names it as hot.

mod known;
mod list;
mod told;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::messages::{Pushed, Report};
use weir_wire::time::{SECOND_NS, Time};

use known::{HOT_NS, Known};
use told::Held;

pub use crate::heat::RANK_MAX;
pub use list::{HOT_MAX, HotKey, HotList, LISTED_MS};
pub use told::PUSH_BYTES_PER_S;

use crate::budget::BudgetId;
pub use crate::clock::RESTING_NS_MAX;
use crate::divide::Division;
use crate::heat::{Heat, Weight};
use crate::plan::Entry;
use crate::push::Told;

/// Among how many keys one is chosen that has to make room.
const NEIGHBOURS_MAX: usize = 8;
/// How soon a region looks at the budget of a key that has come to rest, in nanoseconds, and names it to the other
/// regions. Each time after that takes twice as long, up to [`RESTING_NS_MAX`].
pub const RESTING_NS: u64 = 2 * SECOND_NS;
/// The most resting keys that are looked at together; all get their turn within [`RESTING_NS`].
const RESTING_PEEKS_MAX: usize = HOT_MAX / 8;

/// The hot keys a region knows, and what its POPs hold of them.
#[derive(Debug, Default)]
pub struct HotKeys {
    hot: BTreeMap<BudgetId, Known>,
    resting: BTreeMap<BudgetId, Known>,
    told: Told<Held>,
    swept_at: Time,
    /// Keys that found no room, or had to make it.
    dropped: u64,
    /// The last serial that was given to a key.
    serial: u64,
}

impl HotKeys {
    /// Notes what a budget's newest account says: a key that is hot or rests is kept, a warm one goes.
    pub fn note(&mut self, entry: &Entry, division: &Division, now: Time) {
        let Entry { id, quota, sharing, .. } = entry;
        let is_watched = division.heat != Heat::Warm && !sharing.strict;
        let keys = if division.heat == Heat::Hot { &mut self.hot } else { &mut self.resting };
        if let Some(known) = keys.get_mut(id).filter(|_| is_watched) {
            known.renew(entry, division, now);
            return;
        }
        let known = self.hot.remove(id).or_else(|| self.resting.remove(id));
        if !is_watched {
            return;
        }
        let is_hot = division.heat == Heat::Hot;
        if self.hot.len() + self.resting.len() >= HOT_MAX && !self.make_room(id, is_hot, division.weight) {
            return;
        }
        let (listed_at, reported_at, serial) = known
            .map_or((Time::ZERO, Time::ZERO, self.serial + 1), |known| {
                (known.listed_at, known.reported_at, known.serial)
            });
        let reported_at = if entry.is_reported() { now } else { reported_at };
        self.serial = self.serial.max(serial);
        let (sharing, grant, weight) = (sharing.clone(), division.elsewhere, division.weight);
        let known = Known {
            quota: *quota,
            sharing,
            grant,
            at: now,
            reported_at,
            listed_at,
            look_ns: RESTING_NS,
            weight,
            is_alone: division.is_alone,
            serial,
        };
        let keys = if is_hot { &mut self.hot } else { &mut self.resting };
        keys.insert(id.clone(), known);
    }

    /// Drops a lighter key for `id`, one that rests if there is any. False if there is none: `id` itself stays out.
    fn make_room(&mut self, id: &BudgetId, is_hot: bool, weight: Weight) -> bool {
        self.dropped += 1;
        let (id, weight) = (id.clone(), (is_hot, weight));
        let is_lighter = |light: &(Weight, BudgetId), is_hot| (is_hot, light.0) < weight;
        if let Some((_, light)) = lightest(&self.resting, &id).filter(|light| is_lighter(light, false)) {
            return self.resting.remove(&light).is_some();
        }
        let light = lightest(&self.hot, &id).filter(|light| is_lighter(light, true));
        light.is_some_and(|(_, light)| self.hot.remove(&light).is_some())
    }

    /// How many found no room, or had to make it.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How many notes there are of what POPs were told.
    pub fn told_len(&self) -> usize {
        self.told.len()
    }

    /// Whether `id` was hot when its account was last seen.
    pub fn is_hot(&self, id: &BudgetId) -> bool {
        self.hot.contains_key(id)
    }

    /// What the other regions have to hear of: the hot keys that POPs here report, and the keys that rest here and that
    /// nobody has named for a while. If a region named hot keys that it only knows from the list, they would stay there
    /// for ever, with a quota that no POP has any more.
    pub fn to_list(&self, now: Time) -> Vec<HotKey> {
        let hot = self.hot.iter().filter(|(_, known)| known.is_reported(now));
        let resting = self.resting.iter().filter(|(_, known)| {
            now.nanos_since(known.at) < known.lost_ns(false)
                && now.nanos_since(known.listed_at) >= known.look_ns
        });
        let hot = hot.map(|(id, known)| (id, known, false));
        let all = hot.chain(resting.map(|(id, known)| (id, known, true)));
        all.map(|(id, known, rests)| known.named(id, rests)).collect()
    }

    /// The store has put these keys on the list at `now`.
    pub fn are_listed(&mut self, keys: &[HotKey], now: Time) {
        for key in keys {
            let among = if key.rests { &mut self.resting } else { &mut self.hot };
            if let Some(known) = among.get_mut(&key.id) {
                known.listed_at = now;
            }
        }
    }

    /// Which of the fleet's hot keys and the keys that rest here to look at: what is hot anywhere if its account is
    /// older than `age_ns`, what rests when its time has come.
    pub fn to_look_at(&mut self, fleet: &[HotKey], age_ns: u64, now: Time) -> Vec<HotKey> {
        let mut unseen = Vec::new();
        for key in fleet {
            let known = match self.resting.get_mut(&key.id) {
                Some(known) => {
                    known.listed_at = now;
                    Some(known)
                }
                None => self.hot.get_mut(&key.id),
            };
            // A region that knows the key learns nothing from its resting elsewhere.
            match known {
                Some(known) if key.rests || now.nanos_since(known.at) < age_ns => {}
                // The quota that POPs here have is newer.
                Some(known) if known.is_reported(now) => unseen.push(known.named(&key.id, false)),
                _ => unseen.push(key.clone()),
            }
        }
        let rested = self.resting.iter().filter(|(_, known)| now.nanos_since(known.at) >= known.look_ns);
        unseen.extend(rested.take(RESTING_PEEKS_MAX).map(|(id, known)| known.named(id, true)));
        unseen
    }

    /// What the sender of `report` has to be told beside what it asked for: rule names, and grants. A key that it
    /// `is_asked` for is left out while all requests are let through: the last answer is better.
    pub fn pushes(
        &mut self,
        report: &Report,
        is_stale: bool,
        is_asked: impl Fn(&BudgetId) -> bool,
        now: Time,
    ) -> (Vec<String>, Vec<Pushed>) {
        self.sweep(now);
        let name = |rule: u16| report.rules.get(usize::from(rule)).map(|rule| rule.name.as_str());
        let asked = report.keys.iter().filter_map(|key| Some(BudgetId::order(name(key.rule)?, &key.value)));
        let mut asked: Vec<_> = asked.collect();
        asked.sort_unstable();
        let hot = unasked(&self.hot, &asked).map(|(id, known)| (id, known, true));
        let resting = unasked(&self.resting, &asked).map(|(id, known)| (id, known, false));
        let known = hot
            .chain(resting)
            .filter(|(_, known, is_hot)| now.nanos_since(known.at) < known.lost_ns(*is_hot))
            .filter(|(id, known, _)| !(known.is_open() && is_asked(id)))
            .map(|(id, known, _)| (id, known));
        let (mut rules, mut pushed): (Vec<String>, Vec<Pushed>) = (Vec::new(), Vec::new());
        let due = self.told.tell(now, report, is_stale, |held, room| {
            let due = held.due(report.running.version, room, known, now);
            let serials: Vec<_> = due.iter().map(|(_, known)| known.serial).collect();
            (due, Some(serials).filter(|serials| !serials.is_empty()))
        });
        for (id, known) in due {
            let rule = rules.iter().position(|rule| *rule == id.rule).unwrap_or_else(|| {
                rules.push(id.rule.clone());
                rules.len() - 1
            });
            let Ok(rule) = u16::try_from(rule) else { break };
            pushed.push(Pushed {
                rule,
                value: id.value.clone(),
                quota: known.quota,
                grant: known.refilled(now),
            });
        }
        (rules, pushed)
    }

    /// Forgets what nobody confirms, at most once a second.
    fn sweep(&mut self, now: Time) {
        if now.nanos_since(self.swept_at) < SECOND_NS {
            return;
        }
        self.swept_at = now;
        // Nobody names it any more, though what it was last asked for has not faded: it rests, and is looked at as such.
        let lost = self.hot.extract_if(.., |_, known| now.nanos_since(known.at) >= HOT_NS);
        self.resting.extend(lost.map(|(id, known)| (id, Known { look_ns: RESTING_NS, ..known })));
        self.resting.retain(|_, known| now.nanos_since(known.at) < known.lost_ns(false));
        self.told.sweep(now, |held| held.sweep(now));
    }
}

/// The lightest among a few of `keys` that lie next to `id`.
fn lightest(keys: &BTreeMap<BudgetId, Known>, id: &BudgetId) -> Option<(Weight, BudgetId)> {
    let next = keys.range(id..).chain(keys.range(..id)).take(NEIGHBOURS_MAX);
    next.min_by_key(|(_, known)| known.weight).map(|(id, known)| (known.weight, id.clone()))
}

/// Those of `keys` that are not among `asked`, which are in the same order.
fn unasked<'a>(
    keys: &'a BTreeMap<BudgetId, Known>,
    mut asked: &'a [(&'a [u8], &'a str)],
) -> impl Iterator<Item = (&'a BudgetId, &'a Known)> {
    keys.iter().filter(move |(id, _)| {
        let order = BudgetId::order(&id.rule, &id.value);
        while let Some((_, rest)) = asked.split_first().filter(|(first, _)| **first < order) {
            asked = rest;
        }
        asked.first() != Some(&order)
    })
}
