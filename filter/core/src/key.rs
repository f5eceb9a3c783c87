//! The hash of a key: where its bucket is.

use siphasher::sip128::SipHasher13;
use weir_rules::fleet_secret::FleetSecret;

/// The secret that keys are hashed with: random per process and shared by its workers, so that clients
/// cannot aim two keys at one slot.
#[derive(Clone, Copy)]
pub struct Secret(SipHasher13);

impl Secret {
    /// From random bytes.
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(&bytes))
    }

    /// The secret that hides parts of keys in a POP that is on its own.
    pub(crate) fn on_its_own(&self) -> FleetSecret {
        FleetSecret::new(self.0.hash(b"the parts of keys").as_bytes())
    }

    /// Hashes a key's canonical bytes (SipHash-1-3, 128 bits).
    pub fn hash(&self, value: &[u8]) -> KeyHash {
        let hash = self.0.hash(value);
        KeyHash { place: hash.h1, tag: hash.h2 }
    }
}

/// A key's hash, in two independent halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash {
    /// Chooses the slot. It does not depend on the rule: the buckets of one key under several rules lie
    /// side by side, so one read serves them all.
    pub place: u64,
    /// Names the key inside the slot, together with the rule's salt.
    pub tag: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_secret_is_another_place() {
        let (a, b) = (Secret::new([1; 16]), Secret::new([2; 16]));
        assert_eq!(a.hash(b"key"), a.hash(b"key"));
        assert_ne!(a.hash(b"key").place, b.hash(b"key").place);
    }
}
