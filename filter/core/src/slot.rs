//! A slot: the packed set of buckets that one shared-data key holds.
//!
//! A host's shared data cannot be enumerated, and on Envoy nothing in it can ever be removed. So
//! the table is a fixed number of slots with fixed names, and a slot is a fixed number of bytes:
//!
//! ```text
//!   0  format      4 B  FORMAT, changes with the layout
//!   4  watched     1 B  entries at the front, two units each
//!   5  cold        1 B  entries at the back, one unit each
//!   6  zero        2 B
//!   8  checksum    8 B  xxh64 of everything else
//!  16  zero       16 B
//!  32  units  20 x 24 B  watched entries from the left, cold ones from the right
//! ```
//!
//! **Eviction never pays.** Only an entry whose bucket is full may go, with no lease and nothing left
//! to report; those whose even share is whole as well go first. When a slot has no such entry, a newcomer shares the slot's
//! overflow bucket of its rule, for which units are kept aside. Whoever rotates keys to shake off a
//! throttled one therefore throttles himself.

use xxhash_rust::xxh64::xxh64;

use crate::bucket::Bucket;
use crate::quota::Quota;
use crate::time::{SECOND_NS, Time};
use crate::wire::AdmitRatio;

/// Bytes in a slot.
pub const SLOT_BYTES: usize = 512;
/// Cold keys that fit beside the units kept aside for overflow buckets.
pub const KEYS_PER_SLOT: usize = UNITS - OVERFLOW_UNITS;

/// "WER1": the layout above.
const FORMAT: [u8; 4] = *b"WER1";
const HEADER_BYTES: usize = 32;
const UNIT_BYTES: usize = 24;
const UNITS: usize = (SLOT_BYTES - HEADER_BYTES) / UNIT_BYTES;
/// Units that only overflow buckets may take: one bucket for each of so many rules.
const OVERFLOW_UNITS: usize = 4;
/// Units of a watched entry.
const WATCHED_UNITS: usize = 2;
/// How long counts that were never confirmed keep an otherwise idle entry, in nanoseconds.
const UNCONFIRMED_NS_MAX: u64 = 60 * SECOND_NS;
/// The bit that tells an overflow bucket's tag from a key's.
const OVERFLOW_BIT: u64 = 1 << 63;

const _: () = assert!(HEADER_BYTES + UNITS * UNIT_BYTES == SLOT_BYTES);

/// The name of an entry in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(u64);

impl Tag {
    /// A key under the rule with this salt.
    pub const fn of_key(key_tag: u64, rule_salt: u64) -> Self {
        Self((key_tag ^ rule_salt) & !OVERFLOW_BIT)
    }

    /// The overflow bucket of the rule with this salt.
    pub const fn of_overflow(rule_salt: u64) -> Self {
        Self(rule_salt | OVERFLOW_BIT)
    }

    /// Whether this names an overflow bucket.
    pub const fn is_overflow(self) -> bool {
        self.0 & OVERFLOW_BIT != 0
    }

    /// The tag as a number, for a worker's own maps.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// The local state of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A key within its even share: no other POP needs to hear of it.
    Cold(Cold),
    /// A key that weir-sync hears of.
    Watched(Watched),
}

/// A key within its even share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cold {
    /// The rule's whole quota.
    pub bucket: Bucket,
    /// The POP's even share of it; once that is used up, the key is watched.
    pub share: Bucket,
}

/// A key that weir-sync hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The rule's whole quota, capped by grants.
    pub bucket: Bucket,
    /// Until when `ratio` is valid.
    pub lease_until: Time,
    /// Names the span that the counts cover.
    pub epoch: u32,
    /// Tokens admitted in this epoch.
    pub admitted: u32,
    /// Tokens asked for in this epoch, as far as workers have added theirs up.
    pub asked: u32,
    /// The part of `admitted` that weir-sync has confirmed.
    pub confirmed: u32,
    /// The fraction to admit while the lease lasts.
    pub ratio: AdmitRatio,
}

impl Cold {
    /// A key nobody has seen.
    pub const NEW: Self = Self { bucket: Bucket::FULL, share: Bucket::FULL };
}

