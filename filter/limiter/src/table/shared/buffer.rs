//! The memory of slots: for each, a head with its state and a buffer with its words, in the order that requests need.
//!
//! ```text
//!  word  0       counts        as in a slot's bytes
//!        1       fingerprints  of the cold entries, four bits each, in place of a checksum
//!        2..50   units         of three words each; the first cold entry first, so watched entries are at the end
//!       50       base
//!       51..64   debts
//! ```
//!
//! So the first cache line locates a cold entry, and contains two of them.

use crate::FIBONACCI;
use crate::table::slot::{
    BASE_WORD, COUNTS_WORD, DEBT_WORDS, EntryCounts, KEYS_PER_SLOT as UNITS, SLOT_WORDS, Slot, Tag, UNIT_WORDS,
    UNITS_WORD, WATCHED_UNITS, WATCHED_WORDS,
};

const PRINTS: usize = 1;
const FIRST_UNIT: usize = 2;
const BASE: usize = FIRST_UNIT + UNITS * UNIT_WORDS;
const ONES: u64 = 0x1111_1111_1111_1111;
const PRINT_BITS: u32 = 4;

const _: () = assert!(WATCHED_UNITS * UNIT_WORDS == 1 + WATCHED_WORDS);
const _: () = assert!(UNITS * PRINT_BITS as usize == u64::BITS as usize);
const _: () = assert!(BASE + 1 == DEBT_WORDS.start && DEBT_WORDS.end == SLOT_WORDS);

/// Memory for one slot, one cache line longer than a slot, so that the first lines of all buffers, which decisions
/// read, are spread over all sets of the processor's cache instead of an eighth of them.
#[repr(align(64))]
pub(super) struct SlotBuffer([AtomicU64; SLOT_WORDS + LINE_WORDS]);

const LINE_WORDS: usize = 8;
const _: () = assert!(SLOT_WORDS.is_multiple_of(2 * LINE_WORDS));

impl SlotBuffer {
    pub(super) fn of(slot: &Slot) -> Self {
        let buffer = Self(core::array::from_fn(|_| AtomicU64::new(0)));
        buffer.write(slot);
        buffer
    }

    /// Copies the contents to `slot`. If the buffer is written meanwhile, the result may be invalid.
    pub(super) fn read(&self, slot: &mut Slot) {
        for (from, to) in [(0, COUNTS_WORD), (BASE, BASE_WORD)] {
            slot.set_word_at(to, self.word(from));
        }
        for_used(slot.counts(), |at, i| slot.set_word_at(i, self.word(at)));
    }

    pub(super) fn write(&self, slot: &Slot) {
        let counts = slot.counts();
        for (to, from) in [(0, COUNTS_WORD), (BASE, BASE_WORD)] {
            self.set(to, slot.word_at(from));
        }
        self.set(PRINTS, prints_of(slot, counts.cold));
        for_used(counts, |at, i| self.set(at, slot.word_at(i)));
    }

