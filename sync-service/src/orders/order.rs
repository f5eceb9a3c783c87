//! An order, as the store keeps it and as operators read it.

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
}

impl Kind {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ban => "ban",
            Self::Allow => "allow",
        }
    }
}

/// What an operator says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Said {
    /// What it does, ...
    pub kind: Kind,
    /// ... to whom.
    pub address: Network,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// The name of the token of who said it.
    #[serde(default)]
    pub author: String,
}

impl Said {
    /// Its name in the store. There is one order about an address or a network: the last word counts.
    pub fn name(&self) -> String {
        name_of(&self.address)
    }

    /// As the store keeps it.
    pub fn text(&self) -> String {
        // Texts alone, which can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whom it is about, as JSON.
    pub fn target(&self) -> Value {
        json!({"address": self.address})
    }

    /// What it does, in a few words.
    pub fn summary(&self) -> String {
        format!("{} {}", self.kind.as_str(), self.address)
    }
}

/// The name in the store of an order about an address or a network.
pub fn name_of(address: &Network) -> String {
    format!("address {address}")
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
        json!({
            "id": id,
            "kind": said.kind,
            "address": said.address,
            "until": moment::text(*until_ms),
            "at": moment::text(*at_ms),
            "reason": said.reason,
            "author": said.author,
            "without_effect": without_effect,
        })
    }
}

/// Which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one with this number.
    Id(u64),
    /// The one with this name in the store.
    Named(String),
}
