//! What was last heard from the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::audience::Canary;
use super::change::Change;
use super::edition::Base;
use crate::moment;
use crate::orders::Order;
use crate::store::orders::{Current, Orders};

/// What was last heard.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// What the edition is made of that POPs are told to run.
    pub(super) current: Current,
    /// The rule set.
    pub(super) base: Option<Arc<Base>>,
    /// The canary, and what it says, if one runs.
    pub(super) canary: Option<(Arc<Canary>, Arc<Base>)>,
    /// The orders.
    pub(super) orders: Arc<[Order]>,
    /// What was changed since while the store was out of reach.
    pub(super) offline: Vec<OfflineChange>,
    /// The store's clock, as it was heard with them.
    pub(super) clock: Option<Clock>,
    /// When the first of them ends.
    ends_at: Option<Instant>,
}

/// A change that the store has not heard of yet.
#[derive(Clone, Debug)]
pub(super) enum OfflineChange {
    /// The kill switch.
    Enforce(bool, Change),
    /// An order is put.
    Put(Order),
    /// An order is lifted.
    Lift(Order),
}

/// A clock that was read once, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    read_at: Instant,
    ms: u64,
}

impl Clock {
    /// What it says now.
    pub(super) fn now_ms(self) -> u64 {
        self.ms.saturating_add(u64::try_from(self.read_at.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

impl Followed {
    /// Takes in what the store says of orders.
    pub(super) fn hear(&mut self, orders: &Orders) {
        self.orders = orders.kept.iter().filter_map(Order::read).collect();
        self.clock = Some(Clock { read_at: Instant::now(), ms: orders.now_ms });
        let first = orders.kept.iter().map(|order| order.until_ms).min();
        let left = first.map(|until_ms| Duration::from_millis(until_ms.saturating_sub(orders.now_ms)));
        self.ends_at = left.and_then(|left| Instant::now().checked_add(left));
    }

    /// Whether one of them has ended.
    pub(super) fn is_due(&self) -> bool {
        self.ends_at.is_some_and(|at| at <= Instant::now())
    }
}

impl Followed {
    /// The orders that were last heard, with the changes that the store has not heard of.
    pub(super) fn all_orders(&self) -> Arc<[Order]> {
        let is_order = |change: &OfflineChange| !matches!(change, OfflineChange::Enforce(..));
        if !self.offline.iter().any(is_order) {
            return Arc::clone(&self.orders);
        }
        let now_ms = self.clock.map_or_else(moment::now_ms, Clock::now_ms);
        let mut orders: Vec<Order> =
            self.orders.iter().filter(|order| order.until_ms > now_ms).cloned().collect();
        for change in &self.offline {
            let (OfflineChange::Put(order) | OfflineChange::Lift(order)) = change else { continue };
            orders.retain(|known| known.said.name() != order.said.name());
            if matches!(change, OfflineChange::Put(_)) && order.until_ms > now_ms {
                orders.push(order.clone());
            }
        }
        orders.into()
    }

    /// What the kill switch was last set to offline.
    pub(super) fn enforced(&self) -> Option<bool> {
        let enforced = |change: &OfflineChange| match change {
            OfflineChange::Enforce(enforce, _) => Some(*enforce),
            _ => None,
        };
        self.offline.iter().rev().find_map(enforced)
    }
}
