//! A report's charge to one budget.

use alloc::vec::Vec;

use weir_protocol::quota::Quota;
use weir_protocol::sharing::Sharing;

use crate::budget::{BudgetId, Charge, Count, Demand};

/// A report's charge to one budget.
#[derive(Clone, Debug)]
pub struct PlanEntry {
    pub id: BudgetId,
    pub quota: Quota,
    pub sharing: Sharing,
    pub demand: Demand,
    /// Demand of the POP, in thousandths of a token per second.
    pub own_milli: u64,
    pub counts: Vec<Count>,
}

impl PlanEntry {
    /// Creates an entry that only reads a budget.
    pub fn new(id: BudgetId, quota: Quota, sharing: Sharing) -> Self {
        Self { id, quota, sharing, demand: Demand::default(), own_milli: 0, counts: Vec::new() }
    }

    pub fn is_reported(&self) -> bool {
        !self.counts.is_empty()
    }

    pub fn charge<'a>(&'a self, replica: &'a str, pop: &'a str) -> Charge<'a> {
        Charge { quota: self.quota, replica, demand: self.demand, pop, counts: &self.counts }
    }
}
