//! What becomes of a request, while that is being worked out.

use crate::decision::{Outcome, Standing};

/// What becomes of a request, before what follows from it is added. It is passed on from one step of the decision to
/// the next, so it is small.
#[derive(Clone, Copy)]
pub(super) struct Ruling {
    pub(super) outcome: Outcome,
    /// The strictest of the rules that counted the request; none if no rule did.
    pub(super) strictest: Option<(u16, Standing)>,
    /// For how long to hold it until its turn.
    pub(super) hold_ns: u64,
}

impl Ruling {
    /// No rule counted the request.
    pub(super) const UNCOUNTED: Self = Self { outcome: Outcome::Allow, strictest: None, hold_ns: 0 };
    /// The request is refused for what it is.
    pub(super) const BLOCKED: Self = Self { outcome: Outcome::Block, strictest: None, hold_ns: 0 };

    /// Refused by `rule`.
    pub(super) fn refused(outcome: Outcome, rule: u16, standing: Standing) -> Self {
        Self { outcome, strictest: Some((rule, standing)), hold_ns: 0 }
    }
}
