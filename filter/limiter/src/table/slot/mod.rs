//! A slot: the packed set of entries in one shared-data key.
//!
//! On Envoy nothing in shared data can ever be removed. So the table is a fixed number of slots with fixed names, and a
//! slot is a fixed number of bytes ([`layout`]) with [`entry`]s under tags.
//!
//! **Eviction never pays.** Entries with a full bucket contain no information and are evicted first. Next is the key
//! that owes least: the slot keeps its debt in three bytes ([`debts`]), and the key starts with it on return. So a
//! client gains nothing by rotating keys. A new key gets a bucket of its own while the slot can distinguish its debts;
//! there is room for twice as many debts as entries.
//!
//! An entry that a debt cannot replace is never evicted: one with a lease, with unconfirmed counts, or with a cell of
//! another algorithm. A slot holds at most [`WATCHED_MAX`] watched keys; further keys stay cold. Keys whose cells find
//! no room share their rule's overflow cell; a few units are reserved for these.

mod debts;
mod entry;
mod layout;
mod strict;
mod tag;
#[cfg(test)]
mod tests;

pub(crate) use entry::LocalLimits;
pub use entry::{Cold, Entry, Watched};
pub(crate) use layout::{
    BASE_WORD, COUNTS_WORD, DEBT_WORDS, EntryCounts, SLOT_WORDS, UNIT_WORDS, UNITS_WORD, WATCHED_UNITS, WATCHED_WORDS,
};
pub use layout::{SLOT_BYTES, Slot};
pub(crate) use strict::BAR_STEP_NS;
pub use tag::Tag;

use crate::algorithms::{Bucket, Cell};
use core::cmp::Reverse;
use debts::Owed;
use layout::{BANS, COLD_COUNT, UNITS, WATCHED_COUNT};
use weir_protocol::time::Time;

/// Maximum number of cold keys with an entry in one slot.
pub const KEYS_PER_SLOT: usize = UNITS;

pub fn slots_for(keys: u32) -> u32 {
    u32::try_from(KEYS_PER_SLOT).map_or(keys, |per_slot| keys.div_ceil(per_slot))
}

/// Units that only overflow cells may keep. Each cell takes one, and a rule has one cell.
const OVERFLOW_UNITS: usize = 2;
/// Number of the cell that holds a key's ban; the last one.
const BAN: u8 = 9;
/// Maximum number of watched keys that may keep their entries.
const WATCHED_MAX: usize = 6;

const _: () = assert!(WATCHED_MAX * WATCHED_UNITS + OVERFLOW_UNITS <= UNITS);

/// The entry under a tag, or the initial entry of a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) tag: Tag,
    pub(crate) entry: Entry,
    /// Debt of the key from its last eviction; full for a key with an entry.
    pub(crate) owed: Bucket,
    /// True if the bucket is charged for other keys' debts, because the slot could not distinguish all debts.
    pub(crate) is_shared: bool,
    /// Position of the entry in the slot; valid until the slot changes.
    at: Option<At>,
}

impl Placement {
    pub(crate) fn owe(&mut self, bucket: Bucket) {
        if self.at.is_none() {
            self.owed = self.owed.max(bucket);
        }
        let lower = self.entry.bucket_mut();
        *lower = bucket.max(*lower);
    }

    pub(crate) fn has_place(&self) -> bool {
        self.at.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Watched(usize),
    Cold(usize),
}

impl Slot {
    /// The entry of the key `tag`, or its initial entry.
    #[inline]
    pub(crate) fn find_or_new(&self, tag: Tag, now: Time) -> Placement {
        match self.find(tag) {
            Some(at) => {
                let entry = self.entry_at(at);
                Placement { tag, entry, owed: Bucket::FULL, is_shared: false, at: Some(at) }
            }
            None => self.new_placement(tag, now),
        }
    }

    fn new_placement(&self, tag: Tag, now: Time) -> Placement {
        let Owed { own, shared } = self.owed(tag);
        let entry = Entry::Cold(Cold { bucket: own.max(shared), ..Cold::NEW });
        Placement { tag, entry, owed: own, is_shared: own < shared && !shared.is_full(now), at: None }
    }

    pub(crate) fn is_watched(&self, tag: Tag) -> bool {
        self.find_watched(tag).is_some()
    }

    #[inline]
    pub(crate) fn get(&self, tag: Tag) -> Option<Entry> {
        self.find(tag).map(|at| self.entry_at(at))
    }

    fn find(&self, tag: Tag) -> Option<At> {
        self.find_watched(tag).map(At::Watched).or_else(|| self.find_cold(tag).map(At::Cold))
    }

    fn entry_at(&self, at: At) -> Entry {
        match at {
            At::Watched(i) => Entry::Watched(self.watched_at(i)),
            At::Cold(i) => Entry::Cold(self.cold_at(i)),
        }
    }

