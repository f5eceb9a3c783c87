//! A request's outcome while the decision is being made.

use crate::decision::{Outcome, Standing};
use crate::rule_index::RuleIndex;

/// A request's outcome, before a `Decision` is made from it. Each step passes it on to the next, so it is small.
#[derive(Clone, Copy)]
pub(super) struct Ruling {
    pub(super) outcome: Outcome,
    /// The strictest of the rules that counted the request; none if no rule did.
    pub(super) strictest: Option<(RuleIndex, Standing)>,
    /// How long to hold the request until its turn.
    pub(super) hold_ns: u64,
}

impl Ruling {
    /// No rule counted the request.
    pub(super) const UNCOUNTED: Self = Self { outcome: Outcome::Allow, strictest: None, hold_ns: 0 };
    /// The request is on the `deny` list.
    pub(super) const BLOCKED: Self = Self { outcome: Outcome::Block, strictest: None, hold_ns: 0 };

    /// Refused by `rule`.
    pub(super) fn refused(outcome: Outcome, rule: RuleIndex, standing: Standing) -> Self {
        Self { outcome, strictest: Some((rule, standing)), hold_ns: 0 }
    }
}
