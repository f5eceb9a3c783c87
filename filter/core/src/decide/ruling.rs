//! A request's outcome while the decision is being made.

use super::decision::Outcome;
use crate::RuleIndex;
use crate::buckets::Standing;

/// A request's outcome, before a `Decision` is made from it. Each step passes it on to the next, so it is small.
#[derive(Clone, Copy)]
pub(crate) struct Ruling {
    pub(crate) outcome: Outcome,
    /// The strictest of the rules that counted the request; none if no rule did.
    pub(crate) strictest: Option<(RuleIndex, Standing)>,
    /// How long to hold the request until its turn.
    pub(crate) hold_ns: u64,
    /// Whether it is refused because its key is banned.
    pub(crate) is_banned: bool,
}

impl Ruling {
    /// No rule counted the request.
    pub(crate) const UNCOUNTED: Self = Self::of(Outcome::Allow, None);
    /// The request is on the `deny` list.
    pub(crate) const BLOCKED: Self = Self::of(Outcome::Block, None);

    /// This outcome, by the strictest rule.
    pub(crate) const fn of(outcome: Outcome, strictest: Option<(RuleIndex, Standing)>) -> Self {
        Self { outcome, strictest, hold_ns: 0, is_banned: false }
    }

    /// Refused by `rule`.
    pub(crate) fn refused(outcome: Outcome, rule: RuleIndex, standing: Standing) -> Self {
        Self::of(outcome, Some((rule, standing)))
    }
}
