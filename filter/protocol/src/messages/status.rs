//! The status of a POP: decisions of its rules, and its state for operators.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::coding::{WireError, expect};
use super::limits::{COUNTED_MAX, MODULE_MAX, REFUSAL_MAX, RULE_NAME_MAX};

/// The number of the last connectivity, fallback.
const STEP_MAX: u8 = 2;

/// The status of a POP, sent by one of its workers about once a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReport {
    /// Connectivity: 0 fresh, 1 stale, 2 fallback.
    pub step: u8,
    /// Wall clock, in milliseconds since 1970; 0 if it has none.
    pub unix_ms: u64,
    /// Version of the module.
    pub module: String,
    /// Reason why the POP refused a newer rule set (see [`super::RunningRules::refused`]); empty if it did not.
    pub refusal: String,
    /// Interval in which the counts of each rule are sent, in milliseconds.
    pub every_ms: u32,
    /// Requests that the `deny` list refused, including bans of addresses, since the POP's process began.
    pub blocked: u64,
    /// Decision counts of at most [`COUNTED_MAX`] rules; the others are in other reports.
    pub rules: Vec<RuleCounts>,
}

/// Decisions of all workers of a POP by one rule since its process began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCounts {
    /// Name of the rule.
    pub name: String,
    /// Requests that were allowed; limited; denied, because the POP was in fallback; and those that would
    /// have been limited if the rule were enforced for their keys.
    pub decided: [u64; 4],
}

impl StatusReport {
    pub(super) fn check(&self) -> Result<(), WireError> {
        expect("status.step", self.step <= STEP_MAX)?;
        expect("status.module", self.module.len() <= MODULE_MAX)?;
        expect("status.refusal", self.refusal.len() <= REFUSAL_MAX)?;
        expect("status.rules", self.rules.len() <= COUNTED_MAX)?;
        let is_named = |rule: &RuleCounts| (1..=RULE_NAME_MAX).contains(&rule.name.len());
        expect("status.rules[].name", self.rules.iter().all(is_named))
    }
}