impl Watched {
    /// A key that starts to be watched at `now`, one of `pops` POPs asking it for `taking` tokens
    /// that its share no longer has.
    ///
    /// What was admitted unheard is reported now: what is missing from the bucket, and, where the
    /// bucket has refilled faster than an even share does, what is missing from the share.
    pub fn begin(cold: &Cold, quota: &Quota, pops: u32, taking: u32, now: Time) -> Self {
        let from_share = cold.share.missing(quota, now).div_ceil(u64::from(pops.max(1)));
        let unheard = cold.bucket.missing(quota, now).max(from_share);
        let admitted = u32::try_from(unheard).unwrap_or(u32::MAX).saturating_add(taking);
        Self {
            bucket: cold.bucket,
            lease_until: Time::ZERO,
            epoch: epoch_of(now),
            admitted,
            asked: admitted,
            confirmed: 0,
            ratio: AdmitRatio::ONE,
        }
    }

    /// The admit ratio in force at `now`: without a lease, everything the bucket has.
    pub fn ratio_at(&self, now: Time) -> AdmitRatio {
        if now < self.lease_until { self.ratio } else { AdmitRatio::ONE }
    }

    /// Counts `cost` admitted tokens. Before a counter could wrap, a new epoch begins that carries
    /// over what was not confirmed.
    pub fn count_admitted(&mut self, cost: u32, now: Time) {
        if self.admitted.max(self.asked) > COUNT_MAX {
            self.admitted = self.admitted.saturating_sub(self.confirmed);
            (self.asked, self.confirmed, self.epoch) = (self.admitted, 0, epoch_of(now));
        }
        self.admitted = self.admitted.saturating_add(cost);
    }
}

/// Counts above this begin a new epoch.
const COUNT_MAX: u32 = u32::MAX / 2;

/// Names an epoch by its begin, in steps of 2^20 ns (about a millisecond; wraps in 52 days, long
/// after anything remembers the last).
fn epoch_of(now: Time) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "wraps on purpose")]
    let epoch = (now.as_nanos() >> 20) as u32;
    epoch
}

impl Entry {
    /// The bucket.
    pub fn bucket(&self) -> Bucket {
        match self {
            Self::Cold(cold) => cold.bucket,
            Self::Watched(watched) => watched.bucket,
        }
    }

    /// The bucket, to change it.
    pub fn bucket_mut(&mut self) -> &mut Bucket {
        match self {
            Self::Cold(cold) => &mut cold.bucket,
            Self::Watched(watched) => &mut watched.bucket,
        }
    }

    /// Whether its bucket would not be missed. Its share might be: then weir-sync hears of the key
    /// later than it could.
    fn is_refilled(&self, now: Time) -> bool {
        match self {
            Self::Cold(cold) => cold.bucket.is_full(now),
            Self::Watched(_) => self.is_spent(now),
        }
    }

    /// Whether dropping it loses nothing.
    fn is_spent(&self, now: Time) -> bool {
        match self {
            Self::Cold(cold) => cold.bucket.is_full(now) && cold.share.is_full(now),
            Self::Watched(w) => {
                let told =
                    w.admitted == w.confirmed || now.nanos_since(w.bucket.refilled()) > UNCONFIRMED_NS_MAX;
                w.bucket.is_full(now) && w.lease_until <= now && told
            }
        }
    }

    fn units(&self) -> usize {
        match self {
            Self::Cold(_) => 1,
            Self::Watched(_) => WATCHED_UNITS,
        }
    }
}

/// What is stored under a tag, or what a newcomer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lodging {
    /// The tag the entry lives under: the key's own or an overflow bucket's.
    pub tag: Tag,
    /// The entry.
    pub entry: Entry,
}

/// A slot's bytes were not those of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// The packed set of entries. Reads and writes its bytes in place.
#[derive(Clone)]
pub struct Slot {
    bytes: [u8; SLOT_BYTES],
}

impl Default for Slot {
    fn default() -> Self {
        Self::empty()
    }
}

