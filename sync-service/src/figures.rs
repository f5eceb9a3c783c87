//! The live figures of a region that are worked out when `/metrics` is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_budget::bound::{Fleet, bound};
use weir_budget::divide::Terms;
use weir_budget::heard::Owed;
use weir_limiter::quota::Quota;
use weir_limiter::sharing::Sharing;
use weir_limiter::time::{SECOND_NS, Time};
use weir_limiter::wire::{Allowance, RULES_MAX, Rule};

use crate::metrics::FloatGauge;
use crate::metrics::region::{ByRule, OfRule, RegionMetrics};

/// How long a rule that no report names is shown, in nanoseconds.
const RULE_IDLE_NS: u64 = 600 * SECOND_NS;
/// After which a POP gives up an exchange, if its configuration says nothing else, in nanoseconds.
const TIMEOUT_NS: u64 = SECOND_NS;

/// What is remembered between two reads.
#[derive(Debug, Default)]
pub struct Figures {
    rules: Mutex<Rules>,
    /// Warm keys heard since the last interval began.
    warm_keys: AtomicU64,
    /// When the store last answered, in nanoseconds of the exchange's clock.
    store_answered_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct Rules {
    known: BTreeMap<String, Known>,
    /// The rules that have a row on the page.
    shown: BTreeSet<String>,
}

#[derive(Debug)]
struct Known {
    quota: Quota,
    sharing: Sharing,
    heard_at: Time,
}

impl Figures {
    /// Notes the rules that a report names; at most [`RULES_MAX`].
    pub fn hear(&self, now: Time, rules: &[Rule]) {
        let known = &mut lock(&self.rules).known;
        for rule in rules {
            if let Some(known) = known.get_mut(&rule.name) {
                known.heard_at = now;
                known.quota = rule.quota;
                if known.sharing != rule.sharing {
                    known.sharing.clone_from(&rule.sharing);
                }
            } else if known.len() < RULES_MAX {
                let sharing = rule.sharing.clone();
                known.insert(rule.name.clone(), Known { quota: rule.quota, sharing, heard_at: now });
            }
        }
    }

    /// Notes the warm keys among those that were answered.
    pub fn answered(&self, allowances: &[Allowance]) {
        let warm = allowances.iter().filter(|allowance| matches!(allowance, Allowance::Warm));
        self.warm_keys.fetch_add(warm.count() as u64, Ordering::Relaxed);
    }

    /// An interval is over: the warm keys heard in it are shown until the next one is.
    pub fn interval_over(&self, metrics: &RegionMetrics) {
        let warm = self.warm_keys.swap(0, Ordering::Relaxed);
        metrics.warm_keys.set(i64::try_from(warm).unwrap_or(i64::MAX));
    }

