//! The live figures of a region that are worked out when `/metrics` is read.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use weir_budget::figures::Figures as Facts;
use weir_wire::time::SECOND_NS;

use crate::metrics::region::{ByRule, OfRule};
use crate::metrics::{FloatGauge, Metrics};

/// What is remembered between two reads: the rules that have a row on the page.
#[derive(Debug, Default)]
pub struct Figures(Mutex<BTreeSet<String>>);

impl Figures {
    /// Brings `metrics` up to date.
    pub fn show(&self, facts: &Facts, metrics: &Metrics) {
        let region = &metrics.region;
        metrics.budgets.set(i64::try_from(facts.budgets).unwrap_or(i64::MAX));
        metrics.budgets_in_debt.set(i64::try_from(facts.in_debt).unwrap_or(i64::MAX));
        region.pops_here.set(i64::from(facts.pops_here));
        region.pops.set(i64::from(facts.share.fleet()));
        region.pops_known.set(i64::from(!facts.share.is_guess()));
        region.store_silence.set(parts(facts.store_silence_ns, SECOND_NS));
        for (rule, of) in &facts.rules {
            row(&region.debt, rule).set(parts(of.owed.sum_milli, 1_000));
            row(&region.overshoot, rule).set(parts(of.owed.deepest_milli, 1_000));
            row(&region.overshoot_max, rule).set(parts(of.owed.most_milli, 1_000));
            if let Some(tokens) = of.bound {
                row(&region.bound, rule).set(parts(tokens, 1));
            }
        }
        // Nothing that runs under this lock panics; should it, what it guards is still good.
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in shown.iter().filter(|rule| !facts.rules.contains_key(*rule)) {
            for family in [&region.debt, &region.overshoot, &region.overshoot_max, &region.bound] {
                family.remove(&OfRule { rule: gone.clone() });
            }
        }
        *shown = facts.rules.keys().cloned().collect();
    }
}

/// A rule's gauge of `family`. Owned: a reference would hold the family's lock.
fn row(family: &ByRule, rule: &str) -> FloatGauge {
    family.get_or_create_owned(&OfRule { rule: rule.to_owned() })
}

/// How many wholes `number` parts make, if `whole` parts are one.
#[allow(clippy::cast_precision_loss, reason = "a metric")]
fn parts(number: u64, whole: u64) -> f64 {
    number as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::page::Format;
    use weir_budget::alone::Share;
    use weir_budget::figures::RuleFigures;

    #[test]
    fn rules_that_are_gone_leave_the_page() {
        let (figures, metrics) = (Figures::default(), Metrics::new("fra"));
        let rows = |name: &str| {
            let of = format!(r#"_tokens{{region="fra",rule="{name}"}} 0"#);
            metrics.page(Format::Text).matches(&of).count()
        };
        let known = RuleFigures { bound: Some(0), ..RuleFigures::default() };
        let both = [("old".to_owned(), RuleFigures::default()), ("kept".to_owned(), known)];
        let mut facts = Facts {
            budgets: 2,
            in_debt: 1,
            rules: both.into(),
            pops_here: 1,
            share: Share::guess(1),
            store_silence_ns: 2 * SECOND_NS,
        };
        figures.show(&facts, &metrics);
        assert_eq!((rows("old"), rows("kept")), (3, 4), "debt, overshoot, the most of it, and the bound");
        assert!((metrics.region.store_silence.get() - 2.0).abs() < 1e-9);
        facts.rules.remove("old");
        figures.show(&facts, &metrics);
        assert_eq!((rows("old"), rows("kept")), (0, 4));
    }
}