    #[inline]
    pub(super) fn word(&self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.0.get(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn counts(&self) -> EntryCounts {
        EntryCounts::of(self.word(0))
    }

    /// Offset of the watched entry of the key `tag`, among those in the first `units` units.
    pub(super) fn find_watched(&self, tag: Tag, units: usize) -> Option<usize> {
        let first = |number: usize| FIRST_UNIT + UNITS.saturating_sub(1 + number) * UNIT_WORDS;
        (0..units.min(UNITS)).step_by(WATCHED_UNITS).map(first).find(|at| self.word(*at) == tag.bits())
    }

    /// Offset of the cold entry of the key `tag`, among the first `cold`.
    #[inline]
    pub(super) fn find_cold(&self, tag: Tag, cold: usize) -> Option<usize> {
        let differs = self.word(PRINTS) ^ (print_of(tag) * ONES);
        // Sets the highest bit of every fingerprint that is zero, and of few others (Warren, "Hacker's Delight", 6-1).
        let mut alike = differs.wrapping_sub(ONES) & !differs & ONES << (PRINT_BITS - 1);
        while alike != 0 {
            let i = (alike.trailing_zeros() / PRINT_BITS) as usize;
            if i >= cold {
                return None;
            }
            let at = FIRST_UNIT + i * UNIT_WORDS;
            if self.word(at) == tag.bits() {
                return Some(at);
            }
            alike &= alike - 1;
        }
        None
    }
}

/// Offsets of the words after the tag of the watched entry at `at`. Its second unit is stored before the first.
#[inline]
pub(super) fn watched_words(at: usize) -> [usize; WATCHED_WORDS] {
    let second = at.saturating_sub(UNIT_WORDS);
    [at + 1, at + 2, second, second + 1, second + 2]
}

/// Calls `copy` with the offset here and the offset in a slot for each used word after the header.
fn for_used(counts: EntryCounts, mut copy: impl FnMut(usize, usize)) {
    let EntryCounts { watched_units, cold, debt_words, .. } = counts;
    let mut unit = |number: usize| {
        // The last unit of a slot is the first here.
        let (at, i) = (FIRST_UNIT + number * UNIT_WORDS, UNITS_WORD + (UNITS - 1 - number) * UNIT_WORDS);
        (0..UNIT_WORDS).for_each(|word| copy(at + word, i + word));
    };
    (0..cold.min(UNITS)).for_each(&mut unit);
    (UNITS.saturating_sub(watched_units)..UNITS).for_each(&mut unit);
    DEBT_WORDS.take(debt_words).for_each(|i| copy(i, i));
}

fn prints_of(slot: &Slot, cold: usize) -> u64 {
    let of = |i: usize| print_of(slot.cold_tag(i)) << (u32::try_from(i).unwrap_or(0) * PRINT_BITS);
    (0..cold.min(UNITS)).map(of).fold(0, |prints, print| prints | print)
}

/// Fingerprint of a key. The tag is hashed again, because salts of different rules have bits in common.
#[inline]
fn print_of(tag: Tag) -> u64 {
    tag.bits().wrapping_mul(FIBONACCI) >> (u64::BITS - PRINT_BITS)
}

/// The state of a slot: its version in the upper half, its buffer's number in the lower. Eight share a cache line, so
/// that the list, which a decision needs before it can read the buffer, stays in the cache.
pub(super) struct Head(AtomicU64);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct HeadState {
    /// Odd while a thread holds the slot, to change entries in place or to read it undisturbed; never 0, which
    /// is [`Version::NONE`](crate::table::Version::NONE).
    pub(super) version: u32,
    pub(super) buffer: u32,
}

impl HeadState {
    pub(super) const FIRST: u32 = 2;

    #[allow(clippy::cast_possible_truncation, reason = "half of it each")]
    const fn of(head: u64) -> Self {
        Self { version: (head >> 32) as u32, buffer: head as u32 }
    }

    const fn bits(self) -> u64 {
        (self.version as u64) << 32 | self.buffer as u64
    }

    pub(super) const fn is_held(self) -> bool {
        self.version & 1 == 1
    }

    pub(super) const fn begun(self) -> Self {
        Self { version: self.version | 1, ..self }
    }

    /// The next state that is not held.
    pub(super) fn next(self) -> Self {
        Self { version: (self.version | 1).wrapping_add(1).max(Self::FIRST), ..self }
    }
}

impl Head {
    pub(super) fn of(state: HeadState) -> Self {
        Self(AtomicU64::new(state.bits()))
    }

    #[inline]
    pub(super) fn state(&self) -> HeadState {
        HeadState::of(self.0.load(Ordering::Acquire))
    }

    /// [`Head::state`] without ordering: earlier reads may be newer.
    #[inline]
    pub(super) fn state_relaxed(&self) -> HeadState {
        HeadState::of(self.0.load(Ordering::Relaxed))
    }

    /// Replaces the state `known` by `next`; false if it is no longer `known`.
    #[inline]
    pub(super) fn replace(&self, known: HeadState, next: HeadState) -> bool {
        self.0.compare_exchange(known.bits(), next.bits(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(not(all(test, loom)))]
pub(super) use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(all(test, loom))]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A number of tries; smaller in a model, which explores every outcome of each try.
pub(super) const fn tries(real: u32, in_a_model: u32) -> u32 {
    if cfg!(all(test, loom)) { in_a_model } else { real }
}

/// Does nothing: loom's own function would let all other threads run first, and no bounded wait would ever end.
#[cfg(all(test, loom))]
pub(super) fn spin_loop() {}
