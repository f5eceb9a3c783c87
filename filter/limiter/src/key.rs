//! Key hashing, which places a key's bucket.

use alloc::string::String;

use siphasher::sip128::SipHasher13;
use weir_rules::fleet_secret::FleetSecret;

/// Longest key, in bytes, that [`HashSecret::hash_short`] takes.
pub(crate) const SHORT_BYTES_MAX: usize = 16;

/// The secret that keys are hashed with, random for each process: no client can aim two keys at one slot.
#[derive(Clone, Copy)]
pub struct HashSecret(SipHasher13);

impl HashSecret {
    /// Creates a secret from random bytes.
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(&bytes))
    }

    /// The secret for the parts of keys, in a POP without a fleet.
    pub(crate) fn on_its_own(&self) -> FleetSecret {
        FleetSecret::new(self.0.hash(b"the parts of keys").as_bytes())
    }

    /// Hashes a key's canonical bytes (SipHash-1-3, 128 bits).
    pub fn hash(&self, value: &[u8]) -> KeyHash {
        let hash = self.0.hash(value);
        KeyHash { place: hash.h1, tag: hash.h2 }
    }

    /// [`HashSecret::hash`] of the lowest `size` bytes of `value`, at most [`SHORT_BYTES_MAX`], in little-endian order.
    #[inline]
    pub(crate) fn hash_short(&self, value: u128, size: usize) -> KeyHash {
        let bytes = value.to_le_bytes();
        // Special cases for a whole IPv4 address and for a /64: with a constant size, the hash takes half of the time.
        let hash = match size {
            6 => self.0.hash(bytes.get(..6).unwrap_or_default()),
            10 => self.0.hash(bytes.get(..10).unwrap_or_default()),
            size => self.0.hash(bytes.get(..size).unwrap_or(&bytes)),
        };
        KeyHash { place: hash.h1, tag: hash.h2 }
    }
}

/// Hashes a name that the operator or the proxy chose (FNV-1a). No client can choose it.
pub fn name_hash(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// A key's hash, in two independent halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash {
    /// Chooses the slot. It does not depend on the rule, so the buckets of one key under several rules are in
    /// one slot, and one read serves them all.
    pub place: u64,
    /// Identifies the key inside the slot, together with the rule's salt.
    pub tag: u64,
}

/// The identity that the workers of one proxy share besides the slots; made once per process.
#[derive(Clone, Copy)]
pub struct TableIdentity {
    /// Secret that keys are hashed with.
    pub secret: HashSecret,
    /// Random name of this process's table in reports.
    pub table_id: u32,
}

/// Bytes of an identity.
pub const IDENTITY_BYTES: usize = 20;

impl TableIdentity {
    /// Decodes an identity: 16 bytes of the secret, 4 of the table's name.
    pub fn of(bytes: &[u8; IDENTITY_BYTES]) -> Self {
        let (mut secret, mut table_id) = ([0; 16], [0; 4]);
        secret.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        table_id.iter_mut().zip(bytes.iter().skip(16)).for_each(|(to, from)| *to = *from);
        Self { secret: HashSecret::new(secret), table_id: u32::from_le_bytes(table_id) }
    }
}

/// This worker's name in reports.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// Name of the POP, the same for all its workers; 1 to [`weir_protocol::messages::POP_NAME_MAX`] bytes.
    pub pop: String,
    /// Random name of this worker.
    pub worker: u64,
}
