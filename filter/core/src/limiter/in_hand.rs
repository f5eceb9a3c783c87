//! What draws brought.

use super::saying::Told;
use crate::slot::Tag;
use weir_rules::key::KeyValue;
use weir_wire::time::Time;

/// What a draw brought that is for its request's next decision alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct InHand {
    pub(super) tag: Tag,
    /// What the draw said of its key. Until that decision, the tokens that its request waits for are its own.
    pub(super) told: Told,
    /// Where the key has no place, so many tokens of its epoch: that decision spends them, or nobody.
    pub(super) tokens: u32,
    pub(super) until: Time,
    /// When the budget has one more.
    pub(super) more_at: Time,
}

/// An epoch that a request drew on for itself alone, and that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) rule: u16,
    pub(super) value: KeyValue,
    pub(super) epoch: u32,
    /// What the request spent of it.
    pub(super) spent: u32,
}