impl Slot {
    /// A slot without entries.
    pub fn empty() -> Self {
        let mut slot = Self { bytes: [0; SLOT_BYTES] };
        slot.write(0, FORMAT);
        slot
    }

    /// The slot in `bytes`, if they are one.
    pub fn read(bytes: &[u8]) -> Result<Self, Corrupt> {
        let slot = Self { bytes: bytes.try_into().map_err(|_| Corrupt)? };
        let fits = slot.watched() * WATCHED_UNITS + slot.cold() <= UNITS;
        let sound = slot.array::<4>(0) == FORMAT && fits && slot.array::<8>(8) == slot.checksum();
        if sound { Ok(slot) } else { Err(Corrupt) }
    }

    /// The bytes to store.
    pub fn sealed(&mut self) -> &[u8; SLOT_BYTES] {
        let checksum = self.checksum();
        self.write(8, checksum);
        &self.bytes
    }

    /// Where the key `tag` of a rule with this overflow tag lives, or would.
    ///
    /// Its own entry if it has one; else a new one if there is room; else the rule's overflow
    /// bucket; else (every overflow unit held by other rules' debt) the overflow bucket that is
    /// full soonest.
    pub fn lodge(&self, tag: Tag, overflow: Tag, now: Time) -> Lodging {
        let newcomer = Entry::Cold(Cold::NEW);
        if let Some(entry) = self.get(tag) {
            return Lodging { tag, entry };
        }
        if self.room_for(1, false, now) {
            return Lodging { tag, entry: newcomer };
        }
        if let Some(entry) = self.get(overflow) {
            return Lodging { tag: overflow, entry };
        }
        if self.room_for(1, true, now) {
            return Lodging { tag: overflow, entry: newcomer };
        }
        let shared = self.overflow_entries().min_by_key(|(_, entry)| entry.bucket());
        let (tag, entry) = shared.unwrap_or((overflow, newcomer));
        Lodging { tag, entry }
    }

    /// The entry under `tag`.
    pub fn get(&self, tag: Tag) -> Option<Entry> {
        if let Some(i) = self.find_watched(tag) {
            return Some(Entry::Watched(self.watched_at(i)));
        }
        self.find_cold(tag).map(|i| Entry::Cold(self.cold_at(i)))
    }

    /// Stores `entry` under `tag`, in place of what was there, or of entries that hold no
    /// information. Returns how many of those it dropped, or `None` if there was no room.
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
        while !self.fits(entry.units(), tag.is_overflow()) {
            self.drop_spent(now).then_some(())?;
            dropped += 1;
        }
        match entry {
            Entry::Watched(watched) => {
                let i = self.watched();
                self.set_count(4, i + 1);
                self.set_watched(i, tag, watched);
            }
            Entry::Cold(cold) => {
                let i = self.cold();
                self.set_count(5, i + 1);
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

    /// Drops one entry: a spent one if there is one, else a refilled one; false if there is neither.
    fn drop_spent(&mut self, now: Time) -> bool {
        let droppable = |test: fn(&Entry, Time) -> bool| {
            self.entries().find(|(_, entry)| test(entry, now)).map(|(tag, _)| tag)
        };
        let Some(tag) = droppable(Entry::is_spent).or_else(|| droppable(Entry::is_refilled)) else {
            return false;
        };
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
        let watched = (0..self.watched())
            .map(|i| (Tag(self.word(watched_offset(i))), Entry::Watched(self.watched_at(i))));
        watched
            .chain((0..self.cold()).map(|i| (Tag(self.word(cold_offset(i))), Entry::Cold(self.cold_at(i)))))
    }

    fn overflow_entries(&self) -> impl Iterator<Item = (Tag, Entry)> + '_ {
        self.entries().filter(|(tag, _)| tag.is_overflow())
    }

    fn find_watched(&self, tag: Tag) -> Option<usize> {
        (0..self.watched()).find(|&i| self.word(watched_offset(i)) == tag.0)
    }

    fn find_cold(&self, tag: Tag) -> Option<usize> {
        (0..self.cold()).find(|&i| self.word(cold_offset(i)) == tag.0)
    }

    fn remove_watched(&mut self, i: usize) {
        let last = self.watched().saturating_sub(1);
        self.move_units(watched_offset(last), watched_offset(i), WATCHED_UNITS);
        self.set_count(4, last);
    }

    fn remove_cold(&mut self, i: usize) {
        let last = self.cold().saturating_sub(1);
        self.move_units(cold_offset(last), cold_offset(i), 1);
        self.set_count(5, last);
    }
}

/// The layout: offsets, and words read and written at them. Everything out of range reads as zero
/// and is not written, so no index can trap.
impl Slot {
    fn watched(&self) -> usize {
        usize::from(self.array::<1>(4)[0])
    }

