//! A canary's document and its POPs.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fleet::Seen;
use crate::store::canary::StoredCanary;

/// Maximum number of POPs in a canary's list.
pub const POPS_MAX: usize = 100;

/// POPs of a canary: by name, or all of a region.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// The POPs with these names.
    Pops(BTreeSet<String>),
    /// The POPs that report to the weir-syncs of this region.
    Region(String),
}

impl Audience {
    /// True if it includes `pop`, which reports to a weir-sync of `region`.
    pub fn covers(&self, pop: &str, region: &str) -> bool {
        match self {
            Self::Pops(names) => names.contains(pop),
            Self::Region(name) => name == region,
        }
    }

    /// Part of it that is not among the POPs `seen`; none if all are.
    pub fn unheard(&self, seen: &[Seen]) -> Option<Self> {
        match self {
            Self::Pops(names) => {
                let is_unheard = |name: &&String| !seen.iter().any(|seen| seen.pop == **name);
                let unheard: BTreeSet<_> = names.iter().filter(is_unheard).cloned().collect();
                (!unheard.is_empty()).then_some(Self::Pops(unheard))
            }
            Self::Region(name) => {
                (!seen.iter().any(|seen| seen.region == *name)).then(|| Self::Region(name.clone()))
            }
        }
    }
}

/// Text that a store keeps beside a canary's document.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct StoredAudience {
    /// Its POPs.
    pub(super) audience: Audience,
    /// Name of the token with which it was begun.
    #[serde(default)]
    pub(super) author: String,
    /// Its author's comment.
    #[serde(default)]
    pub(super) comment: String,
}

/// The current canary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canary {
    /// Its number, which is unique.
    pub id: u64,
    /// Start time, in milliseconds since 1970.
    pub at_ms: u64,
    /// Its POPs.
    pub audience: Audience,
    /// Name of the token with which it was begun.
    pub author: String,
    /// Its author's comment.
    pub comment: String,
    /// Its rule set, as JSON.
    pub document: Bytes,
}

impl Canary {
    /// Parses a stored canary. None if it was stored by a newer weir-sync with other kinds of audiences.
    pub(super) fn read(kept: StoredCanary) -> Option<Self> {
        let StoredCanary { id, at_ms, text, document } = kept;
        let StoredAudience { audience, author, comment } = serde_json::from_str(&text).ok()?;
        Some(Self { id, at_ms, audience, author, comment, document: document.into() })
    }

    /// Its POPs and its number, as JSON for operators.
    pub fn told(&self) -> Value {
        let mut told = json!(self.audience);
        told["id"] = self.id.into();
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pops(names: &[&str]) -> Audience {
        Audience::Pops(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn seen(pop: &str, region: &str) -> Seen {
        Seen {
            pop: pop.into(),
            region: region.into(),
            replica: "a".into(),
            version: 1,
            refused: 0,
            age_us: 0,
        }
    }

    #[test]
    fn it_covers_pops_by_name_wherever_they_report_or_all_of_a_region() {
        let eu = Audience::Region("eu".into());
        assert!(pops(&["fra1", "nyc1"]).covers("nyc1", "us") && !pops(&["fra1"]).covers("fra2", "eu"));
        assert!(eu.covers("fra1", "eu") && !eu.covers("eu", "us"));
        for (audience, text) in
            [(pops(&["b", "a"]), json!({"pops": ["a", "b"]})), (eu, json!({"region": "eu"}))]
        {
            assert_eq!(serde_json::to_value(&audience).unwrap(), text);
            assert_eq!(serde_json::from_value::<Audience>(text).unwrap(), audience);
        }
    }

    #[test]
    fn what_nobody_has_heard_of_is_told() {
        let fleet = [seen("fra1", "eu"), seen("nyc1", "us")];
        assert_eq!(pops(&["fra1", "nyc1"]).unheard(&fleet), None);
        assert_eq!(pops(&["fra1", "fra2"]).unheard(&fleet), Some(pops(&["fra2"])));
        let region = |name: &str| Audience::Region(name.into());
        assert_eq!(region("us").unheard(&fleet), None);
        assert_eq!(region("fra1").unheard(&fleet), Some(region("fra1")));
    }
}
