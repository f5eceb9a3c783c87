//! Rule sets in a store: documents under version numbers.
//!
//! Each version is the one before it plus 1. The first is the number of milliseconds since 1970: so a store that has
//! lost its data goes on with numbers that were never used, and no number ever names two rule sets.

/// The most versions that are kept; older ones are dropped.
pub const VERSIONS_KEPT: usize = 20;

/// A rule set on its way into a store.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// The document, as JSON.
    pub document: &'a str,
    /// The version that must be the current one, 0 if there must be none; `None` puts in any case.
    pub expected: Option<u64>,
    /// What makes the version, for people.
    pub note: &'a str,
    /// Whether it comes from a watched file: then it is put only if it is neither what a file has put last nor the
    /// current document. So several weir-syncs may watch one file, and what an operator puts over it stays.
    pub from_file: bool,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is the current version now, under this number.
    New(u64),
    /// A file says nothing new; this version is the current one.
    Same(u64),
    /// Another version than the expected one is current, 0 if there is none. Nothing changed.
    Conflict(u64),
    /// The canary of this number runs (see [`super::canary`]). Nothing changed.
    Canary(u64),
}

/// A version that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number.
    pub version: u64,
    /// When it was put, in seconds since 1970, by the store's clock.
    pub at_s: u64,
    /// What made it.
    pub note: String,
}
