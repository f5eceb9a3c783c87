//! How a POP is: what its rules decided, and what an operator looks at.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::coding::{WireError, expect};
use super::limits::{COUNTED_MAX, MODULE_MAX, REFUSAL_MAX, RULE_NAME_MAX};

/// The lowest step of the ladder.
const STEP_MAX: u8 = 2;

/// How a POP is, as one of its workers says about once a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The step of its ladder: 0 fresh, 1 stale, 2 fallback.
    pub step: u8,
    /// Its wall clock, in milliseconds since 1970; 0 if it has none.
    pub unix_ms: u64,
    /// The version of its module.
    pub module: String,
    /// Why it runs no newer rule set, if it refused one (see [`super::Running::refused`]); else empty.
    pub refusal: String,
    /// How often each rule is said, in milliseconds.
    pub every_ms: u32,
    /// Requests that the list `deny` refused, bans of addresses included, since the POP's process began.
    pub blocked: u64,
    /// What was decided; at most [`COUNTED_MAX`] rules, the others in other reports.
    pub rules: Vec<RuleCounts>,
}

/// What all workers of a POP decided by one rule since its process began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCounts {
    /// The rule's name.
    pub name: String,
    /// Requests that it let through, limited, refused because the POP was out of touch with weir-sync, and would have limited
    /// if it were enforced for their keys.
    pub decided: [u64; 4],
}

impl Status {
    pub(super) fn check(&self) -> Result<(), WireError> {
        expect("status.step", self.step <= STEP_MAX)?;
        expect("status.module", self.module.len() <= MODULE_MAX)?;
        expect("status.refusal", self.refusal.len() <= REFUSAL_MAX)?;
        expect("status.rules", self.rules.len() <= COUNTED_MAX)?;
        let is_named = |rule: &RuleCounts| (1..=RULE_NAME_MAX).contains(&rule.name.len());
        expect("status.rules[].name", self.rules.iter().all(is_named))
    }
}
