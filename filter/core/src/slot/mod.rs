//! A slot: the packed set of buckets that one shared-data key holds.
//!
//! A host's shared data cannot be enumerated, and on Envoy nothing in it can ever be removed. So
//! the table is a fixed number of slots with fixed names, and a slot is a fixed number of bytes
//! ([`layout`]) that holds [`entry`]s under tags.
//!
//! **Eviction never pays.** Only an entry whose bucket is full may go, with no lease and nothing left
//! to report; the one idle for longest goes first. When a slot has no such entry, a
//! newcomer shares the slot's overflow bucket of its rule, for which units are kept aside. Whoever
//! rotates keys to shake off a throttled one therefore throttles himself.

mod entry;
mod layout;
mod strict;
#[cfg(test)]
mod tests;

pub use entry::{Cold, Entry, Moment, Tag, Unheard, Watched};
pub use layout::{SLOT_BYTES, Slot};
pub use strict::BAR_STEP_NS;

use crate::time::Time;
use layout::{UNITS, WATCHED_UNITS};

/// Cold keys that fit beside the units kept aside for overflow buckets.
pub const KEYS_PER_SLOT: usize = UNITS - OVERFLOW_UNITS;

/// Units that only overflow buckets may take: one bucket for each of so many rules.
const OVERFLOW_UNITS: usize = 4;

/// What is stored under a tag, or what a newcomer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lodging {
    /// The tag the entry lives under: the key's own or an overflow bucket's.
    pub tag: Tag,
    /// The entry.
    pub entry: Entry,
    /// Where the slot has it, until the slot is changed.
    at: Option<At>,
}

/// Where a slot has an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Watched(usize),
    Cold(usize),
}

impl Slot {
    /// Where the key `tag` of a rule with this overflow tag lives, or would.
    ///
    /// Its own entry if it has one; else a new one if there is room; else the rule's overflow
    /// bucket; else (every overflow unit held by other rules' debt) the overflow bucket that is
    /// full soonest.
    #[inline]
    pub fn lodge(&self, tag: Tag, overflow: Tag, now: Time) -> Lodging {
        if let Some(at) = self.find(tag) {
            return Lodging { tag, entry: self.entry_at(at), at: Some(at) };
        }
        // Who drained the overflow bucket does not get a full one of his own when room appears.
        let own = |tag, entry| Lodging { tag, entry, at: None };
        let shared = self.get(overflow).map_or(Cold::NEW.bucket, |entry| entry.bucket());
        let newcomer = Entry::Cold(Cold { bucket: shared, ..Cold::NEW });
        if self.room_for(1, false, now) {
            return own(tag, newcomer);
        }
        if let Some(entry) = self.get(overflow) {
            return own(overflow, entry);
        }
        if self.room_for(1, true, now) {
            return own(overflow, Entry::Cold(Cold::NEW));
        }
        let shared = self.overflow_entries().min_by_key(|(_, entry)| entry.bucket());
        let (tag, entry) = shared.unwrap_or((overflow, Entry::Cold(Cold::NEW)));
        own(tag, entry)
    }

    /// Whether the entry under `tag` is a watched one.
    pub fn is_watched(&self, tag: Tag) -> bool {
        self.find_watched(tag).is_some()
    }

