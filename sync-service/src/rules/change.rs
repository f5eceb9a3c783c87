//! Changes of the rule set: their authors and errors, and canaries with their POPs.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;
use weir_rules::reading::ConfigError;
use weir_store::StoreError;
use weir_store::fleet::Seen;
use weir_store::rules::{OVERRIDES_MAX, StoredCanary};

use crate::audit::event::ChangeEvent;
use crate::changes::Differences;

/// Number and JSON document of a version or a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedDocument {
    pub version: u64,
    pub document: Bytes,
}

impl NumberedDocument {
    /// The parsed document; null if it cannot be parsed.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.document).unwrap_or_default()
    }
}

const CANARY_ENDS: &str = "`weir-sync rules promote` makes it the rule set of all POPs, `weir-sync rules withdraw` \
    takes it back; the kill switch takes it back, too";

/// Reason why a rule set was not changed, with advice for operators.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The current version (0 if there is none) is not the expected one.
    #[error("{}", conflict(*.0))]
    Conflict(u64),
    #[error(
        "there is no rule set to change: POPs run their own configuration's. `weir-sync rules put FILE` puts the first"
    )]
    None,
    /// There are no rules to switch on: the rule set is the kill switch's own.
    #[error(
        "there are no rules to switch on: they were switched off while there was no rule set. `weir-sync rules put \
         FILE` puts one"
    )]
    NoRules,
    #[error("version {0} is not kept; `weir-sync rules versions` lists those that are")]
    NotKept(u64),
    #[error("the rule set has {} errors; nothing was changed", .0.len())]
    Invalid(Vec<ConfigError>),
    #[error("the rule set with this override would have {} errors; nothing was changed", .0.len())]
    Override(Vec<ConfigError>),
    #[error(
        "there are {OVERRIDES_MAX} overrides, the most: `weir-sync overrides` lists them; lift one, or ban a network \
         instead of its addresses"
    )]
    Full,
    #[error("there is no such override: `weir-sync overrides` lists all")]
    NoOverride,
    #[error("a canary runs; nothing was changed. {CANARY_ENDS}")]
    Canary(u64),
    #[error("no canary runs: `weir-sync rules put FILE --pops A,B` or `--region R` begins one")]
    NoCanary,
    #[error("the canary that runs is {0}; nothing was changed. {CANARY_ENDS}")]
    OtherCanary(u64),
    #[error("{}. Nothing was changed; `weir-sync fleet` lists POPs and their regions", unknown(.0))]
    UnknownPops(Audience),
    #[error("the canary has other terms for {} strict rules; nothing was changed", .0.len())]
    Strict(Vec<ConfigError>),
}

fn conflict(current: u64) -> String {
    match current {
        0 => "there is no rule set yet: `weir-sync rules put FILE` (or `If-None-Match: *`) makes the first".into(),
        current => format!("the current version is {current}"),
    }
}

fn unknown(audience: &Audience) -> String {
    match audience {
        Audience::Pops(names) => {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            format!("expected POPs that have reported; these have not: {}", names.join(", "))
        }
        Audience::Region(region) => {
            format!("expected a region whose POPs have reported; none of `{region}` has")
        }
    }
}

pub(crate) struct Tried {
    /// Version that would be replaced; 0 if there is none.
    pub(crate) current: u64,
    /// Number of the new version; `None` for a canary and for the first version, whose number cannot be predicted.
    pub(crate) next: Option<u64>,
    pub(crate) is_same: bool,
    pub(crate) changes: Differences,
    pub(crate) lines: Vec<String>,
}

impl Tried {
    pub(super) fn of(old: &Value, new: &Value, current: u64, next: Option<u64>) -> Self {
        let changes = Differences::between(old, new);
        let lines = changes.lines(old, new);
        Self { current, next, is_same: old == new, changes, lines }
    }
}

/// Origin of a version, stored beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ChangeOrigin {
    pub note: String,
    /// Name of the token that made the change.
    pub author: String,
    pub comment: String,
    /// Address that the request came from; only in the audit log.
    #[serde(skip)]
    pub peer: Option<IpAddr>,
}

impl ChangeOrigin {
    pub(super) fn with_note(&self, note: String) -> Self {
        Self { note, ..self.clone() }
    }

    pub(crate) fn event(&self, what: &'static str) -> ChangeEvent {
        let Self { note, author, comment, peer } = self.clone();
        ChangeEvent { what, author, peer, comment, note, ..ChangeEvent::default() }
    }

    pub(super) fn text(&self) -> String {
        // Strings always serialize.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses a stored change. Versions stored before authors were recorded have only a note.
    pub(crate) fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|_| Self { note: text.to_owned(), ..Self::default() })
    }
}

pub(crate) const POPS_MAX: usize = 100;

/// POPs of a canary: by name, or all of a region.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    Pops(BTreeSet<String>),
    /// The POPs that report to the weir-syncs of this region.
    Region(String),
}

impl Audience {
    /// True if the audience includes `pop`, which reports to a weir-sync of `region`.
    pub(crate) fn covers(&self, pop: &str, region: &str) -> bool {
        match self {
            Self::Pops(names) => names.contains(pop),
            Self::Region(name) => name == region,
        }
    }

    /// Part of the audience that is not among the POPs `seen`, or `None` if all of it is.
    pub(crate) fn unknown(&self, seen: &[Seen]) -> Option<Self> {
        match self {
            Self::Pops(names) => {
                let is_unknown = |name: &&String| !seen.iter().any(|seen| seen.pop == **name);
                let unknown: BTreeSet<_> = names.iter().filter(is_unknown).cloned().collect();
                (!unknown.is_empty()).then_some(Self::Pops(unknown))
            }
            Self::Region(name) => (!seen.iter().any(|seen| seen.region == *name)).then(|| Self::Region(name.clone())),
        }
    }
}

/// A canary. Its serialized fields are the text that the store keeps beside the document.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Canary {
    #[serde(skip)]
    pub(crate) id: u64,
    #[serde(skip)]
    pub(crate) at_ms: u64,
    pub(crate) audience: Audience,
    #[serde(default)]
    pub(crate) author: String,
    #[serde(default)]
    pub(crate) comment: String,
    #[serde(skip)]
    pub(crate) document: Bytes,
}

impl Canary {
    /// Parses a stored canary; `None` if a newer weir-sync with other kinds of audiences stored it.
    pub(super) fn read(kept: StoredCanary) -> Option<Self> {
        let StoredCanary { id, at_ms, text, document } = kept;
        Some(Self { id, at_ms, document: document.into(), ..serde_json::from_str(&text).ok()? })
    }

    pub(crate) fn json(&self) -> Value {
        let mut canary = json!(self.audience);
        canary["id"] = self.id.into();
        canary
    }
}
