//! The layout of a slot in bytes.
//!
//! ```text
//!   0  format      4 B  FORMAT, changes with the layout
//!   4  watched     1 B  number of entries at the front, two units each
//!   5  cold        1 B  number of entries at the back, one unit each
//!   6  debts       1 B  number of debts of keys without an entry
//!   7  bans        1 B  1 if a key of the slot was ever banned
//!   8  checksum    8 B  xxh64 of the used units and debts, seeded with the other header fields
//!  16  base        8 B  base time of the debts
//!  24  units  16 x 24 B  watched entries from the left, cold ones from the right
//! 408  debts  34 x  3 B
//! 510  zero        2 B
//! ```
//!
//! A read out of range gives zero and a write out of range does nothing, so no index can trap. Unused units
//! may hold anything.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use crate::algorithms::{Bucket, FairShare};
use crate::table::slot::entry::{Cold, Watched};
use crate::table::slot::moment::Debt;
use crate::table::slot::tag::Tag;
use weir_protocol::time::Time;
use xxhash_rust::xxh64::xxh64;

/// Bytes in a slot.
pub const SLOT_BYTES: usize = 512;
/// Units in a slot.
pub(super) const UNITS: usize = 16;
/// Debts in a slot.
pub(super) const DEBTS_MAX: usize = (SLOT_BYTES - DEBTS_OFFSET) / DEBT_BYTES;
/// Units of a watched entry.
pub(crate) const WATCHED_UNITS: usize = 2;

/// "WER5": the layout above, and the packing of entries into units (packed.rs). The names of slots, and of
/// the other shared values, carry the same digit.
const FORMAT: [u8; 4] = *b"WER5";
pub(super) const WORD_BYTES: usize = 8;
pub(super) const HEADER_BYTES: usize = 24;
pub(super) const UNIT_BYTES: usize = 24;
const UNITS_END: usize = HEADER_BYTES + UNITS * UNIT_BYTES;
pub(super) const DEBTS_OFFSET: usize = UNITS_END;
pub(super) const DEBT_BYTES: usize = 3;
pub(super) const WATCHED_COUNT: usize = 4;
pub(super) const COLD_COUNT: usize = 5;
pub(super) const DEBTS_COUNT: usize = 6;
pub(super) const BANS: usize = 7;
pub(super) const BASE: usize = 16;

const _: () = assert!(DEBTS_OFFSET + DEBTS_MAX * DEBT_BYTES <= SLOT_BYTES);

/// The packed set of entries. Reads and writes its bytes in place.
#[derive(Clone)]
pub struct Slot {
    bytes: Box<[u8; SLOT_BYTES]>,
}

impl Default for Slot {
    fn default() -> Self {
        Self::empty()
    }
}

impl Slot {
    /// A slot without entries.
    pub fn empty() -> Self {
        let mut slot = Self { bytes: Box::new([0; SLOT_BYTES]) };
        slot.write(0, FORMAT);
        slot
    }

    pub(crate) fn clear(&mut self) {
        self.write(0, [0; HEADER_BYTES]);
        self.write(0, FORMAT);
    }

    /// Copies the used parts of `other`.
    pub fn copy_from(&mut self, other: &Self) {
        self.write(0, other.array::<HEADER_BYTES>(0));
        let (watched, cold) = (watched_offset(other.watched()), other.cold_begin());
        for used in [HEADER_BYTES..watched, cold..other.debts_end()] {
            if let (Some(to), Some(from)) = (self.bytes.get_mut(used.clone()), other.bytes.get(used)) {
                to.copy_from_slice(from);
            }
        }
    }

    /// Reads the bytes of a sealed slot. False if they are not a slot or were torn; the contents are undefined then.
    pub fn unseal(&mut self, bytes: Vec<u8>) -> bool {
        let Ok(bytes) = bytes.try_into() else { return false };
        self.bytes = bytes;
        let fits = self.watched() * WATCHED_UNITS + self.cold() <= UNITS && self.debts() <= DEBTS_MAX;
        self.array::<4>(0) == FORMAT && fits && self.array::<8>(8) == self.checksum()
    }

