//! Tokens that a call acquired for its own request, and the epochs that such a request keeps.

use crate::RuleIndex;
use crate::sync::calls::ReportedKey;
use crate::table::slot::Tag;
use weir_protocol::time::Time;
use weir_rules::key::KeyValue;

/// Tokens that a call acquired for the next decision of its request, and for nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcquiredTokens {
    pub(crate) tag: Tag,
    /// The record of the key in that call. The tokens that the request waits for are reserved until the
    /// decision.
    pub(crate) told: ReportedKey,
    /// Tokens of an epoch for this request alone; 0 if they are in the key's entry. The decision spends them,
    /// or nothing does.
    pub(crate) tokens: u32,
    pub(crate) until: Time,
    /// Time of the budget's next token, or of the turn that it gave.
    pub(crate) more_at: Time,
    /// Tokens left in the budget.
    pub(crate) left: u32,
    /// True if the lease had ended on arrival, or the window: the request acquires again.
    pub(crate) is_over: bool,
}

/// An epoch that is in no entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnEpoch {
    pub(crate) rule: RuleIndex,
    pub(crate) value: KeyValue,
    pub(crate) epoch: u32,
    /// Tokens that the budget was debited for it.
    pub(crate) tokens: u32,
    /// The cost of its request; none while that goes on.
    pub(crate) cost: Option<u32>,
    /// End of the lease.
    pub(crate) until: Time,
    /// The last call that named it; 0 if none did, or none since its request ended.
    pub(crate) said: u64,
    /// Earliest time to report its cost again, if that has to wait.
    pub(crate) again_at: Time,
}
