//! Overrides in a store: texts under names, each with an end. Their content is opaque to the store.
//!
//! They are separate from the rule sets, so that a new rule set keeps them. Each change, including the end of
//! an override, increases their number: by 1, or by 2 while a canary runs (see [`Current::canary_revision`]).
//! The first number is the number of milliseconds since 1970, as with rule sets, so that a store that has lost
//! its data uses no number twice.

/// Maximum number of overrides.
pub const OVERRIDES_MAX: usize = 1_000;

/// Current version and numbers at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// Version of the rule set; none if none was ever put.
    pub version: Option<u64>,
    /// Number of the overrides; 0 if there never was one.
    pub overrides: u64,
    /// Number of the current canary; 0 if there is none.
    pub canary: u64,
}

impl Current {
    /// Number of the revision that they form; 0 without a rule set. It is the sum of the version and the
    /// overrides' number. Both only grow, and are read at one moment, so no two revisions have the same number.
    /// Without overrides it is the version.
    pub fn revision(self) -> u64 {
        self.version.map_or(0, |version| version.saturating_add(self.overrides))
    }

    /// Number of the canary's revision, the next one; none if no canary runs. It stays free for the canary:
    /// while it runs, and when it is withdrawn, the overrides' number grows by two. If it is promoted, the new
    /// version has the same content and number.
    pub fn canary_revision(self) -> Option<u64> {
        (self.canary > 0 && self.version.is_some()).then(|| self.revision().saturating_add(1))
    }
}

/// End of an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// This many milliseconds from now, by the store's clock.
    In(u64),
    /// This many milliseconds since 1970.
    At(u64),
}

impl Until {
    /// The end in milliseconds since 1970, by a clock at `now_ms`.
    pub fn by(self, now_ms: u64) -> u64 {
        match self {
            Self::In(ms) => now_ms.saturating_add(ms),
            Self::At(ms) => ms,
        }
    }
}

/// A change of the overrides.
#[derive(Clone, Copy, Debug)]
pub enum OverrideChange<'a> {
    /// Stores an override, replacing the one with the same name.
    Put {
        /// Its name.
        name: &'a str,
        /// Its content.
        text: &'a str,
        /// Its end.
        until: Until,
    },
    /// Drops the override with this name.
    Drop(&'a str),
}

/// Result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideResult {
    /// The change was made, or there was none.
    Done,
    /// There are [`OVERRIDES_MAX`] others. Nothing changed.
    Full,
    /// There is none with this name to drop.
    Missing,
}

/// A stored override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOverride {
    /// Its name.
    pub name: String,
    /// The overrides' number after it was stored.
    pub id: u64,
    /// Time at which it was stored, in milliseconds since 1970, by the store's clock.
    pub at_ms: u64,
    /// Its end, in milliseconds since 1970.
    pub until_ms: u64,
    /// Its content.
    pub text: String,
}

/// The overrides and the rule set at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOverrides {
    /// Version and numbers.
    pub current: Current,
    /// Time of that moment, in milliseconds since 1970, by the store's clock.
    pub now_ms: u64,
    /// Result of the change.
    pub outcome: OverrideResult,
    /// All that have not ended, the oldest first.
    pub kept: Vec<StoredOverride>,
}