    /// [`Slot::put`] for an entry that was looked up before; the slot must not have changed since.
    #[inline]
    pub(crate) fn put_back(&mut self, placement: &Placement, entry: &Entry, now: Time) -> Option<u32> {
        match (placement.at, entry) {
            (Some(At::Watched(i)), Entry::Watched(watched)) => self.set_watched(i, placement.tag, watched),
            (Some(At::Cold(i)), Entry::Cold(cold)) => self.set_cold(i, placement.tag, cold),
            _ => return self.put(placement.tag, entry, now),
        }
        Some(0)
    }

    /// Stores `entry` under `tag`, if necessary in place of entries that may be evicted. Returns the number of evicted
    /// entries without information; `None` if there was no room. There is always room for a cold bucket.
    #[inline]
    pub(crate) fn put(&mut self, tag: Tag, entry: &Entry, now: Time) -> Option<u32> {
        match (entry, self.find_watched(tag), self.find_cold(tag)) {
            (Entry::Watched(watched), Some(i), _) => {
                self.set_watched(i, tag, watched);
                Some(0)
            }
            (Entry::Cold(cold), None, Some(i)) => {
                self.set_cold(i, tag, cold);
                Some(0)
            }
            (Entry::Watched(watched), None, _) => self.begin_watching(tag, watched, now),
            (Entry::Cold(cold), watched, _) => {
                if let Some(i) = watched {
                    self.remove_watched(i);
                }
                self.insert_cold(tag, cold, now)
            }
        }
    }

    fn insert_cold(&mut self, tag: Tag, cold: &Cold, now: Time) -> Option<u32> {
        let mut dropped = 0;
        if tag.is_cell() {
            if !self.has_room_for_cell(tag, now) {
                return None;
            }
            if tag.is_overflow() && self.overflow_entries().count() >= OVERFLOW_UNITS {
                let spent = self.overflow_entries().find(|(_, entry)| entry.is_spent(now))?;
                self.remove(spent.0);
                dropped += 1;
            }
        }
        match self.make_room(1, now) {
            Some(more) => dropped += more,
            None if tag.is_cell() => return None,
            None => {
                // All keys with an entry must keep it.
                self.keep_debt(tag, cold.bucket.refilled(), now);
                return Some(dropped);
            }
        }
        let i = self.cold();
        self.set_count(COLD_COUNT, i + 1);
        self.set_cold(i, tag, cold);
        Some(dropped)
    }

    /// Makes a key watched that is not watched yet; `None` if there is no room.
    fn begin_watching(&mut self, tag: Tag, watched: &Watched, now: Time) -> Option<u32> {
        let goes = |i| {
            let (tag, entry) = self.watched_entry(i);
            Some((may_go(tag, &entry, now)?, tag))
        };
        let first = (0..self.watched()).filter_map(goes).max_by_key(|(why, _)| *why);
        let kept = (0..self.watched()).filter(|i| goes(*i).is_none()).count();
        if kept >= WATCHED_MAX || self.kept_units(now) + WATCHED_UNITS > UNITS - OVERFLOW_UNITS {
            return None;
        }
        let mut dropped = 0;
        if let Some(i) = self.find_cold(tag) {
            self.remove_cold(i);
        }
        if self.watched() >= WATCHED_MAX {
            let (_, tag) = first?;
            dropped += self.let_go(tag, now);
        }
        dropped += self.make_room(WATCHED_UNITS, now)?;
        let i = self.watched();
        self.set_count(WATCHED_COUNT, i + 1);
        self.set_watched(i, tag, watched);
        Some(dropped)
    }

    /// Replaces the watched key without a lease that has the fewest unconfirmed tokens, below a burst, by a key that
    /// is not watched; `None` if there is none. The replaced key keeps its debt, but its tokens go unreported.
    pub(crate) fn watch_instead(&mut self, tag: Tag, watched: &Watched, now: Time) -> Option<u32> {
        let light = (0..self.watched()).map(|i| self.watched_entry(i));
        let light = light.filter_map(|(tag, entry)| Some((entry.light(now)?, tag)));
        let (_, lightest) = light.min_by_key(|(unconfirmed, _)| *unconfirmed)?;
        let dropped = self.let_go(lightest, now);
        self.begin_watching(tag, watched, now).map(|more| dropped + more)
    }

    /// Number of keys about which the slot contains information at `now`, as entries or as debts.
    pub(crate) fn keys_at(&self, now: Time) -> usize {
        let keys = self.entries().filter(|(tag, entry)| !tag.is_overflow() && !entry.is_spent(now));
        keys.count() + self.debts_at(now)
    }

    /// True if there is room for the cell `tag`, which is not in the slot.
    pub(crate) fn has_room_for_cell(&self, tag: Tag, now: Time) -> bool {
        if tag.is_overflow() {
            let kept = self.overflow_entries().filter(|(_, entry)| !entry.is_spent(now)).count();
            return kept < OVERFLOW_UNITS;
        }
        let is_empty = self.watched() * WATCHED_UNITS + self.cold() < UNITS - OVERFLOW_UNITS;
        is_empty || self.kept_units(now) < UNITS - OVERFLOW_UNITS
    }

