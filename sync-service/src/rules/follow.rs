//! Keeping up with the store: which rule set and which orders are current.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::spawn_blocking;

use super::RuleSets;
use super::edition::{Base, Edition};
use crate::store::StoreError;
use crate::store::orders::{Change, Orders};

impl RuleSets {
    /// Hears from the store what is current, and tells POPs. A store that has lost its data changes nothing.
    pub async fn listen(&self) -> Result<(), StoreError> {
        // One after the other, so that what is heard later counts.
        let mut followed = self.followed.lock().await;
        let mut current = self.store.current().await?;
        self.is_missing.store(current.version.is_none(), Ordering::Relaxed);
        if current.orders != followed.current.orders || followed.is_due() {
            // The store drops those that have ended.
            let orders = self.store.orders(None).await?;
            followed.hear(&orders);
            current = orders.current;
        }
        let Some(version) = current.version else { return Ok(()) };
        self.know_kept(version).await?;
        if current == followed.current {
            return Ok(());
        }
        let base = match &followed.base {
            Some(base) if base.version == version => Arc::clone(base),
            _ => {
                // Dropped since: the next interval hears of a newer one.
                let Some(text) = self.store.get_rules(version).await? else { return Ok(()) };
                Arc::new(Base::read(version, text))
            }
        };
        followed.base = Some(Arc::clone(&base));
        let orders = Arc::clone(&followed.orders);
        // With a large rule set that takes a while. Should it fail, what POPs run runs on.
        let made = spawn_blocking(move || Edition::of(current, &base, &orders)).await;
        if let Ok(edition) = made {
            self.tell(edition);
            followed.current = current;
        }
        Ok(())
    }

    /// Changes the orders in the store, and tells POPs.
    pub(super) async fn change(&self, change: &Change<'_>) -> Result<Orders, StoreError> {
        let changed = self.store.orders(Some(change)).await?;
        self.listen_now().await;
        Ok(changed)
    }

    /// The same without a word of what fails: it is made good at the next interval.
    pub(super) async fn listen_now(&self) {
        if let Err(error) = self.listen().await {
            tracing::debug!(%error, "POPs are told of a change once the store answers");
        }
    }

    fn tell(&self, edition: Edition) {
        self.shown.set(i64::try_from(edition.number).unwrap_or(i64::MAX));
        self.known().add_edition(edition.number, edition.rules.iter().cloned());
        let left_out = edition.standings.iter().filter_map(|standing| {
            let why = standing.without_effect.as_ref()?;
            Some((standing.order.said.summary(), why))
        });
        for (order, why) in left_out {
            tracing::warn!(order, why, "an order is without effect");
        }
        self.told().tell(edition);
    }
}
