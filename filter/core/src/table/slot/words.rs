//! A slot as words of eight bytes, for memory that is read and written word by word.

use core::ops::Range;

pub(crate) use super::layout::WATCHED_UNITS;
use super::layout::{
    BANS, BASE, COLD_COUNT, DEBT_BYTES, DEBTS_COUNT, DEBTS_OFFSET, HEADER_BYTES, SLOT_BYTES, Slot,
    UNIT_BYTES, UNITS, WATCHED_COUNT, WORD_BYTES,
};
use super::tag::Tag;

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
    /// Numbers of its entries of each kind.
    pub(crate) fn counts(&self) -> EntryCounts {
        EntryCounts::of(self.word_at(COUNTS_WORD))
    }

    /// The word `i`.
    pub(crate) fn word_at(&self, i: usize) -> u64 {
        self.word(i * WORD_BYTES)
    }

    /// Replaces the word `i`.
    pub(crate) fn set_word_at(&mut self, i: usize, word: u64) {
        self.write(i * WORD_BYTES, word.to_le_bytes());
    }

    /// The tag of the `i`-th cold entry. If there are fewer, that of no entry.
    pub(crate) fn tag_of_cold(&self, i: usize) -> Tag {
        self.cold_tag(i)
    }
}
