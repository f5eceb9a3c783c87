//! What a draw brought for its own request, and what that keeps of it.

use super::saying::Told;
use crate::RuleIndex;
use crate::table::slot::Tag;
use weir_rules::key::KeyValue;
use weir_wire::time::Time;

/// What a draw brought for the next decision of its request, and for nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InHand {
    pub(crate) tag: Tag,
    /// What the draw said about its key. The tokens that the request waits for are reserved until that decision.
    pub(crate) told: Told,
    /// If the key has no place, the tokens of its epoch: that decision spends them, or nothing does.
    pub(crate) tokens: u32,
    pub(crate) until: Time,
    /// When the budget has another token, or when the turn comes that it gave.
    pub(crate) more_at: Time,
    /// What the budget has left.
    pub(crate) left: u32,
    /// Whether its lease was over when it came, or its window is: the request draws again.
    pub(crate) is_over: bool,
}

/// An epoch that a request drew for itself alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) rule: RuleIndex,
    pub(crate) value: KeyValue,
    pub(crate) epoch: u32,
    /// What was debited for it.
    pub(crate) tokens: u32,
    /// What its request cost; none while it goes on.
    pub(crate) cost: Option<u32>,
    /// When its lease ends.
    pub(crate) until: Time,
    /// The call that named it last; 0 if none did, or if it was not over then.
    pub(crate) said: u64,
    /// If its cost has to wait: not to be said before this time.
    pub(crate) again_at: Time,
}
