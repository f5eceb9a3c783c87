//! The atomics that slots are made of: the processor's, or for `make model` those of loom. That runs threads
//! in every order and delays their writes to each other as far as the memory model allows.

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