    /// The bytes with their checksum, for a store that others write, or whose reads may tear.
    pub fn sealed(&mut self) -> &[u8; SLOT_BYTES] {
        let checksum = self.checksum();
        self.write(8, checksum);
        &self.bytes
    }
}

impl Slot {
    pub(super) fn watched(&self) -> usize {
        usize::from(self.array::<1>(WATCHED_COUNT)[0])
    }

    pub(super) fn cold(&self) -> usize {
        usize::from(self.array::<1>(COLD_COUNT)[0])
    }

    /// True if none of its keys is watched, and none was ever banned.
    pub(crate) fn is_plain(&self) -> bool {
        const { assert!(BANS == WATCHED_COUNT + 3) };
        let [watched, _, _, bans] = self.array(WATCHED_COUNT);
        watched | bans == 0
    }

    pub(crate) fn has_bans(&self) -> bool {
        self.array::<1>(BANS) != [0]
    }

    pub(crate) fn record_ban(&mut self) {
        self.write(BANS, [1]);
    }

    pub(super) fn debts(&self) -> usize {
        usize::from(self.array::<1>(DEBTS_COUNT)[0])
    }

    /// Sets the number of entries at [`WATCHED_COUNT`] or [`COLD_COUNT`], or that of debts at [`DEBTS_COUNT`].
    pub(super) fn set_count(&mut self, offset: usize, count: usize) {
        self.write(offset, [u8::try_from(count).unwrap_or(0)]);
    }

    pub(super) fn watched_at(&self, i: usize) -> Watched {
        let at = watched_offset(i);
        Watched::from_words(core::array::from_fn(|n| self.word(at + (1 + n) * WORD_BYTES)))
    }

    pub(super) fn set_watched(&mut self, i: usize, tag: Tag, watched: &Watched) {
        let mut at = watched_offset(i);
        for word in [tag.0].into_iter().chain(watched.to_words()) {
            self.write(at, word.to_le_bytes());
            at += WORD_BYTES;
        }
    }

    pub(super) fn cold_at(&self, i: usize) -> Cold {
        let at = cold_offset(i);
        Cold {
            bucket: Bucket::full_at(Time::from_nanos(self.word(at + 8))),
            share: FairShare::from_bits(self.word(at + 16)),
        }
    }

    pub(super) fn set_cold(&mut self, i: usize, tag: Tag, cold: &Cold) {
        let at = cold_offset(i);
        self.write(at, tag.0.to_le_bytes());
        self.write(at + 8, cold.bucket.refilled().as_nanos().to_le_bytes());
        self.write(at + 16, cold.share.bits().to_le_bytes());
    }

    pub(super) fn debt_at(&self, i: usize) -> Debt {
        Debt::from_bytes(self.array(DEBTS_OFFSET + i * DEBT_BYTES))
    }

    pub(super) fn set_debt(&mut self, i: usize, debt: Debt) {
        self.write(DEBTS_OFFSET + i * DEBT_BYTES, debt.bytes());
    }

    pub(super) fn base(&self) -> Time {
        Time::from_nanos(self.word(BASE))
    }

    pub(super) fn set_base(&mut self, base: Time) {
        self.write(BASE, base.as_nanos().to_le_bytes());
    }

    pub(super) fn watched_tag(&self, i: usize) -> Tag {
        Tag(self.word(watched_offset(i)))
    }

    /// The tag of the `i`-th cold entry. If there are fewer, that of no entry.
    pub(crate) fn cold_tag(&self, i: usize) -> Tag {
        Tag(self.word(cold_offset(i)))
    }

    pub(super) fn move_watched(&mut self, from: usize, to: usize) {
        self.move_units(watched_offset(from), watched_offset(to), WATCHED_UNITS);
    }

    pub(super) fn move_cold(&mut self, from: usize, to: usize) {
        self.move_units(cold_offset(from), cold_offset(to), 1);
    }

    fn move_units(&mut self, from: usize, to: usize, units: usize) {
        let bytes = units * UNIT_BYTES;
        if from + bytes <= UNITS_END && to + bytes <= UNITS_END {
            self.bytes.copy_within(from..from + bytes, to);
        }
    }

