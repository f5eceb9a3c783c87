//! Variants of a written rule: its tiers, and the rule itself.

use alloc::string::String;
use alloc::sync::Arc;

use crate::key::KeySpec;
use crate::limit::Limit;
use crate::matching::{Condition, Holds, Texts};
use crate::request::Fetched;
use weir_protocol::sharing::Sharing;

/// Identity of a rule as a variant of a written rule: one of its tiers, or the rule itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// Index of the written rule, common to all rules derived from it and to no others.
    pub group: u16,
    /// Number of the variant within its group. The rules that `also_by_prefix` derives from a variant share its number.
    pub number: u8,
    /// The tier; `None` for the rule itself, which applies to requests to which no tier applies.
    pub tier: Option<Arc<Tier>>,
    pub wider_times: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    pub name: String,
    pub when: Condition,
    /// Values of the rule's key that the tier applies to; `None` stands for all.
    pub keys: Option<Texts>,
    pub change: TierQuota,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierQuota {
    Times(u32),
    /// Another limit. Its sharing is that of the rule unless one is given.
    To(Limit, Option<Sharing>),
    Unlimited,
}

impl Variant {
    /// True if the rule has no other variant.
    pub fn is_alone(&self) -> bool {
        self.number == 0 && self.tier.is_none()
    }

    pub fn is_unlimited(&self) -> bool {
        self.tier.as_ref().is_some_and(|tier| matches!(tier.change, TierQuota::Unlimited))
    }

    /// Tests whether the variant, of a rule that counts by `key`, applies to the request.
    pub fn holds(&self, key: &KeySpec, request: &mut Fetched<'_>) -> Holds {
        let Some(tier) = &self.tier else { return Holds::Yes };
        let is_among = tier.keys.as_ref().map_or(Holds::Yes, |keys| key.is_among(keys, request));
        is_among.and(|| tier.when.holds(request))
    }
}
