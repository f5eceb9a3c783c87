//! Which of a rule's variants a rule of a set is.

use alloc::sync::Arc;

use crate::key_spec::KeySpec;
use crate::matching::{Condition, Holds, Texts};
use crate::request::Fetched;

/// Which of a rule's variants, the tiers and the rule itself, a rule of the set is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// The same for all that one written rule makes, and for those alone.
    pub group: u16,
    /// Counts the variants of a group; those that `wider` makes of one have its number.
    pub number: u8,
    /// Which requests it is for; none: those that are for no variant before it.
    pub when: Option<Arc<Condition>>,
    /// The values of the key that it is for, of those requests; none: all of them.
    pub keys: Option<Texts>,
    /// Whether it lets all of them through.
    pub is_unlimited: bool,
}

impl Variant {
    /// Whether its rule has no other.
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

    /// Whether its condition takes long.
    pub(crate) fn is_dear(&self) -> bool {
        self.when.as_ref().is_some_and(|when| when.is_dear())
    }
}
