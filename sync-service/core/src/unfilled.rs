//! Last known state of each budget in a region: for its debt at any time, and as the starting point when the
//! store is out of reach.
//!
//! Only budgets that are not full are kept; they are dropped once they have refilled.

use alloc::collections::BTreeMap;
use alloc::string::String;

use weir_protocol::messages::RULES_MAX;
use weir_protocol::quota::Quota;
use weir_protocol::time::Time;

use crate::bounded::BoundedMap;
use crate::budget::BudgetId;
use crate::divide::debt_milli;

/// State of a budget at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastState {
    /// Its quota.
    pub quota: Quota,
    /// Nanoseconds of refill until full, at `at`.
    pub deficit_ns: u64,
    /// Time of that state.
    pub at: Time,
}

impl LastState {
    /// Nanoseconds of refill until full at `now`, if nothing was debited since.
    pub fn deficit_ns_at(&self, now: Time) -> u64 {
        self.deficit_ns.saturating_sub(now.nanos_since(self.at))
    }

    /// Debt of the budget at `now`, in thousandths of a token, if nothing was debited since.
    pub fn debt_milli(&self, now: Time) -> u64 {
        debt_milli(self.quota, self.deficit_ns_at(now))
    }
}

/// Debts of one rule's budgets, in thousandths of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleDebts {
    /// Their sum now.
    pub sum_milli: u64,
    /// The largest one now: how far its key is above burst + rate x t.
    pub deepest_milli: u64,
    /// The largest debt of any of them so far.
    pub most_milli: u64,
}

/// Budgets of a region that are not full. A budget without room counts as full.
#[derive(Debug, Default)]
pub struct UnfilledBudgets {
    budgets: BoundedMap<LastState>,
    most_milli: BTreeMap<String, u64>,
}

impl UnfilledBudgets {
    /// Creates an empty set for at most `budgets_max` budgets.
    pub fn with_budgets_max(budgets_max: usize) -> Self {
        Self { budgets: BoundedMap::new(budgets_max), ..Self::default() }
    }

    /// Records the state of the budget `id`.
    pub fn record(&mut self, id: &BudgetId, last: LastState) {
        let debt_milli = last.debt_milli(last.at);
        if debt_milli > 0 {
            self.owes(&id.rule, debt_milli);
        }
        let is_needed = |known: &LastState| known.deficit_ns_at(last.at) > 0;
        let known = if last.deficit_ns > 0 {
            self.budgets.get_or_insert(last.at, id, || last, is_needed)
        } else {
            self.budgets.get_mut(id)
        };
        if let Some(known) = known {
            *known = last;
        }
    }

    /// Records a debt of a budget of this rule.
    fn owes(&mut self, rule: &str, debt_milli: u64) {
        if let Some(most) = self.most_milli.get_mut(rule) {
            *most = debt_milli.max(*most);
        } else if self.most_milli.len() < RULES_MAX {
            self.most_milli.insert(rule.into(), debt_milli);
        }
    }

    /// Last state of the budget `id`. None if it is full or unknown.
    pub fn last(&self, id: &BudgetId) -> Option<LastState> {
        self.budgets.get(id).copied()
    }

    /// Forgets the budget `id`.
    pub fn forget(&mut self, id: &BudgetId) {
        self.budgets.remove(id);
    }

    /// Debts of the budgets at `now`, by rule.
    pub fn owed(&self, now: Time) -> BTreeMap<String, RuleDebts> {
        let most = |(rule, most_milli): (&String, &u64)| {
            (rule.clone(), RuleDebts { most_milli: *most_milli, ..RuleDebts::default() })
        };
        let mut owed: BTreeMap<String, RuleDebts> = self.most_milli.iter().map(most).collect();
        for (id, last) in self.budgets.iter() {
            // Rules beyond the maximum are left out, and so are those that never had a debt.
            if let Some(rule) = owed.get_mut(&id.rule) {
                let debt_milli = last.debt_milli(now);
                rule.sum_milli = rule.sum_milli.saturating_add(debt_milli);
                rule.deepest_milli = rule.deepest_milli.max(debt_milli);
            }
        }
        owed
    }

    /// Number of budgets remembered.
    pub fn budgets_len(&self) -> usize {
        self.budgets.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use weir_protocol::quota::{Period, Rate};
    use weir_protocol::time::SECOND_NS;

    fn id(rule: &str, value: u8) -> BudgetId {
        BudgetId::new(rule.into(), vec![value])
    }

    fn last(tokens: u64, at_s: u64) -> LastState {
        let quota = Quota::new(Rate::new(10, Period::Second).unwrap(), 100).unwrap();
        let at = Time::from_nanos(at_s * SECOND_NS);
        LastState { quota, deficit_ns: tokens * quota.token_ns(), at }
    }

    #[test]
    fn debt_is_summed_by_rule_and_refills_while_nobody_speaks() {
        let mut heard = UnfilledBudgets::default();
        heard.record(&id("a", 1), last(130, 0));
        heard.record(&id("a", 2), last(150, 0));
        heard.record(&id("b", 1), last(99, 0));
        let owed = |heard: &UnfilledBudgets, s| heard.owed(Time::from_nanos(s * SECOND_NS));
        assert_eq!(
            owed(&heard, 1).get("a"),
            Some(&RuleDebts { sum_milli: 60_000, deepest_milli: 40_000, most_milli: 50_000 })
        );
        assert_eq!(owed(&heard, 1).get("b"), None, "within its burst");
        assert_eq!(
            owed(&heard, 60).get("a"),
            Some(&RuleDebts { sum_milli: 0, deepest_milli: 0, most_milli: 50_000 })
        );
        heard.record(&id("a", 2), last(100, 61));
        assert_eq!(owed(&heard, 61).get("a").unwrap().most_milli, 50_000);
    }

    // I2
    #[test]
    fn full_budgets_are_not_remembered_and_the_refilled_make_room() {
        let mut heard = UnfilledBudgets::with_budgets_max(2);
        heard.record(&id("a", 0), last(0, 0));
        assert_eq!(heard.budgets_len(), 0);
        for (value, tokens) in [(1, 10), (2, 100), (3, 100)] {
            heard.record(&id("a", value), last(tokens, 0));
        }
        assert_eq!((heard.budgets_len(), heard.last(&id("a", 3))), (2, None));
        heard.record(&id("a", 3), last(100, 2));
        assert_eq!((heard.budgets_len(), heard.last(&id("a", 1))), (2, None), "refilled after a second");
        assert!(heard.last(&id("a", 2)).is_some() && heard.last(&id("a", 3)).is_some());
        for rule in 0..2 * RULES_MAX {
            heard.record(&id(&alloc::format!("{rule}"), 1), last(200, 0));
        }
        assert!(heard.most_milli.len() <= RULES_MAX);
    }
}
