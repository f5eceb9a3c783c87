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
}

impl Ruling {
    /// No rule counted the request.
    pub(crate) const UNCOUNTED: Self = Self { outcome: Outcome::Allow, strictest: None, hold_ns: 0 };
    /// The request is on the `deny` list.
    pub(crate) const BLOCKED: Self = Self { outcome: Outcome::Block, strictest: None, hold_ns: 0 };

    /// Refused by `rule`.
    pub(crate) fn refused(outcome: Outcome, rule: RuleIndex, standing: Standing) -> Self {
        Self { outcome, strictest: Some((rule, standing)), hold_ns: 0 }
    }
}
