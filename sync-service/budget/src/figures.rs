//! Gauges for operators: debts of budgets and their bounds, and the size of the fleet.

use alloc::collections::BTreeMap;
use alloc::string::String;

use weir_protocol::messages::{BudgetRule, RULES_MAX};
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::sharing::Sharing;
use weir_protocol::time::{SECOND_NS, Time};

use crate::bound::{FleetParameters, bound};
use crate::divide::GrantSettings;
use crate::offline::RuleDebts;
use crate::offline::Share;

/// Time for which a rule that no report contains is remembered, in nanoseconds.
const RULE_IDLE_NS: u64 = 600 * SECOND_NS;
/// Default time after which a POP gives up an exchange, in nanoseconds.
const TIMEOUT_NS: u64 = SECOND_NS;

/// Gauges of a weir-sync.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Number of budgets reported recently.
    pub budgets: usize,
    /// Number of those that are in debt.
    pub in_debt: usize,
    /// Figures of each rule that was reported recently.
    pub rules: BTreeMap<String, RuleFigures>,
    /// POPs that report here.
    pub pops_here: u32,
    /// These POPs as a fraction of the fleet.
    pub share: Share,
    /// Time since the store's last answer, in nanoseconds.
    pub store_silence_ns: u64,
}

/// Figures of one rule's budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleFigures {
    /// Their debts.
    pub owed: RuleDebts,
    /// Maximum number of tokens that a key can get above its quota while no exchange of a POP fails twice in a
    /// row. None if no report has contained the rule recently.
    pub bound: Option<u64>,
}

/// The rules that reports contain.
#[derive(Debug, Default)]
pub(crate) struct LiveRules(BTreeMap<String, LiveRule>);

#[derive(Debug)]
struct LiveRule {
    quota: Quota,
    sharing: Sharing,
    seen_at: Time,
}

impl LiveRules {
    /// Records the rules of a report; at most [`RULES_MAX`].
    pub(crate) fn observe(&mut self, now: Time, rules: &[BudgetRule]) {
        for rule in rules {
            let rule_now = LiveRule { quota: rule.quota, sharing: rule.sharing.clone(), seen_at: now };
            if let Some(known) = self.0.get_mut(&rule.name) {
                *known = rule_now;
            } else if self.0.len() < RULES_MAX {
                self.0.insert(rule.name.clone(), rule_now);
            }
        }
    }

    /// Quota and sharing of a rule that was reported recently.
    pub(crate) fn get(&self, rule: &str) -> Option<(Quota, Sharing)> {
        self.0.get(rule).map(|known| (known.quota, known.sharing.clone()))
    }

    /// Refill policy of the rule; none if it is not strict.
    pub(crate) fn refill_policy(&self, rule: &str) -> Option<RefillPolicy> {
        self.0.get(rule).filter(|rule| rule.sharing.strict).map(|rule| rule.sharing.refill_policy)
    }

    /// Figures of each rule at `now` in a fleet of `pops`, for debts `owed`.
    pub(crate) fn figures(
        &mut self,
        now: Time,
        owed: BTreeMap<String, RuleDebts>,
        pops: u32,
        terms: &GrantSettings,
    ) -> BTreeMap<String, RuleFigures> {
        self.0.retain(|_, known| now.nanos_since(known.seen_at) <= RULE_IDLE_NS);
        // The interval in the terms includes the round trip.
        let interval_ns = terms.interval_ns;
        let fleet = FleetParameters { pops, interval_ns, trip_ns: 0, timeout_ns: TIMEOUT_NS, failures: 1 };
        let owed = owed.into_iter().map(|(rule, owed)| (rule, RuleFigures { owed, bound: None }));
        let mut rules: BTreeMap<_, _> = owed.collect();
        for (rule, known) in &self.0 {
            rules.entry(rule.clone()).or_default().bound = Some(bound(known.quota, &known.sharing, &fleet));
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use weir_protocol::quota::{Period, Rate};

    fn rule(name: &str) -> BudgetRule {
        let quota = Quota::new(Rate::new(10, Period::Second).unwrap(), 100).unwrap();
        BudgetRule { name: name.into(), quota, sharing: Sharing::of(quota) }
    }

    // I2
    #[test]
    fn rules_without_reports_are_forgotten_and_bounded() {
        let mut rules = LiveRules::default();
        let at = Time::from_nanos;
        let shown = |rules: &mut LiveRules, ns| {
            let owed = BTreeMap::from([("owes".into(), RuleDebts::default())]);
            let figures = rules.figures(at(ns), owed, 3, &GrantSettings::default());
            figures.into_iter().map(|(name, of)| (name, of.bound.is_some())).collect::<Vec<_>>()
        };
        let row = |name: &str, is_bound| (String::from(name), is_bound);
        rules.observe(at(0), &[rule("old"), rule("kept")]);
        assert_eq!(shown(&mut rules, 1), [row("kept", true), row("old", true), row("owes", false)]);
        rules.observe(at(RULE_IDLE_NS), &[rule("kept")]);
        assert_eq!(shown(&mut rules, RULE_IDLE_NS + 1), [row("kept", true), row("owes", false)]);
        let many: Vec<_> = (0..2 * RULES_MAX).map(|n| rule(&n.to_string())).collect();
        rules.observe(at(RULE_IDLE_NS + 2), &many);
        assert!(rules.0.len() <= RULES_MAX);
    }
}
