//! A decision in the making.

use super::decision::Outcome;
use crate::RuleIndex;
use crate::buckets::Standing;

/// A decision in the making. The steps pass it by value, so it is small.
#[derive(Clone, Copy)]
pub(crate) struct Ruling {
    pub(crate) outcome: Outcome,
    /// The strictest of the rules that counted the request; none if no rule did.
    pub(crate) strictest: Option<(RuleIndex, Standing)>,
    /// Nanoseconds to hold the request until its turn.
    pub(crate) hold_ns: u64,
    /// True if the request is refused because its key is banned.
    pub(crate) is_banned: bool,
}

impl Ruling {
    /// Allows a request that no rule counted.
    pub(crate) const UNCOUNTED: Self = Self::of(Outcome::Allow, None);
    /// Blocks a request on the `deny` list.
    pub(crate) const BLOCKED: Self = Self::of(Outcome::Block, None);

    /// This outcome, decided by the strictest rule.
    pub(crate) const fn of(outcome: Outcome, strictest: Option<(RuleIndex, Standing)>) -> Self {
        Self { outcome, strictest, hold_ns: 0, is_banned: false }
    }

    /// A refusal by `rule`.
    pub(crate) fn refused(outcome: Outcome, rule: RuleIndex, standing: Standing) -> Self {
        Self::of(outcome, Some((rule, standing)))
    }
}
