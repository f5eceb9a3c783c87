//! Maps by hash, for what every report asks of each of its keys.
//!
//! A look-up takes one hash of a few bytes, however many keys there are; a tree would compare the key with a dozen others.
//! The order of such a map is another in each run: where order reaches a result, there is a tree, or what is taken out is sorted.
//!
//! The usual hash is quick, and its seed is where this process's memory lies: nobody who cannot see a map's order, nor time what is asked of it,
//! can choose keys that collide. Budgets' names, which clients choose, have a stronger one ([`crate::id`]).

pub use hashbrown::Equivalent;
pub use hashbrown::hash_map::EntryRef;

/// A map by hash.
pub type Hashed<K, V, S = hashbrown::DefaultHashBuilder> = hashbrown::HashMap<K, V, S>;
