//! A decision in the making.

use super::decision::DecisionKind;
use crate::RuleIndex;
use crate::buckets::BucketStatus;

/// A decision in the making. The steps pass it by value, so it is small.
#[derive(Clone, Copy)]
pub(crate) struct PendingDecision {
    pub(crate) outcome: DecisionKind,
    /// The strictest of the rules that counted the request; none if no rule did.
    pub(crate) strictest: Option<(RuleIndex, BucketStatus)>,
    /// Nanoseconds to hold the request until its turn.
    pub(crate) hold_ns: u64,
    /// True if the request is refused because its key is banned.
    pub(crate) is_banned: bool,
}

impl PendingDecision {
    /// Allows a request that no rule counted.
    pub(crate) const UNCOUNTED: Self = Self::of(DecisionKind::Allow, None);
    /// Blocks a request on the `deny` list.
    pub(crate) const BLOCKED: Self = Self::of(DecisionKind::Block, None);

    /// This outcome, decided by the strictest rule.
    pub(crate) const fn of(outcome: DecisionKind, strictest: Option<(RuleIndex, BucketStatus)>) -> Self {
        Self { outcome, strictest, hold_ns: 0, is_banned: false }
    }

    /// A refusal by `rule`.
    pub(crate) fn refused(outcome: DecisionKind, rule: RuleIndex, standing: BucketStatus) -> Self {
        Self::of(outcome, Some((rule, standing)))
    }
}
