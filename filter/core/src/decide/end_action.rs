//! Actions that a decision leaves for the end of its request: a release if requests in flight are counted, a
//! charge if the response states the cost.

use alloc::sync::Arc;

use crate::buckets::algorithm::Receipt;
use crate::table::EntryPlace;
use weir_rules::after::After;
use weir_rules::algorithm::Algorithm;
use weir_rules::key::KeyValue;

/// An action to be done once, when a request that was let through ends.
///
/// It carries its own bucket and algorithm, so it works even if the rule set has been replaced since.
#[derive(Debug)]
pub struct EndAction {
    /// The action.
    pub what: EndActionKind,
    pub(crate) algorithm: Algorithm,
    pub(crate) place: EntryPlace,
    pub(crate) value: KeyValue,
    /// Salt of the rule, which identifies it in any rule set.
    pub(crate) salt: u64,
}

/// The action at the end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndActionKind {
    /// Release what the request holds, by [`crate::limiter::Limiter::release`].
    Release {
        /// Receipt of what was acquired.
        receipt: Receipt,
        /// The number acquired.
        cost: u32,
    },
    /// Charge what the request cost, by [`crate::limiter::Limiter::charge`].
    Charge {
        /// The source of the cost in the response; none if the host states the cost.
        after: Option<Arc<After>>,
        /// Tokens that the request reserved beforehand.
        reserved: ReservedTokens,
    },
}

/// Tokens that a request holds until its cost is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedTokens {
    /// The number of tokens.
    pub tokens: u32,
    /// Rate divisor at the time: the bucket was charged this many times `tokens`.
    pub(crate) parts: u32,
    /// Receipt to give them back with; without one they stay taken.
    pub(crate) receipt: Option<Receipt>,
    /// Epoch under which a strict rule's request acquired them for itself alone.
    pub(crate) epoch: Option<u32>,
}

impl ReservedTokens {
    /// No reservation.
    pub(crate) const NOTHING: Self = Self { tokens: 0, parts: 1, receipt: None, epoch: None };
}
