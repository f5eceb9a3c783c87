//! Maps by hash, for what every report asks of each of its keys.
//!
//! A look-up takes one hash of a few bytes, however many keys there are; a tree would compare the key with a dozen others.
//! The order of such a map is another in each run: where order reaches a result, there is a tree, or what is taken out is sorted.
//!
//! The usual hash is quick, and its seed is where this process's memory lies: nobody who cannot see a map's order, nor time what is asked of it,
//! can choose keys that collide. What clients choose has a stronger one, and carries it: a map of such keys hashes nothing ([`Carried`]).

use core::hash::Hasher;

pub use hashbrown::Equivalent;
pub use hashbrown::hash_map::EntryRef;

/// A map by hash.
pub type Hashed<K, V, S = hashbrown::DefaultHashBuilder> = hashbrown::HashMap<K, V, S>;

/// Takes the hash that a key carries as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried(u64);

impl Hasher for Carried {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    /// A key that carries its hash writes nothing else.
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }
}
