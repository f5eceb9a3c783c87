//! A map by budget that never holds more than its maximum.

use alloc::collections::BTreeMap;

use weir_wire::time::{SECOND_NS, Time};

use crate::budget::BudgetId;

/// The most budgets, unless it is said otherwise.
const BUDGETS_MAX: usize = 100_000;

/// A `T` for each of a bounded number of budgets.
#[derive(Debug)]
pub(crate) struct Bounded<T> {
    budgets: BTreeMap<BudgetId, T>,
    budgets_max: usize,
    swept_at: Time,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self::new(BUDGETS_MAX)
    }
}

impl<T> Bounded<T> {
    /// For at most `budgets_max` budgets.
    pub(crate) fn new(budgets_max: usize) -> Self {
        Self { budgets: BTreeMap::new(), budgets_max, swept_at: Time::ZERO }
    }

    pub(crate) fn get(&self, id: &BudgetId) -> Option<&T> {
        self.budgets.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &BudgetId) -> Option<&mut T> {
        self.budgets.get_mut(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&BudgetId, &T)> {
        self.budgets.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.budgets.len()
    }

    pub(crate) fn remove(&mut self, id: &BudgetId) {
        self.budgets.remove(id);
    }

    /// What there is for `id`; a `new` one if there is nothing, and there is room. At most once a second, those that
    /// are no longer needed go.
    pub(crate) fn get_or_insert(
        &mut self,
        now: Time,
        id: &BudgetId,
        new: impl FnOnce() -> T,
        is_needed: impl Fn(&T) -> bool,
    ) -> Option<&mut T> {
        if now.nanos_since(self.swept_at) >= SECOND_NS {
            self.swept_at = now;
            self.budgets.retain(|_, kept| is_needed(kept));
        }
        if self.len() < self.budgets_max && !self.budgets.contains_key(id) {
            self.budgets.insert(id.clone(), new());
        }
        self.budgets.get_mut(id)
    }
}
