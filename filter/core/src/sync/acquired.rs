//! Tokens that a call acquired for its own request.

use crate::sync::calls::ReportedKey;
use crate::table::slot::Tag;
use weir_protocol::time::Time;

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
