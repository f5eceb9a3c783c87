//! Hash maps for the code that runs for each key of a report.
//!
//! A look-up hashes a few bytes once, however many keys there are; a tree would compare the key with a dozen
//! others. The order of such a map differs in each run: where order affects a result, there is a tree, or the
//! extracted items are sorted.
//!
//! The default hash is fast, and its seed derives from the address space of this process. A client that can
//! neither see a map's order nor time its look-ups cannot choose keys that collide. Keys that clients choose
//! have a stronger hash, which they store: a map of such keys computes no hash ([`Carried`]).

use core::hash::Hasher;

pub use hashbrown::Equivalent;
pub use hashbrown::hash_map::EntryRef;

/// Hash map.
pub type Hashed<K, V, S = hashbrown::DefaultHashBuilder> = hashbrown::HashMap<K, V, S>;

/// Hasher that returns the hash stored in a key unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried(u64);

impl Hasher for Carried {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    /// Keys with a stored hash write nothing else.
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }
}
