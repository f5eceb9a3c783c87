//! Maps by hash, for what every report asks of each of its keys.
//!
//! A look-up takes one hash of a few bytes, however many keys there are; a tree would compare the key with a dozen others.
//! The hash has random parts, so that nobody can choose keys that collide. So the order of such a map is another in each
//! run: where order reaches a result, there is a tree, or what is taken out is sorted.

/// A map by hash.
pub type Hashed<K, V> = hashbrown::HashMap<K, V>;
