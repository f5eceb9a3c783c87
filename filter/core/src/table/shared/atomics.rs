//! The atomics that slots are made of: the processor's; for `make model` those of loom, which runs threads in every order
//! and has them see one another's writes as late as the memory model allows.

#[cfg(not(all(test, loom)))]
pub(super) use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(all(test, loom))]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// How often something is tried; less often in a model, which tries each time in every way.
pub(super) const fn tries(real: u32, in_a_model: u32) -> u32 {
    if cfg!(all(test, loom)) { in_a_model } else { real }
}

/// Nothing: loom's own lets all others go first, and then nobody's patience would ever end.
#[cfg(all(test, loom))]
pub(super) fn spin_loop() {}
