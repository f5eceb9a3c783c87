//! A handle's record of the slot that it keeps losing, or holds.

use super::head::HeadState;

/// Number of late writes of a slot in a row after which the next read holds it.
const LOSSES_MAX: u32 = 3;

/// A slot that a handle holds.
pub(super) struct HeldSlot {
    pub(super) index: u32,
    /// Its state, held.
    pub(super) state: HeadState,
}

impl HeldSlot {
    pub(super) fn is(&self, index: u32, state: HeadState) -> bool {
        self.index == index && self.state == state
    }
}

/// Number of a handle's last writes that came too late, all of one slot.
#[derive(Clone, Copy, Default)]
pub(super) struct Losses {
    index: u32,
    count: u32,
}

impl Losses {
    #[inline]
    pub(super) fn are_many(self, index: u32) -> bool {
        self.count >= LOSSES_MAX && self.index == index
    }

    pub(super) fn add(&mut self, index: u32) {
        let before = if self.index == index { self.count } else { 0 };
        *self = Self { index, count: before.saturating_add(1) };
    }
}
