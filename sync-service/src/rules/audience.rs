//! Which POPs run a canary.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::fleet::Seen;

/// The most POPs that a canary names.
pub const POPS_MAX: usize = 100;

/// Some POPs by their names, or all of a region.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// These.
    Pops(BTreeSet<String>),
    /// Those that report to the weir-syncs of this region.
    Region(String),
}

impl Audience {
    /// Whether a POP of it reports to a weir-sync of `region`.
    pub fn covers(&self, pop: &str, region: &str) -> bool {
        match self {
            Self::Pops(names) => names.contains(pop),
            Self::Region(name) => name == region,
        }
    }

    /// The part of it that is not among the POPs `seen`, if any.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
