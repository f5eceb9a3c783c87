//! Random bits from the standard library, whose hasher is keyed with the system's randomness.

use std::hash::{BuildHasher as _, RandomState};

/// 64 random bits.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}
