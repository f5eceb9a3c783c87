//! Slots in a program's own memory, shared by its threads without a lock.
//!
//! A slot is one word, its head: the version of its state, and the number of the [`Buffer`] that holds it. A reader copies
//! the buffer, and looks at the head again: if that has not changed, the copy is whole. One that others keep from that
//! holds the slot while it reads.
//!
//! **A whole slot is written as a copy.** A writer fills a spare buffer, puts its number in the place of the old one, and
//! leaves the old one to whoever writes next.
//!
//! **Entries are changed where they are** ([`in_place`]), between two versions: an odd one in the head says that the
//! slot is held. Where a request has keys in several slots, all of them are held before the first entry changes. Others wait for the next version, but some microseconds at most: the holder may have lost its processor
//! half-way. Then they go on with what they read, and a writer among them puts a copy in place as always. The one that
//! finds its change overtaken keeps the buffer that it changed, which no slot has any more, and decides again. So what it
//! took is taken twice at worst, though the second time there may be too little, from an entry that others read meanwhile or from another slot that was not overtaken (I3), and
//! of a watched entry counted twice. What others read meanwhile has whole words.
//!
//! **A writer that keeps losing holds the slot** from its next read to its write ([`hold`]): changes in place are so much
//! quicker than copies that it would never have its turn otherwise.
//!
//! So a holder that lost its processor holds others up for some microseconds at most, and no change that was reported as
//! done is lost.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::slot::Slot;
use super::slots::{CHANGED_MAX, Change, Judge, ReadError, Slots, Version, WriteError};
use atomics::{AtomicU32, Ordering, fence, spin_loop, tries};
use buffer::Buffer;
use head::{Head, State};
use held::{Held, Losses};

mod atomics;
mod buffer;
mod head;
mod held;
mod hold;
mod in_place;
#[cfg(test)]
mod tests;

/// Stands for no buffer.
const NONE: u32 = u32::MAX;
/// How often a slot is read that others keep writing meanwhile.
const READS_MAX: u32 = tries(1_000, 3);
/// After so many of these, the reader keeps others from changing entries while it reads.
const READS_BESIDE: u32 = tries(16, 1);
/// How often a slot is looked at that is held, before it is read as it is: some microseconds, which is a hundred times as
/// long as a change takes.
const LOOKS_MAX: u32 = tries(100, 2);

/// The slots. Threads read and write them through handles.
pub struct SharedSlots {
    heads: Box<[Head]>,
    /// One for each slot, then spare ones: one for each thread that writes, and as many as may be overtaken at a time.
    buffers: Box<[Buffer]>,
    /// The spare buffers that nobody writes; [`NONE`] in the other places.
    spare: Box<[AtomicU32]>,
}

impl SharedSlots {
    /// `count` empty slots, at least 1, for any number of handles, of which `writers` threads write at once.
    pub fn new(count: u32, writers: u32) -> Arc<Self> {
        let (count, empty) = (count.max(1), Slot::empty());
        #[allow(clippy::cast_possible_truncation, reason = "it is small")]
        let overtaken = writers.saturating_mul(CHANGED_MAX as u32);
        let end = count.saturating_add(writers).saturating_add(overtaken);
        let first = |buffer| Head::of(State { version: State::FIRST, buffer });
        Arc::new(Self {
            heads: (0..count).map(first).collect(),
            buffers: (0..end).map(|_| Buffer::of(&empty)).collect(),
            spare: (count..end).map(AtomicU32::new).collect(),
        })
    }

    /// How many slots there are.
    pub fn count(&self) -> u32 {
        u32::try_from(self.heads.len()).unwrap_or(u32::MAX)
    }

    #[inline]
    fn head(&self, index: u32) -> Option<&Head> {
        self.heads.get(index as usize)
    }

    #[inline]
    fn buffer(&self, state: State) -> Option<&Buffer> {
        self.buffers.get(state.buffer as usize)
    }

