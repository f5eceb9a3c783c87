//! The variants of a written rule: its tiers, and the rule itself.

use alloc::string::String;
use alloc::sync::Arc;

use crate::key::KeySpec;
use crate::limit::Limit;
use crate::matching::{Condition, Holds, Texts};
use crate::request::Fetched;
use weir_wire::sharing::Sharing;

/// Says which variant of a written rule (a tier, or the rule itself) a rule of the set is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// Identifies the written rule: all rules that it makes have this number, and no others.
    pub group: u16,
    /// Counts the variants of a group; the rules that `wider` makes of a variant have its number, too.
    pub number: u8,
    /// The tier that it is; `None`: the rule itself, for the requests that no tier is for.
    pub tier: Option<Arc<Tier>>,
    /// How many times the variant's quota the rule has, if `wider` made it.
    pub wider_times: Option<u32>,
}

/// A tier as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Its name, unique in its rule.
    pub name: String,
    /// Which requests it is for.
    pub when: Condition,
    /// Which values of the rule's key it is for, among those requests; `None`: all.
    pub keys: Option<Texts>,
    /// What they have instead of the rule's quota.
    pub change: Change,
}

/// What a tier has instead of its rule's quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// So many times as much.
    Times(u32),
    /// A limit of its own, and how POPs share that, if not as they share the rule's.
    To(Limit, Option<Sharing>),
    /// No limit.
    Unlimited,
}

impl Tier {
    /// Whether it is for the request, which its rule counts by `key`.
    pub(crate) fn holds(&self, key: &KeySpec, request: &mut Fetched<'_>) -> Holds {
        let is_among = self.keys.as_ref().map_or(Holds::Yes, |keys| key.is_among(keys, request));
        is_among.and(|| self.when.holds(request))
    }
}

impl Variant {
    /// Whether its rule has no other variant.
    pub fn is_alone(&self) -> bool {
        self.number == 0 && self.tier.is_none()
    }

    /// Whether it lets all its requests through.
    pub fn is_unlimited(&self) -> bool {
        self.tier.as_ref().is_some_and(|tier| matches!(tier.change, Change::Unlimited))
    }

    /// Whether it is for the request, which its rule counts by `key`.
    pub fn holds(&self, key: &KeySpec, request: &mut Fetched<'_>) -> Holds {
        self.tier.as_ref().map_or(Holds::Yes, |tier| tier.holds(key, request))
    }

    /// Whether its condition is expensive.
    pub(crate) fn is_dear(&self) -> bool {
        self.tier.as_ref().is_some_and(|tier| tier.when.is_dear())
    }
}
