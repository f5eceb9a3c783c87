//! Metrics that are computed when they are read: the state of budgets, and the decisions of rules.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use weir_budget::decisions::{DecisionCounts, RuleRates, WINDOW_S};
use weir_budget::hub::Figures;
use weir_protocol::messages::RULES_MAX;
use weir_protocol::time::SECOND_NS;

use crate::keys::page::parts;
use weir_gateway::metrics::OfRule;

use crate::metrics::{ByRule, FloatGauge, Metrics, OfDecision};

/// Updates `metrics` from `figures`. Removes rules that are gone, so the page must not be written at the same
/// time.
pub(crate) fn show(figures: &Figures, metrics: &Metrics) {
    metrics.budgets.set(i64::try_from(figures.budgets).unwrap_or(i64::MAX));
    metrics.budgets_in_debt.set(i64::try_from(figures.in_debt).unwrap_or(i64::MAX));
    metrics.pops_here.set(i64::from(figures.pops_here));
    metrics.pops.set(i64::from(figures.share.fleet()));
    metrics.pops_known.set(i64::from(!figures.share.is_guess()));
    metrics.store_silence.set(fraction(figures.store_silence_ns, SECOND_NS));
    metrics.by_rule().into_iter().for_each(ByRule::clear);
    for (rule, of) in &figures.rules {
        row(&metrics.debt_tokens, rule).set(fraction(of.owed.sum_milli, 1_000));
        row(&metrics.overshoot_tokens, rule).set(fraction(of.owed.deepest_milli, 1_000));
        row(&metrics.overshoot_max_tokens, rule).set(fraction(of.owed.most_milli, 1_000));
        if let Some(tokens) = of.bound {
            row(&metrics.bound_tokens, rule).set(fraction(tokens, 1));
        }
    }
}

/// A rule's gauge of `family`. It is owned, because a reference would hold the family's lock.
fn row(family: &ByRule, rule: &str) -> FloatGauge {
    family.get_or_create_owned(&OfRule { rule: rule.to_owned() })
}

/// Converts `number` parts to wholes of `whole` parts each.
#[allow(clippy::cast_precision_loss, reason = "a metric")]
fn fraction(number: u64, whole: u64) -> f64 {
    number as f64 / whole as f64
}

/// Maximum number of rules with metrics, however often rules are replaced. Rules beyond it have none.
const RULES_SHOWN_MAX: usize = 4 * RULES_MAX;

/// Decision rates of all rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct DecisionRates {
    /// Rates of each rule.
    pub(crate) rules: Vec<RuleRates>,
    /// Number of weir-syncs that contributed.
    pub(crate) weir_syncs: usize,
    /// True if something is missing: the store is out of reach, or a weir-sync runs another version.
    pub(crate) is_partial: bool,
}

impl DecisionRates {
    /// JSON for operators.
    pub(crate) fn answer(&self) -> Value {
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
            "weir_syncs": self.weir_syncs,
            "is_partial": self.is_partial,
        })
    }
}

/// Names of the rules that have metrics.
#[derive(Debug, Default)]
pub(crate) struct RateMetrics(Mutex<BTreeSet<String>>);

impl RateMetrics {
    /// Adds the decisions since the last call to the metrics.
    pub(crate) fn add(&self, decided: Vec<(String, DecisionCounts)>, metrics: &Metrics) {
        // Nothing in here panics. If it did, the set would still be valid.
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (rule, DecisionCounts { allowed, limited, shadow, denied }) in decided {
            if shown.len() >= RULES_SHOWN_MAX && !shown.contains(&rule) {
                continue;
            }
            for (decision, count) in [("allow", allowed), ("limit", limited), ("shadow", shadow), ("deny", denied)] {
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
        let of =
            |rule: &str, decision| metrics.decisions.get_or_create(&OfDecision { rule: rule.into(), decision }).get();
        assert_eq!((of("r1", "allow"), of("r1", "limit"), of("r1", "deny")), (4, 2, 0));
        assert_eq!(of(&format!("r{RULES_SHOWN_MAX}"), "allow"), 0);
    }
}
