//! Keys of rules that are banned by overrides.

use weir_budget::budget::BudgetId;
use weir_rules::RuleSet;

use super::spec::{Override, OverrideKind, Subject};
use crate::keys::which;

/// All banned keys, oldest override first, each with the end of its ban in milliseconds since 1970. A ban of a
/// rule's key covers all tiers of the rule.
pub(crate) fn keys(rules: &RuleSet, overrides: &[Override]) -> Vec<(BudgetId, u64)> {
    let of = |order: &Override| {
        let ids = match (order.said.kind, &order.said.subject) {
            (OverrideKind::Ban, Subject::Key { rule, key }) => which::keys(rules, rule, key).ok(),
            _ => None,
        };
        let until_ms = order.until_ms;
        ids.into_iter().flatten().map(move |id| (id, until_ms))
    };
    overrides.iter().flat_map(of).collect()
}
