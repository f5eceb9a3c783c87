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
//! Reads out of range return zero, and writes do nothing, so no index can trap. Unused units may contain anything.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use super::entry::{Bounded, Cold, Hold, SharingState, Strict, Watched};
use super::tag::{Debt, FINE_BITS, MOMENT_BITS, Moment, STEP_BITS, Tag};
use crate::algorithms::{Bucket, FairShare};
use weir_protocol::messages::{AdmitRatio, DIVISOR_MAX};
use weir_protocol::quota::TOKENS_MAX;
use weir_protocol::time::Time;
use xxhash_rust::xxh64::xxh64;

pub const SLOT_BYTES: usize = 512;
pub(super) const UNITS: usize = 16;
pub(super) const DEBTS_MAX: usize = (SLOT_BYTES - DEBTS_OFFSET) / DEBT_BYTES;
pub(crate) const WATCHED_UNITS: usize = 2;

/// "WER5": the layout above, and that of a watched entry. The names of shared slots contain the same digit.
const FORMAT: [u8; 4] = *b"WER5";
pub(super) const WORD_BYTES: usize = 8;
pub(super) const HEADER_BYTES: usize = 24;
pub(super) const UNIT_BYTES: usize = 24;
pub(super) const DEBTS_OFFSET: usize = HEADER_BYTES + UNITS * UNIT_BYTES;
pub(super) const DEBT_BYTES: usize = 3;
pub(super) const WATCHED_COUNT: usize = 4;
pub(super) const COLD_COUNT: usize = 5;
pub(super) const DEBTS_COUNT: usize = 6;
pub(super) const BANS: usize = 7;
pub(super) const BASE: usize = 16;

const _: () = assert!(DEBTS_OFFSET + DEBTS_MAX * DEBT_BYTES <= SLOT_BYTES);

