//! Holding a slot from a read to the write after it.

use super::atomics::spin_loop;
use super::held::{HeldSlot, Losses};
use super::{LOOKS_MAX, READS_MAX, SlotsHandle};
use crate::table::slot::Slot;
use crate::table::slots::{Version, WriteError};

impl SlotsHandle {
    /// Reads slot `index`, and holds it for the next write. None if others hold it all the time.
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
        let mut losses = self.losses;
        self.release();
        losses.add(index);
        self.losses = losses;
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
        self.losses = Losses::default();
        if !self.slots.head(index).is_some_and(|head| head.replace(state, state.next())) {
            // Overtaken: no slot refers to this buffer any more.
            self.slots.put_back(state.buffer);
        }
    }
}
