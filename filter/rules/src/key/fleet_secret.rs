//! The secret that hides the key parts that leave a POP, such as tokens: weir-sync and its store receive only a keyed
//! hash, which every POP of a fleet computes alike.

use core::fmt;
use core::hash::Hasher;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher24Of128};

pub const KEY_SECRET_BYTES_MIN: usize = 16;
pub const KEY_SECRET_BYTES_MAX: usize = 1_024;

/// Keys of the two passes that derive a secret.
const PASSES: [&[u8; 16]; 2] = [b"weir keys, left.", b"weir keys, right"];

/// The secret that key parts are hashed with, the same at every POP of a fleet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FleetSecret([u8; 16]);

impl FleetSecret {
    /// A publicly known secret: its hashes hide nothing that can be guessed.
    pub const UNKEYED: Self = Self(*b"weir, no secret.");

    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Derives a secret from a random text of at least 16 bytes, by SipHash-2-4 with two keys. Not a password hash.
    pub fn derive(text: &[u8]) -> Self {
        let mut bytes = [0; 16];
        for (half, key) in bytes.chunks_exact_mut(8).zip(PASSES) {
            let mut hasher = SipHasher24::new_with_key(key);
            hasher.write(text);
            half.copy_from_slice(&hasher.finish().to_le_bytes());
        }
        Self(bytes)
    }

    /// Begins the hash of a key's parts. `description` must differ between lists of parts.
    pub(crate) fn begin(&self, description: &[u8]) -> PartsHash {
        let mut hash = PartsHash(SipHasher24Of128::new_with_key(&self.0));
        hash.put(description);
        hash
    }
}

impl fmt::Debug for FleetSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FleetSecret(..)")
    }
}

/// Hash of a key's parts (SipHash-2-4, 128 bits). Each value follows its length, each list its count.
#[derive(Clone, Copy)]
pub struct PartsHash(SipHasher24Of128);

impl PartsHash {
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.put_count(bytes.len());
        self.0.write(bytes);
    }

    pub(crate) fn put_count(&mut self, count: usize) {
        // A `usize` fits a `u64` on all supported targets; a truncating cast could only cause collisions.
        self.0.write(&(count as u64).to_le_bytes());
    }

    pub(crate) fn finish(self) -> [u8; 16] {
        self.0.finish128().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    fn hash(secret: &FleetSecret, parts: &[&str]) -> [u8; 16] {
        let mut hash = secret.begin(b"d");
        for part in parts {
            hash.put(part.as_bytes());
        }
        hash.finish()
    }

    #[test]
    fn a_secret_comes_from_its_text_and_stays_unlogged() {
        let [a, b] = [b"0123456789abcdef", b"0123456789abcdeg"].map(|text| FleetSecret::derive(text));
        assert_ne!(a, b);
        assert_ne!(a.0[..8], a.0[8..]);
        assert_ne!(hash(&a, &["x"]), hash(&b, &["x"]));
        assert_eq!(format!("{a:?}"), "FleetSecret(..)");
    }

    /// Every POP must derive the same secret from the same text, whatever its version.
    #[test]
    fn derived_values_do_not_change() {
        let secret = FleetSecret::derive(b"0123456789abcdef");
        assert_eq!(u128::from_be_bytes(secret.0), 0xae18_c89c_171a_9f0b_b1f7_c9e4_4bf2_f92a);
        assert_eq!(u128::from_be_bytes(hash(&secret, &["a"])), 0x4272_633e_9a74_3423_c9dd_e825_394f_ebc5);
    }
}