/// The packed set of entries, read and written in place.
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

    /// Reads the bytes of a sealed slot; false if they are no slot or were torn, and then the contents are undefined.
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

    pub(super) fn watched(&self) -> usize {
        usize::from(self.array::<1>(WATCHED_COUNT)[0])
    }

    pub(super) fn cold(&self) -> usize {
        usize::from(self.array::<1>(COLD_COUNT)[0])
    }

    /// True if none of the slot's keys is watched, and none was ever banned.
    pub(crate) fn is_plain(&self) -> bool {
        const { assert!(BANS == WATCHED_COUNT + 3) };
        let [watched, _, _, bans] = self.array(WATCHED_COUNT);
        watched | bans == 0
    }

    pub(crate) fn has_bans(&self) -> bool {
        self.array::<1>(BANS) != [0]
    }

    pub(super) fn debts(&self) -> usize {
        usize::from(self.array::<1>(DEBTS_COUNT)[0])
    }

    /// Sets the count at [`WATCHED_COUNT`], [`COLD_COUNT`] or [`DEBTS_COUNT`].
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

    /// The tag of the `i`-th cold entry. If there are fewer, a tag of no entry.
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
        if from + bytes <= DEBTS_OFFSET && to + bytes <= DEBTS_OFFSET {
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

    fn cold_begin(&self) -> usize {
        DEBTS_OFFSET.saturating_sub(self.cold() * UNIT_BYTES)
    }

    pub(super) fn find_cold(&self, tag: Tag) -> Option<usize> {
        let (tag, units) = (tag.0.to_le_bytes(), self.bytes.get(self.cold_begin()..DEBTS_OFFSET).unwrap_or_default());
        // In reverse: the first entry is in the last unit.
        units.rchunks_exact(UNIT_BYTES).position(|unit| unit.first_chunk() == Some(&tag))
    }

    pub(super) fn find_watched(&self, tag: Tag) -> Option<usize> {
        (0..self.watched()).find(|&i| self.watched_tag(i) == tag)
    }

    pub(crate) fn counts(&self) -> EntryCounts {
        EntryCounts::of(self.word_at(COUNTS_WORD))
    }

    pub(crate) fn word_at(&self, i: usize) -> u64 {
        self.word(i * WORD_BYTES)
    }

    pub(crate) fn set_word_at(&mut self, i: usize, word: u64) {
        self.write(i * WORD_BYTES, word.to_le_bytes());
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

const fn cold_offset(i: usize) -> usize {
    (DEBTS_OFFSET - UNIT_BYTES).saturating_sub(i * UNIT_BYTES)
}

/// Words in a slot, and the positions of its parts.
pub(crate) const SLOT_WORDS: usize = SLOT_BYTES / WORD_BYTES;
pub(crate) const COUNTS_WORD: usize = 0;
pub(crate) const BASE_WORD: usize = BASE / WORD_BYTES;
pub(crate) const UNITS_WORD: usize = HEADER_BYTES / WORD_BYTES;
pub(crate) const DEBT_WORDS: Range<usize> = DEBTS_OFFSET / WORD_BYTES..SLOT_WORDS;
pub(crate) const UNIT_WORDS: usize = UNIT_BYTES / WORD_BYTES;

const _: () = assert!(UNITS_WORD * WORD_BYTES == HEADER_BYTES && UNIT_WORDS * WORD_BYTES == UNIT_BYTES);
const _: () = assert!(DEBT_WORDS.start == UNITS_WORD + UNITS * UNIT_WORDS);

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

// A watched entry as words of eight bytes, after its tag. A word's fields are listed from its upper bits to its lower.
//
//  word 0  bucket    64 b  time at which it is full again
//       1  until     40 b  in steps of 2^22 ns
//          moment    24 b  likewise; unconfirmed_since of a bounded rule, updated_at of a strict one
//       2  admitted  32 b
//          epoch     32 b
//       3  charged   32 b
//          count     32 b  asked of a bounded rule, awaited of a strict one
//       4  divisor   12 b  rate divisor; of a strict rule, the rest of until, in steps of 2^10 ns
//          tokens    20 b
//          ratio     32 b  admit ratio, or a marker above all ratios

pub(crate) const WATCHED_WORDS: usize = 5;

/// Markers in place of an admit ratio, for entries without a grant: above every ratio.
const SHARE: u32 = AdmitRatio::ONE.bits() + 1;
const LEASE: u32 = SHARE + 1;
const BAR: u32 = LEASE + 1;
/// Bits of an entry's tokens; the rest of that half is its rate divisor.
const BURST_BITS: u32 = 20;
const BURST_MASK: u32 = (1 << BURST_BITS) - 1;
const _: () = assert!(TOKENS_MAX <= BURST_MASK && DIVISOR_MAX <= u32::MAX >> BURST_BITS);
/// Number of steps of a strict rule's times in one step of other times.
const FINE_STEPS: u32 = 1 << (STEP_BITS - FINE_BITS);
const _: () = assert!(FINE_STEPS - 1 <= u32::MAX >> BURST_BITS);

impl Watched {
    /// Number of leading words that requests change: bucket, `unconfirmed_since`, `admitted`; `until` and `epoch` stay.
    pub(crate) const WORDS_OF_REQUESTS: usize = 3;

    pub(crate) fn from_words([bucket, times, admitted, charged, hold]: [u64; WATCHED_WORDS]) -> Self {
        let (moment, count) = (Moment::from_bits(low(times)), low(charged));
        let (tokens, divisor) = (high(hold) & BURST_MASK, high(hold) >> BURST_BITS);
        let steps = times >> MOMENT_BITS << STEP_BITS;
        let bounded = |hold| SharingState::Bounded(Bounded { asked: count, unconfirmed_since: moment, hold });
        let (until, kind) = match low(hold) {
            stands @ (LEASE | BAR) => {
                let is_barred = stands == BAR;
                let strict = Strict { awaited: count, updated_at: moment, is_barred, left: tokens };
                (steps | u64::from(divisor) << FINE_BITS, SharingState::Strict(strict))
            }
            SHARE => (steps, bounded(Hold::Share { cost: tokens, pops: divisor.max(1) })),
            ratio => {
                let (ratio, divisor) = (AdmitRatio::from_bits(ratio), divisor.max(1));
                (steps, bounded(Hold::Grant { ratio, burst: tokens, divisor }))
            }
        };
        Self {
            bucket: Bucket::full_at(Time::from_nanos(bucket)),
            until: Time::from_nanos(until),
            epoch: low(admitted),
            admitted: high(admitted),
            charged: high(charged),
            kind,
        }
    }

    pub(crate) fn to_words(self) -> [u64; WATCHED_WORDS] {
        let (moment, count, ratio, divisor) = match self.kind {
            SharingState::Bounded(Bounded { asked, unconfirmed_since, hold: Hold::Grant { ratio, divisor, .. } }) => {
                (unconfirmed_since, asked, ratio.bits(), divisor)
            }
            SharingState::Bounded(Bounded { asked, unconfirmed_since, hold: Hold::Share { pops, .. } }) => {
                (unconfirmed_since, asked, SHARE, pops)
            }
            SharingState::Strict(Strict { awaited, updated_at, is_barred, .. }) => {
                let fine = low(self.until.as_nanos() >> FINE_BITS) % FINE_STEPS;
                (updated_at, awaited, if is_barred { BAR } else { LEASE }, fine)
            }
        };
        [
            self.bucket.refilled().as_nanos(),
            self.until.as_nanos() >> STEP_BITS << MOMENT_BITS | u64::from(moment.bits()),
            word(self.admitted, self.epoch),
            word(self.charged, count),
            word(divisor << BURST_BITS | self.kind.tokens() & BURST_MASK, ratio),
        ]
    }
}

#[allow(clippy::cast_possible_truncation, reason = "half of it")]
const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    low(word >> 32)
}

const fn word(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}
