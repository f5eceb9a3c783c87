//! Gauges of a region that are computed when `/metrics` is read.

use weir_budget::figures::Figures;
use weir_protocol::time::SECOND_NS;

use crate::metrics::{ByRule, FloatGauge, Metrics, OfRule};

/// Updates `metrics` from `figures`. Removes rules that are gone, so the page must not be written at the same
/// time.
pub fn show(figures: &Figures, metrics: &Metrics) {
    metrics.budgets.set(i64::try_from(figures.budgets).unwrap_or(i64::MAX));
    metrics.budgets_in_debt.set(i64::try_from(figures.in_debt).unwrap_or(i64::MAX));
    metrics.pops_here.set(i64::from(figures.pops_here));
    metrics.pops.set(i64::from(figures.share.fleet()));
    metrics.pops_known.set(i64::from(!figures.share.is_guess()));
    metrics.store_silence.set(parts(figures.store_silence_ns, SECOND_NS));
    metrics.by_rule().into_iter().for_each(ByRule::clear);
    for (rule, of) in &figures.rules {
        row(&metrics.debt_tokens, rule).set(parts(of.owed.sum_milli, 1_000));
        row(&metrics.overshoot_tokens, rule).set(parts(of.owed.deepest_milli, 1_000));
        row(&metrics.overshoot_max_tokens, rule).set(parts(of.owed.most_milli, 1_000));
        if let Some(tokens) = of.bound {
            row(&metrics.bound_tokens, rule).set(parts(tokens, 1));
        }
    }
}

/// A rule's gauge of `family`. It is owned, because a reference would hold the family's lock.
fn row(family: &ByRule, rule: &str) -> FloatGauge {
    family.get_or_create_owned(&OfRule { rule: rule.to_owned() })
}

/// Converts `number` parts to wholes of `whole` parts each.
#[allow(clippy::cast_precision_loss, reason = "a metric")]
fn parts(number: u64, whole: u64) -> f64 {
    number as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::page::{self, Format};
    use weir_budget::figures::RuleFigures;
    use weir_budget::offline::Share;

    #[test]
    fn rules_that_are_gone_leave_the_page() {
        let (metrics, registry) = Metrics::new("fra");
        let rows = |name: &str| {
            let of = format!(r#"_tokens{{region="fra",rule="{name}"}} 0"#);
            page::write(&registry, Format::Text).matches(&of).count()
        };
        let known = RuleFigures { bound: Some(0), ..RuleFigures::default() };
        let both = [("old".to_owned(), RuleFigures::default()), ("kept".to_owned(), known)];
        let mut figures = Figures {
            budgets: 2,
            in_debt: 1,
            rules: both.into(),
            pops_here: 1,
            share: Share::guess(1),
            store_silence_ns: 2 * SECOND_NS,
        };
        show(&figures, &metrics);
        assert_eq!((rows("old"), rows("kept")), (3, 4), "debt, overshoot, the most of it, and the bound");
        assert!((metrics.store_silence.get() - 2.0).abs() < 1e-9);
        figures.rules.remove("old");
        show(&figures, &metrics);
        assert_eq!((rows("old"), rows("kept")), (0, 4));
    }
}
