//! Decision rates of rules, as JSON and as metrics.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use weir_budget::decisions::{DecisionCounts, RuleRates, WINDOW_S};
use weir_protocol::messages::RULES_MAX;

use crate::keys::page::parts;
use crate::metrics::{Metrics, OfDecision};

/// Maximum number of rules with metrics, however often rules are replaced. Rules beyond it have none.
const RULES_SHOWN_MAX: usize = 4 * RULES_MAX;

/// Decision rates of all rules.
#[derive(Clone, Debug, Default)]
pub struct DecisionRates {
    /// Rates of each rule.
    pub rules: Vec<RuleRates>,
    /// Number of weir-syncs that contributed.
    pub members: usize,
    /// True if something is missing: the store is out of reach, or a weir-sync runs another version.
    pub is_partial: bool,
}

impl DecisionRates {
    /// JSON for operators.
    pub fn answer(&self) -> Value {
        let rule = |RuleRates { rule, milli, pops }: &RuleRates| {
            json!({
                "rule": rule,
                "allowed_per_s": parts(milli.allowed),
                "limited_per_s": parts(milli.limited),
                "shadow_per_s": parts(milli.shadow),
                "denied_per_s": parts(milli.denied),
                "pops": pops,
            })
        };
        json!({
            "rules": self.rules.iter().map(rule).collect::<Vec<_>>(),
            "window_s": WINDOW_S,
            "weir_syncs": self.members,
            "is_partial": self.is_partial,
        })
    }
}

/// Names of the rules that have metrics.
#[derive(Debug, Default)]
pub struct RateMetrics(Mutex<BTreeSet<String>>);

impl RateMetrics {
    /// Adds the decisions since the last call to the metrics.
    pub fn add(&self, decided: Vec<(String, DecisionCounts)>, metrics: &Metrics) {
        // Nothing in here panics. If it did, the set would still be valid.
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (rule, DecisionCounts { allowed, limited, shadow, denied }) in decided {
            if shown.len() >= RULES_SHOWN_MAX && !shown.contains(&rule) {
                continue;
            }
            for (decision, count) in
                [("allow", allowed), ("limit", limited), ("shadow", shadow), ("deny", denied)]
            {
                metrics.decisions.get_or_create(&OfDecision { rule: rule.clone(), decision }).inc_by(count);
            }
            shown.insert(rule);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_come_and_go_take_bounded_room() {
        let (metrics, _) = Metrics::new("eu");
        let shown = RateMetrics::default();
        let one = DecisionCounts { allowed: 2, limited: 1, ..DecisionCounts::default() };
        for n in 0..2 * RULES_SHOWN_MAX {
            shown.add(vec![(format!("r{n}"), one)], &metrics);
        }
        shown.add(vec![("r1".into(), one)], &metrics);
        assert_eq!(shown.0.lock().unwrap().len(), RULES_SHOWN_MAX);
        let of = |rule: &str, decision| {
            metrics.decisions.get_or_create(&OfDecision { rule: rule.into(), decision }).get()
        };
        assert_eq!((of("r1", "allow"), of("r1", "limit"), of("r1", "deny")), (4, 2, 0));
        assert_eq!(of(&format!("r{RULES_SHOWN_MAX}"), "allow"), 0);
    }
}
