//! A canary in a store: a rule set beside the current version, for a part of the POPs. The store knows not for which.
//!
//! There is one at a time. While it runs, the current version stays what it is: whoever puts another is refused.

/// A change of it.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Begins one, if there is none.
    Begin {
        /// Its document, as JSON.
        document: &'a str,
        /// What is kept beside it.
        text: &'a str,
        /// The version that must be the current one; `None` begins it beside any.
        expected: Option<u64>,
    },
    /// Makes its document the next version.
    Promote {
        /// Which one must run; `None` promotes any.
        id: Option<u64>,
        /// What makes the version, for people.
        note: &'a str,
    },
    /// Ends it.
    TakeBack {
        /// Which one must run; `None` takes any back.
        id: Option<u64>,
    },
    /// Puts a rule set as the next version, and ends it if it runs.
    PutOver {
        /// The document, as JSON.
        document: &'a str,
        /// The version that must be the current one.
        expected: u64,
        /// What makes the version, for people.
        note: &'a str,
    },
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It runs, under this number.
    Begun(u64),
    /// It has ended, and this version is the current one now.
    Put(u64),
    /// The one of this number has ended.
    TakenBack(u64),
    /// Another version than the expected one is current, 0 if there is none. Nothing changed.
    Conflict(u64),
    /// The one of this number runs. Nothing changed.
    Runs(u64),
    /// None runs. Nothing changed.
    Missing,
}

/// The one that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number: milliseconds since 1970, or more than any before it.
    pub id: u64,
    /// When it began, in milliseconds since 1970, by the store's clock.
    pub at_ms: u64,
    /// What is kept beside it.
    pub text: String,
    /// Its document, as JSON.
    pub document: String,
}
