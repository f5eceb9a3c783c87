//! The variants of a written rule: its tiers, and the rule itself.

use alloc::sync::Arc;

use crate::key_spec::KeySpec;
use crate::matching::{Condition, Holds, Texts};
use crate::request::Fetched;

/// Says which variant of a written rule (a tier, or the rule itself) a rule of the set is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// Identifies the written rule: all rules that it makes have this number, and no others.
    pub group: u16,
    /// Counts the variants of a group; the rules that `wider` makes of a variant have its number, too.
    pub number: u8,
    /// Which requests it is for; `None`: those that no variant before it is for.
    pub when: Option<Arc<Condition>>,
    /// Which values of the key it is for, among those requests; `None`: all.
    pub keys: Option<Texts>,
    /// Whether it lets all its requests through.
    pub is_unlimited: bool,
}

impl Variant {
    /// Whether its rule has no other variant.
    pub fn is_alone(&self) -> bool {
        self.number == 0 && self.when.is_none()
    }

    /// Whether it is for the request, which its rule counts by `key`.
    pub fn holds(&self, key: &KeySpec, request: &mut Fetched<'_>) -> Holds {
        let is_among = self.keys.as_ref().is_none_or(|keys| key.is_among(keys, request));
        match &self.when {
            Some(when) if is_among => when.holds(request),
            _ => Holds::of(is_among),
        }
    }

    /// Whether its condition is expensive.
    pub(crate) fn is_dear(&self) -> bool {
        self.when.as_ref().is_some_and(|when| when.is_dear())
    }
}
