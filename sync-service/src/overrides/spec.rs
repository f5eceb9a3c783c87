//! Override, as the store keeps it and as operators read it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weir_cli::moment;
use weir_store::rules::StoredOverride;

use super::network::Network;

/// Kind of an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OverrideKind {
    /// Refuses requests.
    Ban,
    /// Allows requests; no rule counts them.
    Allow,
    /// Gives a key another rate.
    Rate,
}

impl OverrideKind {
    /// Name in JSON and in the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ban => "ban",
            Self::Allow => "allow",
            Self::Rate => "rate",
        }
    }
}

/// Subject of an override.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Subject {
    /// An address or a network.
    Address {
        /// The address or network.
        address: Network,
    },
    /// A key of a rule.
    Key {
        /// Name of the rule.
        rule: String,
        /// Name of the key, as operators write it.
        key: String,
    },
}

impl Subject {
    /// The subject for an address or a network.
    pub fn of(address: Network) -> Self {
        Self::Address { address }
    }

    /// Address or network; none for a key.
    pub fn address(&self) -> Option<Network> {
        match self {
            Self::Address { address } => Some(*address),
            Self::Key { .. } => None,
        }
    }
}

/// Text for people, also used in names.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address } => write!(f, "address {address}"),
            Self::Key { rule, key } => write!(f, "key {rule} {key}"),
        }
    }
}

/// Quota that replaces a rule's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct OverrideQuota {
    /// Rate, as in a rule.
    pub rate: String,
    /// Burst, as in a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

/// Override as an operator set it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct OverrideSettings {
    /// Kind of the override.
    pub kind: OverrideKind,
    /// Address, network or key that it affects.
    #[serde(flatten)]
    pub subject: Subject,
    /// Quota, for an override of the rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<OverrideQuota>,
    /// Reason.
    #[serde(default)]
    pub reason: String,
    /// Name of the operator's token.
    #[serde(default)]
    pub author: String,
}

impl OverrideSettings {
    /// Name in the store. Of several overrides with the same name, the last counts.
    pub fn name(&self) -> String {
        name_of(self.kind, &self.subject)
    }

    /// Text that the store keeps.
    pub fn text(&self) -> String {
        // Strings only, which always serialize.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// JSON of the subject and the quota.
    pub fn target(&self) -> Value {
        let mut target = match &self.subject {
            Subject::Address { address } => json!({"address": address}),
            Subject::Key { rule, key } => json!({"rule": rule, "key": key}),
        };
        if let Some(OverrideQuota { rate, burst }) = &self.terms {
            (target["rate"], target["burst"]) = (json!(rate), json!(burst));
        }
        target
    }

    /// Summary for people.
    pub fn summary(&self) -> String {
        format!("{} of {}", self.kind.as_str(), self.subject)
    }
}

/// Name of an override in the store. A ban and an allow share a name, because they exclude each other.
pub fn name_of(kind: OverrideKind, subject: &Subject) -> String {
    match kind {
        OverrideKind::Ban | OverrideKind::Allow => subject.to_string(),
        OverrideKind::Rate => format!("rate {subject}"),
    }
}

/// Override that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Override as the operator set it.
    pub settings: OverrideSettings,
    /// Number; 0 for a trial.
    pub id: u64,
    /// Time at which it was set, in milliseconds since 1970.
    pub at_ms: u64,
    /// Time at which it ends, in milliseconds since 1970.
    pub until_ms: u64,
}

impl Override {
    /// Parses an entry of the store. None if a newer version or another program wrote it.
    pub fn read(kept: &StoredOverride) -> Option<Self> {
        let settings = serde_json::from_str(&kept.text).ok()?;
        let StoredOverride { id, at_ms, until_ms, .. } = *kept;
        Some(Self { settings, id, at_ms, until_ms })
    }
}

/// Override with its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideState {
    /// The override.
    pub order: Override,
    /// Reason why it changes nothing; none if it is in force.
    pub without_effect: Option<String>,
}

impl OverrideState {
    /// JSON for operators.
    pub fn json(&self) -> Value {
        let Self { order: Override { settings, id, at_ms, until_ms }, without_effect } = self;
        let mut order = settings.target();
        for (name, value) in [
            ("id", json!(id)),
            ("kind", json!(settings.kind)),
            ("until", json!(moment::text(*until_ms))),
            ("at", json!(moment::text(*at_ms))),
            ("reason", json!(settings.reason)),
            ("author", json!(settings.author)),
            ("without_effect", json!(without_effect)),
        ] {
            order[name] = value;
        }
        order
    }
}

/// Selects an override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverrideSelector {
    /// By its number.
    Id(u64),
    /// By its subject, in the listed or in an equivalent spelling.
    About(Subject),
}
