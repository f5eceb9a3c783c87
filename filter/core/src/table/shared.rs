//! Slots in a program's own memory, shared by its threads without a lock.
//!
//! A slot is one word: the version of its state, and the number of the buffer that holds it. A reader copies the buffer, and
//! looks at the word again: if that has not changed, the copy is whole. A writer fills a buffer of its own, puts its
//! number in the place of the old one, and keeps the old one for its next write. So nobody waits for a writer that
//! lost its processor half-way.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::slot::{SLOT_WORDS, Slot};
use super::slots::{ReadError, Slots, Version, WriteError};

/// Stands for no buffer.
const NONE: u32 = u32::MAX;
/// How often a slot is read that others keep writing meanwhile.
const READS_MAX: u32 = 1_000;

/// The slots. Threads read and write them through handles.
pub struct SharedSlots {
    heads: Box<[Head]>,
    /// One for each slot, then spare ones.
    buffers: Box<[Buffer]>,
    /// The spare buffers that no handle has; [`NONE`] in the other places.
    spare: Box<[AtomicU32]>,
}

/// The state of a slot: its version in the upper half, its buffer's number in the lower. It is alone in its line of the
/// processor's cache, so that writers of other slots do not disturb it.
#[repr(align(64))]
struct Head(AtomicU64);

impl Head {
    const fn of(version: u32, buffer: u32) -> u64 {
        (version as u64) << 32 | buffer as u64
    }
}

/// The version and the buffer that a head names.
#[allow(clippy::cast_possible_truncation, reason = "half of it each")]
const fn halves(head: u64) -> (u32, u32) {
    ((head >> 32) as u32, head as u32)
}

/// Room for one slot.
#[repr(align(64))]
struct Buffer([AtomicU64; SLOT_WORDS]);

impl Buffer {
    fn of(slot: &Slot) -> Self {
        Self(core::array::from_fn(|i| AtomicU64::new(slot.word_at(i))))
    }

    /// Copies what this holds to `slot`. If it is written meanwhile, that may be no slot.
    fn read(&self, slot: &mut Slot) {
        let read = |words: Range<usize>, slot: &mut Slot| {
            for i in words {
                if let Some(word) = self.0.get(i) {
                    slot.set_word_at(i, word.load(Ordering::Relaxed));
                }
            }
        };
        read(Slot::HEADER_WORDS, slot);
        for words in slot.used_words() {
            read(words, slot);
        }
    }

    fn write(&self, slot: &Slot) {
        let write = |words: Range<usize>| {
            for i in words {
                if let Some(word) = self.0.get(i) {
                    word.store(slot.word_at(i), Ordering::Relaxed);
                }
            }
        };
        write(Slot::HEADER_WORDS);
        slot.used_words().into_iter().for_each(write);
    }
}

impl SharedSlots {
    /// `count` empty slots, at least 1, for as many handles as there are `writers`; others can only read.
    pub fn new(count: u32, writers: u32) -> Arc<Self> {
        let (count, empty) = (count.max(1), Slot::empty());
        let heads = (0..count).map(|buffer| Head(AtomicU64::new(Head::of(1, buffer)))).collect();
        let buffers = (0..count.saturating_add(writers)).map(|_| Buffer::of(&empty)).collect();
        let spare = (count..count.saturating_add(writers)).map(AtomicU32::new).collect();
        Arc::new(Self { heads, buffers, spare })
    }

    /// How many slots there are.
    pub fn count(&self) -> u32 {
        u32::try_from(self.heads.len()).unwrap_or(u32::MAX)
    }

    fn buffer(&self, number: u32) -> Option<&Buffer> {
        self.buffers.get(number as usize)
    }
}

/// One thread's way to the slots. It needs a buffer of its own to write, and takes one at its first write.
pub struct SlotsHandle {
    slots: Arc<SharedSlots>,
    own: u32,
}

impl SlotsHandle {
    /// A handle of `slots`.
    pub fn new(slots: Arc<SharedSlots>) -> Self {
        Self { slots, own: NONE }
    }

    /// The number of the buffer that it may write; none if other handles have them all.
    fn own(&mut self) -> Option<u32> {
        if self.own == NONE {
            let mut taken = self.slots.spare.iter().map(|place| place.swap(NONE, Ordering::Acquire));
            self.own = taken.find(|number| *number != NONE)?;
        }
        Some(self.own)
    }
}

impl Drop for SlotsHandle {
    fn drop(&mut self) {
        if self.own != NONE {
            let put = |place: &AtomicU32| {
                place.compare_exchange(NONE, self.own, Ordering::Release, Ordering::Relaxed).is_ok()
            };
            // There is a place for each buffer that was taken.
            let _ = self.slots.spare.iter().any(put);
        }
    }
}

impl Slots for SlotsHandle {
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError> {
        let head = &self.slots.heads.get(index as usize).ok_or(ReadError::Missing)?.0;
        let mut seen = head.load(Ordering::Acquire);
        for _ in 0..READS_MAX {
            let (version, buffer) = halves(seen);
            self.slots.buffer(buffer).ok_or(ReadError::Unavailable)?.read(into);
            // A word that a later owner of the buffer wrote is read only after that owner's fence, so the head that is
            // read now is not the one from before it.
            fence(Ordering::Acquire);
            let now = head.load(Ordering::Relaxed);
            if now == seen {
                return Ok(Version(version));
            }
            seen = head.load(Ordering::Acquire);
        }
        Err(ReadError::Unavailable)
    }

