//! What a draw brought for its own request.

use super::saying::Told;
use crate::rule_index::RuleIndex;
use crate::slot::Tag;
use weir_rules::key::KeyValue;
use weir_wire::time::Time;

/// What a draw brought for the next decision of its request, and for nothing else.
#[derive(Clone, Copy, Debug)]
pub(super) struct InHand {
    pub(super) tag: Tag,
    /// What the draw said about its key. The tokens that the request waits for are reserved until that decision.
    pub(super) told: Told,
    /// If the key has no place, the tokens of its epoch: that decision spends them, or nothing does.
    pub(super) tokens: u32,
    pub(super) until: Time,
    /// When the budget has another token.
    pub(super) more_at: Time,
}

/// An epoch that a request drew for itself alone, and that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) rule: RuleIndex,
    pub(super) value: KeyValue,
    pub(super) epoch: u32,
    /// What the request spent of it.
    pub(super) spent: u32,
}
