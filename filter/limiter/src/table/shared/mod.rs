//! Slots in a program's own memory, shared by its threads without a lock.
//!
//! A slot is one word, its head: a version, and the number of the [`SlotBuffer`] with its contents. A reader copies the
//! buffer, then reads the head again; if the head has not changed, the copy is whole. A reader that is interrupted too
//! often holds the slot while it reads.
//!
//! **A whole slot is written as a copy.** A writer fills a spare buffer, replaces the old buffer's number in the head
//! by its number, and makes the old buffer a spare.
//!
//! **Entries are changed in place** ([`in_place`]), between two versions; an odd version in the head means that the
//! slot is held. If a request has keys in several slots, all are held before the first entry changes. Others wait for
//! the next version, but only for some microseconds, because the holder may have lost its processor half-way. Then they
//! continue with the current contents, whose words are whole, and a writer among them installs a copy as always. The
//! thread whose change was overtaken keeps the buffer, which no slot refers to any more, and decides again. So at worst
//! its tokens are taken twice, and counted twice under a watched entry (I3). No change reported as done is lost.
//!
//! **A writer that keeps losing holds the slot** from its next read to its write ([`SlotsHandle::hold`]). Changes in
//! place are so much quicker than copies that it would never succeed otherwise.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::table::slot::Slot;
use crate::table::{CHANGED_MAX, ChangeFn, EntryChange, ReadError, Slots, Version, WriteError};
use buffer::{AtomicU32, Head, HeadState, Ordering, SlotBuffer, fence, spin_loop, tries};

mod buffer;
mod in_place;
#[cfg(test)]
mod tests;

/// Marks the absence of a buffer.
const NONE: u32 = u32::MAX;
/// Maximum number of reads of a slot that others keep writing.
const READS_MAX: u32 = tries(1_000, 3);
/// Number of these reads after which the reader holds the slot while it reads.
const READS_BESIDE: u32 = tries(16, 1);
/// Maximum number of checks of a held slot before it is read as it is: some µs, a hundred times the duration of
/// a change.
const LOOKS_MAX: u32 = tries(100, 2);
/// Number of consecutive late writes of a slot after which the next read holds it.
const LOSSES_MAX: u32 = 3;

/// The slots. Threads read and write them through handles.
pub struct SharedSlots {
    heads: Box<[Head]>,
    /// One for each slot, then the spare ones: one for each thread that writes, and one for each that may be overtaken.
    buffers: Box<[SlotBuffer]>,
    /// Spare buffers that nobody writes; [`NONE`] in the other places.
    spare: Box<[AtomicU32]>,
}

impl SharedSlots {
    /// Creates `count` empty slots, at least 1, for any number of handles. At most `writers` threads write at once.
    pub fn new(count: u32, writers: u32) -> Arc<Self> {
        let (count, empty) = (count.max(1), Slot::empty());
        #[allow(clippy::cast_possible_truncation, reason = "it is small")]
        let overtaken = writers.saturating_mul(CHANGED_MAX as u32);
        let end = count.saturating_add(writers).saturating_add(overtaken);
        let first = |buffer| Head::of(HeadState { version: HeadState::FIRST, buffer });
        Arc::new(Self {
            heads: (0..count).map(first).collect(),
            buffers: (0..end).map(|_| SlotBuffer::of(&empty)).collect(),
            spare: (count..end).map(AtomicU32::new).collect(),
        })
    }

    pub fn count(&self) -> u32 {
        u32::try_from(self.heads.len()).unwrap_or(u32::MAX)
    }

    #[inline]
    fn head(&self, index: u32) -> Option<&Head> {
        self.heads.get(index as usize)
    }

    #[inline]
    fn buffer(&self, state: HeadState) -> Option<&SlotBuffer> {
        self.buffers.get(state.buffer as usize)
    }

    /// Takes a spare buffer for writing; `None` if more threads write than were announced.
    fn take_spare(&self) -> Option<u32> {
        // Walked twice: during a walk, a buffer may be put behind it while one ahead is taken.
        let places = self.spare.iter().chain(&*self.spare);
        let mut taken = places.map(|place| place.swap(NONE, Ordering::Acquire));
        taken.find(|number| *number != NONE)
    }

