//! An order, as the store keeps it and as operators read it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::network::Network;
use crate::moment;
use crate::store::orders::Kept;

/// What an order does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Refuses.
    Ban,
    /// Lets through: no rule counts it.
    Allow,
    /// Gives a key another rate.
    Override,
}

impl Kind {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ban => "ban",
            Self::Allow => "allow",
            Self::Override => "override",
        }
    }
}

/// Whom an order is about.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Subject {
    /// An address or a network.
    Address {
        /// Which.
        address: Network,
    },
    /// A key of a rule.
    Key {
        /// The rule's name.
        rule: String,
        /// The key, as operators write it.
        key: String,
    },
}

impl Subject {
    /// That of an address or a network.
    pub fn of(address: Network) -> Self {
        Self::Address { address }
    }

    /// The address, if it is one.
    pub fn address(&self) -> Option<Network> {
        match self {
            Self::Address { address } => Some(*address),
            Self::Key { .. } => None,
        }
    }
}

/// For people, and in names.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address } => write!(f, "address {address}"),
            Self::Key { rule, key } => write!(f, "key {rule} {key}"),
        }
    }
}

/// Another quota.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Terms {
    /// As in a rule.
    pub rate: String,
    /// As in a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

/// What an operator says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Said {
    /// What it does, ...
    pub kind: Kind,
    /// ... to whom.
    #[serde(flatten)]
    pub subject: Subject,
    /// Of an override: the quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Terms>,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// The name of the token of who said it.
    #[serde(default)]
    pub author: String,
}

impl Said {
    /// Its name in the store. Of several orders of one name, the last counts.
    pub fn name(&self) -> String {
        name_of(self.kind, &self.subject)
    }

    /// As the store keeps it.
    pub fn text(&self) -> String {
        // Texts alone, which can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whom it is about and what it says of that, as JSON.
    pub fn target(&self) -> Value {
        let mut target = match &self.subject {
            Subject::Address { address } => json!({"address": address}),
            Subject::Key { rule, key } => json!({"rule": rule, "key": key}),
        };
        if let Some(Terms { rate, burst }) = &self.terms {
            (target["rate"], target["burst"]) = (json!(rate), json!(burst));
        }
        target
    }

    /// What it does, in a few words.
    pub fn summary(&self) -> String {
        format!("{} of {}", self.kind.as_str(), self.subject)
    }
}

/// The name of an order in the store. A ban and an allow have the same, since one excludes the other.
pub fn name_of(kind: Kind, subject: &Subject) -> String {
    match kind {
        Kind::Ban | Kind::Allow => subject.to_string(),
        Kind::Override => format!("override {subject}"),
    }
}

/// An order that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// What was said.
    pub said: Said,
    /// Its number; 0 if it is only tried.
    pub id: u64,
    /// When it was put, in milliseconds since 1970, ...
    pub at_ms: u64,
    /// ... and when it ends.
    pub until_ms: u64,
}

impl Order {
    /// What a store keeps; `None` if it was put there by a newer version, or by another program.
    pub fn read(kept: &Kept) -> Option<Self> {
        let said = serde_json::from_str(&kept.text).ok()?;
        let Kept { id, at_ms, until_ms, .. } = *kept;
        Some(Self { said, id, at_ms, until_ms })
    }
}

/// An order, and what comes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The order.
    pub order: Order,
    /// Why it changes nothing, if so.
    pub without_effect: Option<String>,
}

impl Standing {
    /// As operators read it.
    pub fn json(&self) -> Value {
        let Self { order: Order { said, id, at_ms, until_ms }, without_effect } = self;
        let mut order = said.target();
        for (name, value) in [
            ("id", json!(id)),
            ("kind", json!(said.kind)),
            ("until", json!(moment::text(*until_ms))),
            ("at", json!(moment::text(*at_ms))),
            ("reason", json!(said.reason)),
            ("author", json!(said.author)),
            ("without_effect", json!(without_effect)),
        ] {
            order[name] = value;
        }
        order
    }
}

/// Which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one with this number.
    Id(u64),
    /// The one of its kind about this, as it is listed or in other words.
    About(Subject),
}
