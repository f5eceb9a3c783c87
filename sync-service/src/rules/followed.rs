//! What was last heard from the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::edition::Base;
use crate::orders::Order;
use crate::store::orders::{Current, Orders};

/// What was last heard.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// What the edition is made of that POPs are told to run.
    pub(super) current: Current,
    /// The rule set.
    pub(super) base: Option<Arc<Base>>,
    /// The orders.
    pub(super) orders: Arc<[Order]>,
    /// When the first of them ends.
    ends_at: Option<Instant>,
}

impl Followed {
    /// Takes in what the store says of orders.
    pub(super) fn hear(&mut self, orders: &Orders) {
        self.orders = orders.kept.iter().filter_map(Order::read).collect();
        let first = orders.kept.iter().map(|order| order.until_ms).min();
        let left = first.map(|until_ms| Duration::from_millis(until_ms.saturating_sub(orders.now_ms)));
        self.ends_at = left.and_then(|left| Instant::now().checked_add(left));
    }

    /// Whether one of them has ended.
    pub(super) fn is_due(&self) -> bool {
        self.ends_at.is_some_and(|at| at <= Instant::now())
    }
}
