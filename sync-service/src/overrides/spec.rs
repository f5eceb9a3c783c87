//! An override, as it is stored and shown to operators, and its subject.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weir_cli::moment;
use weir_rules::address::Prefixes;
use weir_rules::key::KeyValue;
use weir_rules::matching::Range;
use weir_store::rules::StoredOverride;

use crate::problem::merged;

/// Minimum prefix lengths for IPv4 and IPv6. Wider networks belong in the rule set.
const BITS_MIN: (u8, u8) = (8, 16);

/// Address or network, at most an IPv4 /8 or an IPv6 /16. An IPv4-mapped IPv6 address counts as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network(Range);

impl Network {
    /// The network as a key of a rule that counts its addresses together.
    pub(crate) fn key(&self) -> KeyValue {
        let Range { first, bits } = self.0;
        KeyValue::of_address(first, Prefixes { ipv4: bits, ipv6: bits })
    }

    pub(crate) fn covers(&self, other: &Self) -> bool {
        other.is_in(&self.0)
    }

    pub(super) fn is_in(&self, range: &Range) -> bool {
        range.bits <= self.0.bits && range.contains(self.0.first)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network = Self(text.parse().map_err(str::to_owned)?);
        let (ipv4, ipv6) = BITS_MIN;
        if network.0.bits < if network.0.first.is_ipv4() { ipv4 } else { ipv6 } {
            return Err(format!(
                "expected an IPv4 network of at most /{ipv4}, or an IPv6 network of at most /{ipv6}: what is wider \
                 belongs into the rule set"
            ));
        }
        Ok(network)
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OverrideKind {
    Ban,
    /// Allows requests; no rule counts them.
    Allow,
    /// Gives a key another rate.
    Rate,
}

impl OverrideKind {
    /// Name in JSON and in the audit log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ban => "ban",
            Self::Allow => "allow",
            Self::Rate => "rate",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Subject {
    Address {
        address: Network,
    },
    Key {
        rule: String,
        /// Name of the key, as operators write it.
        key: String,
    },
}

impl Subject {
    pub(crate) fn address(&self) -> Option<Network> {
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

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) struct OverrideQuota {
    pub(crate) rate: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) burst: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct OverrideSettings {
    pub(crate) kind: OverrideKind,
    #[serde(flatten)]
    pub(crate) subject: Subject,
    /// Quota of an override of the rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) terms: Option<OverrideQuota>,
    #[serde(default)]
    pub(crate) reason: String,
    /// Name of the operator's token.
    #[serde(default)]
    pub(crate) author: String,
}

impl OverrideSettings {
    /// Name in the store. Of several overrides with the same name, the last one applies. A ban and an allow share a
    /// name, because they exclude each other.
    pub(crate) fn name(&self) -> String {
        match self.kind {
            OverrideKind::Ban | OverrideKind::Allow => self.subject.to_string(),
            OverrideKind::Rate => format!("rate {}", self.subject),
        }
    }

    /// True if POPs receive the override apart from the rule set, like the bans of a penalty.
    pub(crate) fn is_ban_of_key(&self) -> bool {
        self.kind == OverrideKind::Ban && matches!(self.subject, Subject::Key { .. })
    }

    pub(crate) fn text(&self) -> String {
        // Strings only, which always serialize.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn target(&self) -> Value {
        let mut target = json!(self.subject);
        if let Some(OverrideQuota { rate, burst }) = &self.terms {
            (target["rate"], target["burst"]) = (json!(rate), json!(burst));
        }
        target
    }

    pub(crate) fn summary(&self) -> String {
        format!("{} of {}", self.kind.as_str(), self.subject)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) settings: OverrideSettings,
    /// Number; 0 in a dry run.
    pub(crate) id: u64,
    /// Time at which the override was set, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// End, in milliseconds since 1970.
    pub(crate) until_ms: u64,
}

impl Override {
    /// Parses an entry of the store; `None` if a newer version or another program wrote it.
    pub(crate) fn read(kept: &StoredOverride) -> Option<Self> {
        let settings = serde_json::from_str(&kept.text).ok()?;
        let StoredOverride { id, at_ms, until_ms, .. } = *kept;
        Some(Self { settings, id, at_ms, until_ms })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideState {
    pub(crate) order: Override,
    /// Reason why the override has no effect, or `None` if it is in force.
    pub(crate) without_effect: Option<String>,
}

impl OverrideState {
    pub(crate) fn json(&self) -> Value {
        let Self { order: Override { settings, id, at_ms, until_ms }, without_effect } = self;
        let order = json!({
            "id": id, "kind": settings.kind, "until": moment::text(*until_ms), "at": moment::text(*at_ms),
            "reason": settings.reason, "author": settings.author, "without_effect": without_effect,
        });
        merged(settings.target(), order)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OverrideSelector {
    Id(u64),
    /// By its subject, in the listed or in an equivalent spelling.
    About(Subject),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn one_network_has_one_text() {
        for (written, shown) in [
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7/32", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("2001:0db8::/32", "2001:db8::/32"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("fe80::7%1", "fe80::7"),
        ] {
            assert_eq!(network(written).to_string(), shown);
            assert_eq!(network(shown), network(written));
        }
    }

    #[test]
    fn texts_that_are_no_network_or_too_large_are_refused() {
        for (text, problem) in [
            ("example.com", "expected an address or a network"),
            ("192.0.2.7/24", "zero behind its prefix"),
            ("192.0.2.7:443", "without a port"),
            ("0.0.0.0/0", "at most /8"),
            ("::/8", "at most /16"),
        ] {
            let error = text.parse::<Network>().unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