    fn checksum(&self) -> [u8; 8] {
        let watched = self.bytes.get(HEADER_BYTES..watched_offset(self.watched())).unwrap_or_default();
        // The debts follow the cold entries.
        let rest = self.bytes.get(self.cold_begin()..self.debts_end()).unwrap_or_default();
        let mut sum = self.word(0) ^ self.word(BASE);
        for bytes in [watched, rest] {
            if !bytes.is_empty() {
                sum = xxh64(bytes, sum);
            }
        }
        sum.to_le_bytes()
    }

    fn debts_end(&self) -> usize {
        DEBTS_OFFSET + self.debts() * DEBT_BYTES
    }

    /// The units of cold entries, in reverse: the first entry is in the last unit.
    fn cold_units(&self) -> &[u8] {
        self.bytes.get(self.cold_begin()..UNITS_END).unwrap_or_default()
    }

    fn cold_begin(&self) -> usize {
        UNITS_END.saturating_sub(self.cold() * UNIT_BYTES)
    }

    pub(super) fn find_cold(&self, tag: Tag) -> Option<usize> {
        let tag = tag.0.to_le_bytes();
        self.cold_units().rchunks_exact(UNIT_BYTES).position(|unit| unit.first_chunk() == Some(&tag))
    }

    pub(super) fn find_watched(&self, tag: Tag) -> Option<usize> {
        (0..self.watched()).find(|&i| self.watched_tag(i) == tag)
    }

    pub(super) fn word(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.array(offset))
    }

    fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        self.bytes.get(offset..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
    }

    pub(super) fn write<const N: usize>(&mut self, offset: usize, value: [u8; N]) {
        if let Some(room) = self.bytes.get_mut(offset..).and_then(<[u8]>::first_chunk_mut) {
            *room = value;
        }
    }
}

const fn watched_offset(i: usize) -> usize {
    HEADER_BYTES + i * WATCHED_UNITS * UNIT_BYTES
}

/// Cold entries fill the units from their end.
const fn cold_offset(i: usize) -> usize {
    (UNITS_END - UNIT_BYTES).saturating_sub(i * UNIT_BYTES)
}

/// Number of words in a slot, and the positions of its parts.
pub(crate) const SLOT_WORDS: usize = SLOT_BYTES / WORD_BYTES;
pub(crate) const COUNTS_WORD: usize = 0;
pub(crate) const BASE_WORD: usize = BASE / WORD_BYTES;
pub(crate) const UNITS_WORD: usize = HEADER_BYTES / WORD_BYTES;
pub(crate) const DEBT_WORDS: Range<usize> = DEBTS_OFFSET / WORD_BYTES..SLOT_WORDS;
/// Words in a unit.
pub(crate) const UNIT_WORDS: usize = UNIT_BYTES / WORD_BYTES;

const _: () = assert!(UNITS_WORD * WORD_BYTES == HEADER_BYTES && UNIT_WORDS * WORD_BYTES == UNIT_BYTES);
const _: () = assert!(DEBT_WORDS.start == UNITS_WORD + UNITS * UNIT_WORDS);

/// Numbers of entries of each kind in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryCounts {
    pub(crate) watched_units: usize,
    pub(crate) cold: usize,
    pub(crate) debt_words: usize,
    /// True if a key of the slot was ever banned.
    pub(crate) has_bans: bool,
}

impl EntryCounts {
    /// Decodes the word at [`COUNTS_WORD`].
    #[inline]
    pub(crate) fn of(word: u64) -> Self {
        let count = |at: usize| (word >> (8 * at) & 0xff) as usize;
        Self {
            watched_units: count(WATCHED_COUNT) * WATCHED_UNITS,
            cold: count(COLD_COUNT),
            debt_words: (count(DEBTS_COUNT) * DEBT_BYTES).div_ceil(WORD_BYTES),
            has_bans: count(BANS) != 0,
        }
    }
}

impl Slot {
    pub(crate) fn counts(&self) -> EntryCounts {
        EntryCounts::of(self.word_at(COUNTS_WORD))
    }

    pub(crate) fn word_at(&self, i: usize) -> u64 {
        self.word(i * WORD_BYTES)
    }

    pub(crate) fn set_word_at(&mut self, i: usize, word: u64) {
        self.write(i * WORD_BYTES, word.to_le_bytes());
    }
}
