//! Canaries in a store: a rule set beside the current version, for some of the POPs. The selection of POPs is
//! opaque to the store.
//!
//! There is at most one at a time. While it runs, the current version cannot be replaced.

/// A change of the canary.
#[derive(Clone, Copy, Debug)]
pub enum CanaryChange<'a> {
    /// Begins a canary, if there is none.
    Begin {
        /// Its document, as JSON.
        document: &'a str,
        /// Text stored beside it.
        text: &'a str,
        /// Version that must be the current one; none for any.
        expected: Option<u64>,
    },
    /// Makes the canary's document the next version.
    Promote {
        /// Number of the canary that must run; none for any.
        id: Option<u64>,
        /// Note for people about the origin of the version.
        note: &'a str,
    },
    /// Ends the canary.
    Withdraw {
        /// Number of the canary that must run; none for any.
        id: Option<u64>,
    },
    /// Stores a rule set as the next version, and ends the canary if there is one.
    PutOver {
        /// The document, as JSON.
        document: &'a str,
        /// Version that must be the current one.
        expected: u64,
        /// Note for people about the origin of the version.
        note: &'a str,
    },
}

/// Result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanaryResult {
    /// The canary has begun, under this number.
    Begun(u64),
    /// The canary has ended, and this version is the current one now.
    Put(u64),
    /// The canary with this number has ended.
    Withdrawn(u64),
    /// Another version than the expected one is current, 0 if there is none. Nothing changed.
    Conflict(u64),
    /// The canary with this number runs. Nothing changed.
    Runs(u64),
    /// No canary runs. Nothing changed.
    Missing,
}

/// The current canary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCanary {
    /// Its number: milliseconds since 1970, but always larger than any earlier one.
    pub id: u64,
    /// Start time in milliseconds since 1970, by the store's clock.
    pub at_ms: u64,
    /// Text stored beside it.
    pub text: String,
    /// Its document, as JSON.
    pub document: String,
}
