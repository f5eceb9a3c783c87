//! Rule sets in a store: documents with version numbers.
//!
//! Each version is one more than the previous one. The first is the number of milliseconds since 1970, so that
//! a store that has lost its data continues with numbers that were never used, and no number ever refers to two
//! rule sets.

/// Maximum number of kept versions; older ones are dropped.
pub const VERSIONS_KEPT: usize = 20;

/// A rule set to store.
#[derive(Clone, Copy, Debug)]
pub struct NewVersion<'a> {
    /// The document, as JSON.
    pub document: &'a str,
    /// Version that must be the current one, 0 if there must be none; if none is given, it is stored in any
    /// case.
    pub expected: Option<u64>,
    /// Note for people about the origin of the version.
    pub note: &'a str,
    /// True if it comes from a watched file. It is then stored only if it differs from the last document that
    /// came from a file, and from the current one. So several weir-syncs may watch one file, and an operator's
    /// later version stays.
    pub from_file: bool,
}

/// Result of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is the current version now, under this number.
    New(u64),
    /// The file has nothing new; this version is still the current one.
    Same(u64),
    /// Another version than the expected one is current, 0 if there is none. Nothing changed.
    Conflict(u64),
    /// The canary with this number runs (see [`super::canary`]). Nothing changed.
    Canary(u64),
}

/// A kept version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    /// Its number.
    pub version: u64,
    /// Number in its short name: 12 for the twelfth version of the store.
    pub short: u64,
    /// Time at which it was stored, in seconds since 1970, by the store's clock.
    pub at_s: u64,
    /// Note about its origin.
    pub note: String,
}

impl StoredVersion {
    /// Short name for people, such as `r12`.
    pub fn name(&self) -> String {
        format!("r{}", self.short)
    }
}