    /// Notes that the store answered at `now`.
    pub fn store_answered(&self, now: Time) {
        self.store_answered_ns.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// Brings `metrics` up to date: what the budgets owe, what they can owe with `pops` POPs, and for how
    /// long the store has been silent.
    pub fn show(
        &self,
        now: Time,
        metrics: &RegionMetrics,
        owed: &BTreeMap<String, Owed>,
        pops: u32,
        terms: &Terms,
    ) {
        let answered = Time::from_nanos(self.store_answered_ns.load(Ordering::Relaxed));
        metrics.store_silence.set(parts(now.nanos_since(answered), SECOND_NS));
        let mut rules = lock(&self.rules);
        rules.known.retain(|_, known| now.nanos_since(known.heard_at) <= RULE_IDLE_NS);
        let names: BTreeSet<String> = rules.known.keys().chain(owed.keys()).cloned().collect();
        for rule in &names {
            let of = owed.get(rule).copied().unwrap_or_default();
            row(&metrics.debt, rule).set(parts(of.sum_milli, 1_000));
            row(&metrics.overshoot, rule).set(parts(of.deepest_milli, 1_000));
            row(&metrics.overshoot_max, rule).set(parts(of.most_milli, 1_000));
            if let Some(known) = rules.known.get(rule) {
                let tokens = fleet_bound(known.quota, &known.sharing, pops, terms);
                row(&metrics.bound, rule).set(parts(tokens, 1));
            }
        }
        for gone in rules.shown.difference(&names) {
            for family in [&metrics.debt, &metrics.overshoot, &metrics.overshoot_max, &metrics.bound] {
                family.remove(&OfRule { rule: gone.clone() });
            }
        }
        rules.shown = names;
    }
}

/// The most tokens that a key of a rule can be above its quota in a fleet of `pops`, while no exchange of
/// a POP fails twice in a row. A POP's time-out is its own setting; its default is taken.
fn fleet_bound(quota: Quota, sharing: &Sharing, pops: u32, terms: &Terms) -> u64 {
    // What grants count as the time until the next one is an interval and a trip.
    let fleet =
        Fleet { pops, interval_ns: terms.interval_ns, trip_ns: 0, timeout_ns: TIMEOUT_NS, failures: 1 };
    bound(quota, sharing, &fleet)
}

/// A rule's gauge of `family`. Owned: a reference would hold the family's lock.
fn row(family: &ByRule, rule: &str) -> FloatGauge {
    family.get_or_create_owned(&OfRule { rule: rule.to_owned() })
}

/// `number` parts, of which `whole` are one.
#[allow(clippy::cast_precision_loss, reason = "a metric")]
fn parts(number: u64, whole: u64) -> f64 {
    number as f64 / whole as f64
}

/// Nothing that runs under this lock panics; should it, what it guards is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::metrics::page::Format;
    use weir_limiter::quota::{Period, Rate};
    use weir_limiter::wire::{AdmitRatio, Grant};

    fn rule(name: &str) -> Rule {
        let quota = Quota::new(Rate::new(10, Period::Second).unwrap(), 100).unwrap();
        Rule { name: name.into(), quota, sharing: Sharing::of(quota) }
    }

    #[test]
    fn warm_keys_are_those_of_the_last_interval() {
        let (figures, metrics) = (Figures::default(), RegionMetrics::default());
        let grant = Grant { ratio: AdmitRatio::ONE, level_milli: 0, burst: 1, parts: 1, lease_ms: 1 };
        figures.answered(&[Allowance::Warm, Allowance::Hot(grant), Allowance::Warm]);
        figures.answered(&[Allowance::Warm]);
        assert_eq!(metrics.warm_keys.get(), 0, "the interval is not over");
        figures.interval_over(&metrics);
        assert_eq!(metrics.warm_keys.get(), 3);
        figures.interval_over(&metrics);
        assert_eq!(metrics.warm_keys.get(), 0);
    }

    #[test]
    fn rules_that_nobody_names_leave_the_page_and_their_number_is_bounded() {
        let (figures, metrics) = (Figures::default(), Metrics::new("fra"));
        let at = Time::from_nanos;
        let rows = |name: &str| {
            let of = format!(r#"_tokens{{region="fra",rule="{name}"}} 0"#);
            metrics.page(Format::Text).matches(&of).count()
        };
        figures.hear(at(0), &[rule("old"), rule("kept")]);
        figures.show(at(1), &metrics.region, &BTreeMap::new(), 3, &Terms::default());
        assert_eq!((rows("old"), rows("kept")), (3, 3), "debt, overshoot, and the most of it");
        figures.hear(at(RULE_IDLE_NS), &[rule("kept")]);
        figures.show(at(RULE_IDLE_NS + 1), &metrics.region, &BTreeMap::new(), 3, &Terms::default());
        assert_eq!((rows("old"), rows("kept")), (0, 3));
        let many: Vec<_> = (0..2 * RULES_MAX).map(|n| rule(&n.to_string())).collect();
        figures.hear(at(RULE_IDLE_NS + 2), &many);
        assert!(lock(&figures.rules).known.len() <= RULES_MAX);
    }

    #[test]
    fn silence_is_counted_from_the_last_answer() {
        let (figures, metrics) = (Figures::default(), RegionMetrics::default());
        for answered in [3, 2] {
            figures.store_answered(Time::from_nanos(answered * SECOND_NS));
        }
        figures.show(Time::from_nanos(5 * SECOND_NS), &metrics, &BTreeMap::new(), 1, &Terms::default());
        assert!((metrics.store_silence.get() - 2.0).abs() < 1e-9);
    }
}