    /// Units of entries that must stay, except overflow cells.
    fn kept_units(&self, now: Time) -> usize {
        let kept = self.entries().filter(|(tag, entry)| !tag.is_overflow() && may_go(*tag, entry, now).is_none());
        kept.map(|(_, entry)| if let Entry::Watched(_) = entry { WATCHED_UNITS } else { 1 }).sum()
    }

    /// Makes room for `units` more. Returns the number of spent entries that were dropped; `None` if all must stay.
    /// Buckets that are full again soonest are evicted first, so keys of a fast rule make room for those of a slow one.
    fn make_room(&mut self, units: usize, now: Time) -> Option<u32> {
        let mut dropped = 0;
        while self.watched() * WATCHED_UNITS + self.cold() + units > UNITS {
            let may_go = self.entries().filter_map(|(tag, entry)| Some((may_go(tag, &entry, now)?, tag)));
            let (_, tag) = may_go.max_by_key(|(why, _)| *why)?;
            dropped += self.let_go(tag, now);
        }
        Some(dropped)
    }

    /// Evicts an entry that may go. Returns 1 if it contained no information, else 0.
    fn let_go(&mut self, tag: Tag, now: Time) -> u32 {
        let Some(entry) = self.get(tag) else { return 0 };
        self.remove(tag);
        if entry.is_spent(now) {
            return 1;
        }
        self.keep_debt(tag, entry.bucket().refilled(), now);
        0
    }

    /// Removes the key `tag`, its cells and the debt of its label; a debt that the group shares remains.
    pub(crate) fn forget(&mut self, tag: Tag) {
        (0..=BAN).for_each(|i| self.remove(tag.beside(i)));
        self.forget_debt(tag);
    }

    /// End of the ban of the key `tag`; `None` if it is not banned at `now`.
    // Rarely called, so it is kept out of line.
    #[inline(never)]
    pub(crate) fn banned_until(&self, tag: Tag, now: Time) -> Option<Time> {
        let until = self.get(tag.beside(BAN))?.bucket().refilled();
        (now < until).then_some(until)
    }

    /// Bans the key `tag` until `until`, or until a known ban ends if that is later; `None` if the slot has no room.
    pub(crate) fn ban(&mut self, tag: Tag, until: Time, now: Time) -> Option<()> {
        let until = self.banned_until(tag, now).map_or(until, |known| known.max(until));
        self.write(BANS, [1]);
        self.put(tag.beside(BAN), &Entry::Cold(Cold::of_cell(Cell { until, word: 0 })), now).map(|_| ())
    }

    pub(crate) fn unban(&mut self, tag: Tag) {
        self.remove(tag.beside(BAN));
    }

    pub(crate) fn remove(&mut self, tag: Tag) {
        if let Some(i) = self.find_watched(tag) {
            self.remove_watched(i);
        }
        if let Some(i) = self.find_cold(tag) {
            self.remove_cold(i);
        }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (Tag, Entry)> + '_ {
        let watched = (0..self.watched()).map(|i| self.watched_entry(i));
        watched.chain((0..self.cold()).map(|i| (self.cold_tag(i), Entry::Cold(self.cold_at(i)))))
    }

    fn watched_entry(&self, i: usize) -> (Tag, Entry) {
        (self.watched_tag(i), Entry::Watched(self.watched_at(i)))
    }

    fn overflow_entries(&self) -> impl Iterator<Item = (Tag, Entry)> + '_ {
        self.entries().filter(|(tag, _)| tag.is_overflow())
    }

    fn remove_watched(&mut self, i: usize) {
        let last = self.watched().saturating_sub(1);
        self.move_watched(last, i);
        self.set_count(WATCHED_COUNT, last);
    }

    fn remove_cold(&mut self, i: usize) {
        let last = self.cold().saturating_sub(1);
        self.move_cold(last, i);
        self.set_count(COLD_COUNT, last);
    }
}

/// The reason why an entry may be evicted. Entries with the greatest go first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Going {
    /// The entry only records that there are no tokens, which weir-sync would state again.
    Barred,
    /// A debt can replace the entry; the key that owes least goes first.
    Indebted(Reverse<Bucket>),
    /// The entry contains no information; the one idle longest goes first.
    Spent(u32),
}

fn may_go(tag: Tag, entry: &Entry, now: Time) -> Option<Going> {
    if entry.is_spent(now) {
        let is_barred = matches!(entry, Entry::Watched(watched) if now < watched.until);
        return Some(if is_barred { Going::Barred } else { Going::Spent(entry.idle_ticks(now)) });
    }
    let is_mere_debt = !tag.is_cell() && entry.is_mere_debt(now);
    is_mere_debt.then(|| Going::Indebted(Reverse(entry.bucket())))
}