    /// Makes a buffer that no slot refers to a spare.
    fn put_back(&self, number: u32) {
        let put =
            |place: &AtomicU32| place.compare_exchange(NONE, number, Ordering::Release, Ordering::Relaxed).is_ok();
        // There is a place for each, but during a walk one behind it may be emptied while one ahead is filled.
        while !self.spare.iter().any(put) {
            spin_loop();
        }
    }
}

/// One thread's access to the slots.
pub struct SlotsHandle {
    slots: Arc<SharedSlots>,
    held: Option<HeldSlot>,
    /// The slot of the handle's last late writes.
    lost: u32,
    /// Number of consecutive late writes of that slot.
    losses: u32,
}

/// A slot that a handle holds until it writes, and the slot's state while held.
#[derive(PartialEq)]
struct HeldSlot {
    index: u32,
    state: HeadState,
}

impl SlotsHandle {
    pub fn new(slots: Arc<SharedSlots>) -> Self {
        Self { slots, held: None, lost: 0, losses: 0 }
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
        if self.losses >= LOSSES_MAX
            && self.lost == index
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
                // Overtaken: no slot refers to this buffer any more.
                self.slots.put_back(seen.buffer);
                seen = head.state();
                continue;
            }
            buffer.read(into);
            // A word that a later owner of the buffer wrote is read only after that owner's fence, so the head read now
            // is newer than the one read before it.
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
        let next = HeadState { buffer: own, ..seen.next() };
        // A thread that reads a word of the new contents also sees that this buffer's slot has another one by now.
        fence(Ordering::Release);
        self.slots.buffer(next).ok_or(WriteError::Unavailable)?.write(slot);
        if !head.replace(seen, next) {
            self.slots.put_back(own);
            return Err(self.lost(index));
        }
        let is_mine = self.held.take_if(|held| *held == HeldSlot { index, state: seen }).is_some();
        // If another thread holds the old buffer, that thread makes it a spare.
        if is_mine || !seen.is_held() {
            self.slots.put_back(seen.buffer);
        }
        self.losses = 0;
        Ok(())
    }

    fn count(&self) -> u32 {
        self.slots.count()
    }

    #[inline]
    fn changes_in_place(&self) -> bool {
        true
    }

    fn change_in_place(&mut self, indices: &[u32], changes: &mut [EntryChange], evaluate: ChangeFn<'_>) -> bool {
        self.release();
        self.change(indices, changes, evaluate)
    }
}

impl SlotsHandle {
    /// Reads slot `index`, and holds it for the next write; `None` if others hold it all the time.
    #[cold]
    pub(super) fn hold(&mut self, index: u32, into: &mut Slot) -> Option<Version> {
        let head = self.slots.head(index)?;
        let mut looks = 0;
        for _ in 0..READS_MAX {
            let seen = head.state();
            if seen.is_held() {
                looks += 1;
                if looks > LOOKS_MAX {
                    return None;
                }
                spin_loop();
                continue;
            }
            let begun = seen.begun();
            if head.replace(seen, begun) {
                // Nobody changes this buffer now. A thread that overtakes leaves it to this handle.
                self.slots.buffer(begun)?.read(into);
                self.held = Some(HeldSlot { index, state: begun });
                return Some(Version(begun.version));
            }
        }
        None
    }

    /// Records that a write of slot `index` came too late.
    #[cold]
    pub(super) fn lost(&mut self, index: u32) -> WriteError {
        let before = if self.lost == index { self.losses } else { 0 };
        self.release();
        (self.lost, self.losses) = (index, before.saturating_add(1));
        WriteError::Conflict
    }

    /// Releases the held slot, if it was not written.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.held.is_some() {
            self.let_go();
        }
    }

    #[cold]
    fn let_go(&mut self) {
        let Some(HeldSlot { index, state }) = self.held.take() else { return };
        self.losses = 0;
        if !self.slots.head(index).is_some_and(|head| head.replace(state, state.next())) {
            // Overtaken: no slot refers to this buffer any more.
            self.slots.put_back(state.buffer);
        }
    }
}
