//! State last read from the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::audience::Canary;
use super::change::ChangeOrigin;
use super::revision::Base;
use crate::moment;
use crate::overrides::Override;
use crate::store::overrides::{Current, StoredOverrides};

/// State last read from the store.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// Numbers of the revision that POPs run.
    pub(super) current: Current,
    /// Rule set.
    pub(super) base: Option<Arc<Base>>,
    /// Canary, with its rule set, if one runs.
    pub(super) canary: Option<(Arc<Canary>, Arc<Base>)>,
    /// Overrides.
    pub(super) overrides: Arc<[Override]>,
    /// Changes made since while the store was out of reach.
    pub(super) offline: Vec<OfflineChange>,
    /// The store's clock, read with the overrides.
    pub(super) clock: Option<ClockReading>,
    /// Time at which the first override ends.
    ends_at: Option<Instant>,
}

/// A change that the store does not have yet.
#[derive(Clone, Debug)]
pub(super) enum OfflineChange {
    /// A use of the kill switch.
    Enforce(bool, ChangeOrigin),
    /// A new override.
    Put(Override),
    /// An override that was lifted.
    Lift(Override),
}

/// A clock that was read once, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReading {
    read_at: Instant,
    ms: u64,
}

impl ClockReading {
    /// Its time now.
    pub(super) fn now_ms(self) -> u64 {
        self.ms.saturating_add(u64::try_from(self.read_at.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

impl Followed {
    /// Updates the overrides from the store's answer.
    pub(super) fn observe(&mut self, overrides: &StoredOverrides) {
        self.overrides = overrides.kept.iter().filter_map(Override::read).collect();
        self.clock = Some(ClockReading { read_at: Instant::now(), ms: overrides.now_ms });
        let first = overrides.kept.iter().map(|order| order.until_ms).min();
        let left = first.map(|until_ms| Duration::from_millis(until_ms.saturating_sub(overrides.now_ms)));
        self.ends_at = left.and_then(|left| Instant::now().checked_add(left));
    }

    /// True if an override has ended.
    pub(super) fn is_due(&self) -> bool {
        self.ends_at.is_some_and(|at| at <= Instant::now())
    }
}

impl Followed {
    /// Overrides last read from the store, with the changes that it does not have yet.
    pub(super) fn all_overrides(&self) -> Arc<[Override]> {
        let is_order = |change: &OfflineChange| !matches!(change, OfflineChange::Enforce(..));
        if !self.offline.iter().any(is_order) {
            return Arc::clone(&self.overrides);
        }
        let now_ms = self.clock.map_or_else(moment::now_ms, ClockReading::now_ms);
        let mut overrides: Vec<Override> =
            self.overrides.iter().filter(|order| order.until_ms > now_ms).cloned().collect();
        for change in &self.offline {
            let (OfflineChange::Put(order) | OfflineChange::Lift(order)) = change else { continue };
            overrides.retain(|known| known.said.name() != order.said.name());
            if matches!(change, OfflineChange::Put(_)) && order.until_ms > now_ms {
                overrides.push(order.clone());
            }
        }
        overrides.into()
    }

    /// Last setting of the kill switch while offline; none if it was not used.
    pub(super) fn enforced(&self) -> Option<bool> {
        let enforced = |change: &OfflineChange| match change {
            OfflineChange::Enforce(enforce, _) => Some(*enforce),
            _ => None,
        };
        self.offline.iter().rev().find_map(enforced)
    }
}
