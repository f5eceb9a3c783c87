//! Rule sets in a store, a canary beside them, and overrides.
//!
//! Rule sets are documents with version numbers. Each version is one more than the previous one. The first is the
//! number of milliseconds since 1970, so that a store that has lost its data continues with numbers that were never
//! used, and no number ever refers to two rule sets.
//!
//! Overrides are texts under names, each with an end. Their content is opaque to the store. They are separate from the
//! rule sets, so that a new rule set keeps them. Each change, including the end of an override, increases their number:
//! by 1, or by 2 while a canary runs (see [`Current::canary_revision`]). Their first number is the time, too.

/// Maximum number of kept versions; older ones are dropped.
pub const VERSIONS_KEPT: usize = 20;

#[derive(Clone, Copy, Debug)]
pub struct NewVersion<'a> {
    pub document: &'a str,
    /// Version that must be the current one, 0 if there must be none; `None` to store it in any case.
    pub expected: Option<u64>,
    /// Note for people about the origin of the version.
    pub note: &'a str,
    /// True if it comes from a watched file. It is then stored only if it differs from the last document that
    /// came from a file, and from the current one. So several weir-syncs may watch one file, and an operator's
    /// later version stays.
    pub from_file: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    pub version: u64,
    /// Number in its short name: 12 for the twelfth version of the store.
    pub short: u64,
    /// Time at which it was stored, in seconds since 1970, by the store's clock.
    pub at_s: u64,
    pub note: String,
}

impl StoredVersion {
    /// Short name for people, such as `r12`.
    pub fn name(&self) -> String {
        format!("r{}", self.short)
    }
}

/// Change of the rule set, or of the canary beside it.
#[derive(Clone, Copy, Debug)]
pub enum RulesChange<'a> {
    /// Stores a rule set as the next version, unless a canary runs.
    Put(NewVersion<'a>),
    /// Like `Put`, but ends the canary if there is one.
    PutOver(NewVersion<'a>),
    /// Begins a canary, if there is none.
    Begin {
        document: &'a str,
        text: &'a str,
        /// Version that must be the current one.
        expected: u64,
    },
    /// Makes the document of the canary with this number the next version.
    Promote {
        id: u64,
        note: &'a str,
    },
    Withdraw {
        id: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulesResult {
    /// This version is the current one now, and no canary runs.
    Put(u64),
    /// The file has nothing new; this version is still the current one.
    Same(u64),
    /// The canary has begun, under this number.
    Begun(u64),
    /// The canary with this number has ended.
    Withdrawn(u64),
    /// Another version than the expected one is current, 0 if there is none. Nothing changed.
    Conflict(u64),
    /// The canary with this number runs. Nothing changed.
    Runs(u64),
    Missing,
}

/// A rule set beside the current version, for some of the POPs. While it runs, the version cannot be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCanary {
    /// Number of the canary: milliseconds since 1970, but always larger than any earlier one.
    pub id: u64,
    /// Start time in milliseconds since 1970, by the store's clock.
    pub at_ms: u64,
    pub text: String,
    pub document: String,
}

pub const OVERRIDES_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// Version of the rule set, or `None` if none was ever put.
    pub version: Option<u64>,
    /// Number of the last change of overrides; 0 if there never was one.
    pub overrides: u64,
    /// Number of the current canary; 0 if there is none.
    pub canary: u64,
}

impl Current {
    /// Number of the current revision; 0 without a rule set. It is the sum of the version and the overrides' number.
    /// Both only grow, and are read at one moment, so no two revisions have the same number. Without overrides it is
    /// the version.
    pub fn revision(self) -> u64 {
        self.version.map_or(0, |version| version.saturating_add(self.overrides))
    }

    /// Number of the canary's revision, the next one, or `None` if no canary runs. It stays free for the canary:
    /// while it runs, and when it is withdrawn, the overrides' number grows by two. If it is promoted, the new
    /// version has the same content and number.
    pub fn canary_revision(self) -> Option<u64> {
        (self.canary > 0 && self.version.is_some()).then(|| self.revision().saturating_add(1))
    }
}

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

#[derive(Clone, Copy, Debug)]
pub enum OverrideChange<'a> {
    /// Stores an override, replacing the one with the same name.
    Put {
        name: &'a str,
        text: &'a str,
        until: Until,
    },
    Drop(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideResult {
    /// The change was made, or there was none.
    Done,
    /// There are [`OVERRIDES_MAX`] others. Nothing changed.
    Full,
    /// There is none with this name to drop.
    Missing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOverride {
    pub name: String,
    /// The overrides' number after it was stored.
    pub id: u64,
    /// Time at which it was stored, in milliseconds since 1970, by the store's clock.
    pub at_ms: u64,
    pub until_ms: u64,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOverrides {
    pub current: Current,
    /// Time of the answer, in milliseconds since 1970, by the store's clock.
    pub now_ms: u64,
    pub outcome: OverrideResult,
    /// All that have not ended, the oldest first.
    pub kept: Vec<StoredOverride>,
}