    /// The entry under `tag`.
    #[inline]
    pub fn get(&self, tag: Tag) -> Option<Entry> {
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

    /// Stores what became of an entry that was looked up and not changed since, as [`Slot::put`] does.
    #[inline]
    pub fn put_back(&mut self, lodging: &Lodging, entry: &Entry, now: Time) -> Option<u32> {
        match (lodging.at, entry) {
            (Some(At::Watched(i)), Entry::Watched(watched)) => self.set_watched(i, lodging.tag, watched),
            (Some(At::Cold(i)), Entry::Cold(cold)) => self.set_cold(i, lodging.tag, cold),
            _ => return self.put(lodging.tag, entry, now),
        }
        Some(0)
    }

    /// Stores `entry` under `tag`, in place of what was there, or of entries that hold no
    /// information. Returns how many of those it dropped, or `None` if there was no room.
    #[inline]
    pub fn put(&mut self, tag: Tag, entry: &Entry, now: Time) -> Option<u32> {
        match (entry, self.find_watched(tag), self.find_cold(tag)) {
            (Entry::Watched(watched), Some(i), _) => {
                self.set_watched(i, tag, watched);
                Some(0)
            }
            (Entry::Cold(cold), None, Some(i)) => {
                self.set_cold(i, tag, cold);
                Some(0)
            }
            // Nothing is dropped for one that does not come to fit.
            (Entry::Cold(_), None, None) => {
                self.room_for(1, tag.is_overflow(), now).then(|| self.insert(tag, entry, now)).flatten()
            }
            _ => {
                let before = self.clone();
                self.remove(tag);
                let dropped = self.insert(tag, entry, now);
                if dropped.is_none() {
                    *self = before;
                }
                dropped
            }
        }
    }

    fn insert(&mut self, tag: Tag, entry: &Entry, now: Time) -> Option<u32> {
        let mut dropped = 0;
        while !self.fits(units_of(entry), tag.is_overflow()) {
            self.drop_spent(now).then_some(())?;
            dropped += 1;
        }
        match entry {
            Entry::Watched(watched) => {
                let i = self.watched();
                self.set_watched_count(i + 1);
                self.set_watched(i, tag, watched);
            }
            Entry::Cold(cold) => {
                let i = self.cold();
                self.set_cold_count(i + 1);
                self.set_cold(i, tag, cold);
            }
        }
        Some(dropped)
    }

    /// Whether `units` more fit now.
    fn fits(&self, units: usize, overflow: bool) -> bool {
        let taken = self.watched() * WATCHED_UNITS + self.cold();
        let overflowing = self.overflow_entries().count();
        if overflow {
            overflowing < OVERFLOW_UNITS && taken + units <= UNITS
        } else {
            taken - overflowing + units <= KEYS_PER_SLOT
        }
    }

    /// Whether `units` more would fit once everything spent were dropped.
    fn room_for(&self, units: usize, overflow: bool, now: Time) -> bool {
        self.fits(units, overflow)
            || self.entries().any(|(tag, entry)| tag.is_overflow() == overflow && entry.is_spent(now))
    }

    /// Drops the spent entry that was idle for longest; false if there is none.
    fn drop_spent(&mut self, now: Time) -> bool {
        let spent = self.entries().filter(|(_, entry)| entry.is_spent(now));
        let Some((tag, _)) = spent.max_by_key(|(_, entry)| entry.idle_ticks(now)) else { return false };
        self.remove(tag);
        true
    }

    fn remove(&mut self, tag: Tag) {
        if let Some(i) = self.find_watched(tag) {
            self.remove_watched(i);
        }
        if let Some(i) = self.find_cold(tag) {
            self.remove_cold(i);
        }
    }

    /// Every entry with its tag.
    pub fn entries(&self) -> impl Iterator<Item = (Tag, Entry)> + '_ {
        let watched = (0..self.watched()).map(|i| (self.watched_tag(i), Entry::Watched(self.watched_at(i))));
        watched.chain((0..self.cold()).map(|i| (self.cold_tag(i), Entry::Cold(self.cold_at(i)))))
    }

    fn overflow_entries(&self) -> impl Iterator<Item = (Tag, Entry)> + '_ {
        self.entries().filter(|(tag, _)| tag.is_overflow())
    }

    fn remove_watched(&mut self, i: usize) {
        let last = self.watched().saturating_sub(1);
        self.move_watched(last, i);
        self.set_watched_count(last);
    }

    fn remove_cold(&mut self, i: usize) {
        let last = self.cold().saturating_sub(1);
        self.move_cold(last, i);
        self.set_cold_count(last);
    }
}

fn units_of(entry: &Entry) -> usize {
    match entry {
        Entry::Cold(_) => 1,
        Entry::Watched(_) => WATCHED_UNITS,
    }
}
