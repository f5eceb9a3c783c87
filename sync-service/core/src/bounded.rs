//! A map by budget that never holds more than its maximum.

use weir_protocol::time::{SECOND_NS, Time};

use crate::budget::BudgetId;
use crate::hashed::EntryRef;
use crate::id::ByBudget;

/// Default maximum number of budgets.
const BUDGETS_MAX: usize = 100_000;

/// Map from budget to `T` with a maximum number of entries.
#[derive(Debug)]
pub(crate) struct BoundedMap<T> {
    budgets: ByBudget<T>,
    budgets_max: usize,
    swept_at: Time,
}

impl<T> Default for BoundedMap<T> {
    fn default() -> Self {
        Self::new(BUDGETS_MAX)
    }
}

impl<T> BoundedMap<T> {
    /// Creates an empty map for at most `budgets_max` budgets.
    pub(crate) fn new(budgets_max: usize) -> Self {
        Self { budgets: ByBudget::default(), budgets_max, swept_at: Time::ZERO }
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
        // The map is usually empty: skip hashing the key then.
        if !self.budgets.is_empty() {
            self.budgets.remove(id);
        }
    }

    /// Returns the entry of `id`, inserting `new()` if it is missing and there is room. None if the map is
    /// full.
    ///
    /// At most once a second, entries for which `is_needed` is false are removed first.
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
        let has_room = self.len() < self.budgets_max;
        match self.budgets.entry_ref(id) {
            EntryRef::Occupied(kept) => Some(kept.into_mut()),
            EntryRef::Vacant(room) => has_room.then(|| room.insert(new())),
        }
    }
}