    /// The number of a spare buffer, to write; none if more threads write than there may be.
    fn take_spare(&self) -> Option<u32> {
        // Twice: one may be put behind the walk while the one before it is taken.
        let places = self.spare.iter().chain(&*self.spare);
        let mut taken = places.map(|place| place.swap(NONE, Ordering::Acquire));
        taken.find(|number| *number != NONE)
    }

    /// Leaves a buffer that no slot has any more to whoever writes next.
    fn put_back(&self, number: u32) {
        let put = |place: &AtomicU32| {
            place.compare_exchange(NONE, number, Ordering::Release, Ordering::Relaxed).is_ok()
        };
        // There is a place for each buffer that was taken, but one may be emptied behind the walk while another is filled
        // before it.
        while !self.spare.iter().any(put) {
            spin_loop();
        }
    }
}

/// One thread's way to the slots.
pub struct SlotsHandle {
    slots: Arc<SharedSlots>,
    /// The slot that it holds until its write.
    held: Option<Held>,
    losses: Losses,
}

impl SlotsHandle {
    /// A handle of `slots`.
    pub fn new(slots: Arc<SharedSlots>) -> Self {
        Self { slots, held: None, losses: Losses::default() }
    }
}

impl Drop for SlotsHandle {
    fn drop(&mut self) {
        self.release();
    }
}

impl Slots for SlotsHandle {
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError> {
        self.release();
        if self.losses.are_many(index)
            && let Some(version) = self.hold(index, into)
        {
            return Ok(version);
        }
        let head = self.slots.head(index).ok_or(ReadError::Missing)?;
        let (mut seen, mut looks) = (head.state(), 0);
        for reads in 0..READS_MAX {
            while seen.is_held() && looks < LOOKS_MAX {
                (looks, seen) = (looks + 1, head.state());
                spin_loop();
            }
            let buffer = self.slots.buffer(seen).ok_or(ReadError::Unavailable)?;
            if reads >= READS_BESIDE && !seen.is_held() && head.replace(seen, seen.begun()) {
                buffer.read(into);
                if head.replace(seen.begun(), seen.next()) {
                    return Ok(Version(seen.next().version));
                }
                // Overtaken: no slot has this buffer any more.
                self.slots.put_back(seen.buffer);
                seen = head.state();
                continue;
            }
            buffer.read(into);
            // A word that a later owner of the buffer wrote is read only after that owner's fence, so the head that is
            // read now is not the one from before it.
            fence(Ordering::Acquire);
            if head.state_relaxed() == seen {
                return Ok(Version(seen.version));
            }
            seen = head.state();
        }
        Err(ReadError::Unavailable)
    }

    fn write(&mut self, index: u32, slot: &mut Slot, version: Version) -> Result<(), WriteError> {
        let head = self.slots.head(index).ok_or(WriteError::Unavailable)?;
        let seen = head.state_relaxed();
        if seen.version != version.0 {
            return Err(self.lost(index));
        }
        let own = self.slots.take_spare().ok_or(WriteError::Unavailable)?;
        let next = State { buffer: own, ..seen.next() };
        // Whoever reads a word of what follows sees that this buffer's slot has another by now.
        fence(Ordering::Release);
        self.slots.buffer(next).ok_or(WriteError::Unavailable)?.write(slot);
        if !head.replace(seen, next) {
            self.slots.put_back(own);
            return Err(self.lost(index));
        }
        let is_mine = self.held.take_if(|held| held.is(index, seen)).is_some();
        // Another one who holds the old buffer leaves it to others.
        if is_mine || !seen.is_held() {
            self.slots.put_back(seen.buffer);
        }
        self.losses = Losses::default();
        Ok(())
    }

    fn count(&self) -> u32 {
        self.slots.count()
    }

    #[inline]
    fn changes_in_place(&self) -> bool {
        true
    }

    fn change_in_place(&mut self, indices: &[u32], changes: &mut [Change], judge: Judge<'_>) -> bool {
        self.release();
        self.change(indices, changes, judge)
    }
}
