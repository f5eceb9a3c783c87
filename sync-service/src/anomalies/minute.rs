//! Counts of one minute, compared as logarithms.

use std::collections::BTreeMap;

/// Requests that a rule, a POP or a key must limit in a minute to be out of the ordinary: one per second.
pub const FLOOR: f64 = 60.0;
/// Constant added to each count before its logarithm is taken.
const ADDED: f64 = 2.0;

/// Activity of a rule in one minute, from the POPs' reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleMinute {
    /// Tokens that were asked for.
    pub asked: u64,
    /// Tokens among them that were limited.
    pub limited: u64,
    /// Number of keys that were limited.
    pub keys: u64,
    /// Tokens limited by each POP. POPs that limited nothing are absent.
    pub pops: BTreeMap<String, u64>,
    /// The key that was limited most, with its number of limited tokens.
    pub top: Option<(Box<[u8]>, u64)>,
}

/// Logarithmic level of a count. The added constant keeps small counts from looking like large changes.
pub fn level(count: f64) -> f64 {
    (count + ADDED).ln()
}

/// Inverse of [`level`].
pub fn count(level: f64) -> f64 {
    (level.exp() - ADDED).max(0.0)
}