    fn cold(&self) -> usize {
        usize::from(self.array::<1>(5)[0])
    }

    fn set_count(&mut self, offset: usize, count: usize) {
        self.write(offset, [u8::try_from(count).unwrap_or(0)]);
    }

    fn watched_at(&self, i: usize) -> Watched {
        let at = watched_offset(i);
        Watched {
            bucket: Bucket::full_at(Time::from_nanos(self.word(at + 8))),
            lease_until: Time::from_nanos(self.word(at + 16)),
            epoch: self.half(at + 24),
            admitted: self.half(at + 28),
            asked: self.half(at + 32),
            confirmed: self.half(at + 36),
            ratio: AdmitRatio::from_bits(self.half(at + 40)),
        }
    }

    fn set_watched(&mut self, i: usize, tag: Tag, watched: &Watched) {
        let at = watched_offset(i);
        self.write(at, tag.0.to_le_bytes());
        self.write(at + 8, watched.bucket.refilled().as_nanos().to_le_bytes());
        self.write(at + 16, watched.lease_until.as_nanos().to_le_bytes());
        self.write(at + 24, watched.epoch.to_le_bytes());
        self.write(at + 28, watched.admitted.to_le_bytes());
        self.write(at + 32, watched.asked.to_le_bytes());
        self.write(at + 36, watched.confirmed.to_le_bytes());
        self.write(at + 40, watched.ratio.bits().to_le_bytes());
    }

    fn cold_at(&self, i: usize) -> Cold {
        let at = cold_offset(i);
        Cold {
            bucket: Bucket::full_at(Time::from_nanos(self.word(at + 8))),
            share: Bucket::full_at(Time::from_nanos(self.word(at + 16))),
        }
    }

    fn set_cold(&mut self, i: usize, tag: Tag, cold: &Cold) {
        let at = cold_offset(i);
        self.write(at, tag.0.to_le_bytes());
        self.write(at + 8, cold.bucket.refilled().as_nanos().to_le_bytes());
        self.write(at + 16, cold.share.refilled().as_nanos().to_le_bytes());
    }

    fn move_units(&mut self, from: usize, to: usize, units: usize) {
        let bytes = units * UNIT_BYTES;
        if from + bytes <= SLOT_BYTES && to + bytes <= SLOT_BYTES {
            self.bytes.copy_within(from..from + bytes, to);
        }
    }

    fn checksum(&self) -> [u8; 8] {
        let seed = u64::from_le_bytes(self.array(0));
        xxh64(self.bytes.get(16..).unwrap_or_default(), seed).to_le_bytes()
    }

    fn word(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.array(offset))
    }

    fn half(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.array(offset))
    }

    fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        self.bytes.get(offset..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
    }

    fn write<const N: usize>(&mut self, offset: usize, value: [u8; N]) {
        if let Some(room) = self.bytes.get_mut(offset..).and_then(<[u8]>::first_chunk_mut) {
            *room = value;
        }
    }
}

const fn watched_offset(i: usize) -> usize {
    HEADER_BYTES + i * WATCHED_UNITS * UNIT_BYTES
}

/// Cold entries fill the slot from its end.
const fn cold_offset(i: usize) -> usize {
    (SLOT_BYTES - UNIT_BYTES).saturating_sub(i * UNIT_BYTES)
}

#[cfg(test)]
mod tests;