    fn write(&mut self, index: u32, slot: &mut Slot, version: Version) -> Result<(), WriteError> {
        let own = self.own().ok_or(WriteError::Unavailable)?;
        let head = &self.slots.heads.get(index as usize).ok_or(WriteError::Unavailable)?.0;
        let seen = head.load(Ordering::Relaxed);
        let (current, buffer) = halves(seen);
        if current != version.0 {
            return Err(WriteError::Conflict);
        }
        // Whoever reads a word of what follows sees that this buffer's slot has another by now.
        fence(Ordering::Release);
        self.slots.buffer(own).ok_or(WriteError::Unavailable)?.write(slot);
        let next = Head::of(current.wrapping_add(1).max(1), own);
        match head.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => {
                self.own = buffer;
                Ok(())
            }
            Err(_) => Err(WriteError::Conflict),
        }
    }

    fn count(&self) -> u32 {
        self.slots.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buckets::{Bucket, EvenShare};
    use crate::table::slot::{Cold, Entry, Tag};
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::vec::Vec;
    use weir_wire::time::Time;

    const NOW: Time = Time::from_nanos(1);

    fn tag(n: u64) -> Tag {
        Tag::of_key(n + 1, 0)
    }

    /// Has every key of the slot say `n`.
    fn say(slot: &mut Slot, keys: u64, n: u64) {
        let entry =
            Entry::Cold(Cold { bucket: Bucket::full_at(Time::from_nanos(n)), share: EvenShare::WHOLE });
        for key in 0..keys {
            assert!(slot.put(tag(key), &entry, NOW).is_some());
        }
    }

    /// What all keys of the slot say, and how many they are.
    fn said(slot: &Slot) -> (u64, u64) {
        let [_, units] = slot.used_words();
        let says: Vec<u64> = units.skip(1).step_by(3).map(|i| slot.word_at(i)).collect();
        let first = says.first().copied().unwrap_or(0);
        assert!(says.iter().all(|n| *n == first), "torn: {says:?}");
        (first, says.len() as u64)
    }

    #[test]
    fn a_write_succeeds_only_from_the_state_that_was_read() {
        let slots = SharedSlots::new(2, 2);
        let (mut one, mut other) = (SlotsHandle::new(Arc::clone(&slots)), SlotsHandle::new(slots));
        let mut slot = Slot::empty();
        let first = one.read(1, &mut slot).unwrap();
        assert_eq!(other.read(1, &mut slot), Ok(first));
        say(&mut slot, 3, 7);
        assert_eq!(one.write(1, &mut slot, first), Ok(()));
        assert_eq!(other.write(1, &mut slot, first), Err(WriteError::Conflict));
        let mut seen = Slot::empty();
        let second = other.read(1, &mut seen).unwrap();
        assert_eq!((said(&seen), second != first), ((7, 3), true));
        assert_eq!((other.read(2, &mut seen), other.count()), (Err(ReadError::Missing), 2));
        assert_eq!(other.write(2, &mut seen, second), Err(WriteError::Unavailable));
    }

    #[test]
    fn a_handle_that_ends_leaves_its_buffer_to_another() {
        let slots = SharedSlots::new(1, 1);
        let mut slot = Slot::empty();
        for n in 1..9 {
            let mut writer = SlotsHandle::new(Arc::clone(&slots));
            let mut other = SlotsHandle::new(Arc::clone(&slots));
            let version = writer.read(0, &mut slot).unwrap();
            say(&mut slot, 1, n);
            assert_eq!(writer.write(0, &mut slot, version), Ok(()));
            let version = other.read(0, &mut slot).unwrap();
            assert_eq!(said(&slot), (n, 1));
            assert_eq!(other.write(0, &mut slot, version), Err(WriteError::Unavailable), "none is left");
        }
    }

    #[test]
    fn threads_see_whole_slots_and_lose_no_write() {
        const WRITERS: u64 = 4;
        const WRITES: u64 = 20_000;
        let slots = SharedSlots::new(1, 4);
        let (begin, is_over) = (Barrier::new(5), AtomicBool::new(false));
        let mut handle = SlotsHandle::new(Arc::clone(&slots));
        let mut slot = Slot::empty();
        let version = handle.read(0, &mut slot).unwrap();
        say(&mut slot, 1, 0);
        handle.write(0, &mut slot, version).unwrap();
        drop(handle);
        thread::scope(|scope| {
            let writer = || {
                let (mut handle, mut slot) = (SlotsHandle::new(Arc::clone(&slots)), Slot::empty());
                begin.wait();
                for _ in 0..WRITES {
                    loop {
                        let version = handle.read(0, &mut slot).unwrap();
                        let (n, keys) = said(&slot);
                        // Sometimes another number of keys.
                        say(&mut slot, keys.max(1 + n % 9), n + 1);
                        if handle.write(0, &mut slot, version).is_ok() {
                            break;
                        }
                    }
                }
            };
            let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(writer)).collect();
            scope.spawn(|| {
                let (mut handle, mut slot) = (SlotsHandle::new(Arc::clone(&slots)), Slot::empty());
                begin.wait();
                while !is_over.load(Ordering::Relaxed) {
                    handle.read(0, &mut slot).unwrap();
                    said(&slot);
                }
            });
            for writer in writers {
                writer.join().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mut handle = SlotsHandle::new(slots);
        handle.read(0, &mut slot).unwrap();
        assert_eq!(said(&slot), (WRITERS * WRITES, 9));
    }
}
