//! What is compared: a minute's counts, as logarithms.

use std::collections::BTreeMap;

/// What a rule, a POP or a key has to limit in a minute at least to be out of the ordinary: one a second.
pub const FLOOR: f64 = 60.0;
/// What is added to a count, per minute.
const ADDED: f64 = 2.0;

/// What a rule did in a minute, as reports tell it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleMinute {
    /// Tokens asked for.
    pub asked: u64,
    /// Those of them that were limited.
    pub limited: u64,
    /// How many keys were limited.
    pub keys: u64,
    /// What each POP limited, if anything.
    pub pops: BTreeMap<String, u64>,
    /// The key that was limited most, and by how much.
    pub top: Option<(Box<[u8]>, u64)>,
}

/// A count as a level: what is added keeps small counts from looking like large changes.
pub fn level(count: f64) -> f64 {
    (count + ADDED).ln()
}

/// The count at a level.
pub fn count(level: f64) -> f64 {
    (level.exp() - ADDED).max(0.0)
}
