//! Random bits, from the standard library: it keys its hasher with the system's randomness.

use std::hash::{BuildHasher as _, RandomState};

/// 64 of them.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}
