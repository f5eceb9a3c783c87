//! The head of a slot, which holds its state; and the atomics that slots are made of.

/// The state of a slot: its version in the upper half, its buffer's number in the lower. Eight share a cache line, so
/// that the list, which a decision needs before it can read the buffer, stays in the cache.
pub(super) struct Head(AtomicU64);

/// The state in a head.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct HeadState {
    /// Odd while a thread holds the slot, to change entries in place or to read it undisturbed; never 0,
    /// which is [`Version::NONE`](crate::table::Version::NONE).
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

    /// The same state, held.
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

    /// Replaces the state `known` by `next`. False if it is no longer `known`.
    #[inline]
    pub(super) fn replace(&self, known: HeadState, next: HeadState) -> bool {
        self.0.compare_exchange(known.bits(), next.bits(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

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

/// Does nothing: loom's own would let all other threads go first, and then no bounded wait would ever end.
#[cfg(all(test, loom))]
pub(super) fn spin_loop() {}
