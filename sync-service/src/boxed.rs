//! Boxed keys: heard from POPs, shared with the other regions through the store, told to POPs.
//!
//! With the store out of reach, the POPs that report here are told all the same.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use weir_budget::boxed::BoxedKeys;
use weir_limiter::time::Time;
use weir_limiter::wire::{Boxed, Report};

use crate::store::{Store, StoreError};

/// A region's boxed keys, and that there are some to share.
#[derive(Debug, Default)]
pub struct Boxes {
    keys: Mutex<BoxedKeys>,
    news: Notify,
}

impl Boxes {
    /// Takes in what a report says.
    pub fn hear(&self, now: Time, report: &Report) {
        if !report.boxed.is_empty() && self.lock().hear(now, report) {
            self.news.notify_one();
        }
    }

    /// What the sender of `report` has not been told; the rules it refers to are added to `rules`.
    pub fn tell(&self, now: Time, report: &Report, rules: &mut Vec<String>) -> Vec<Boxed> {
        self.lock().tell(now, report, rules)
    }

    /// Waits until there is something that the store has not heard of.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// Gives the store what was boxed here, and takes in what was elsewhere; `now` is asked again for what
    /// takes time. On an error everything is said again the next time.
    pub async fn share(&self, store: &dyn Store, now: impl Fn() -> Time) -> Result<(), StoreError> {
        let mine = self.lock().to_share(now());
        let fleet = store.boxed(&mine).await?;
        self.lock().merge(now(), &mine, &fleet);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BoxedKeys> {
        // Nothing that runs under this lock panics; should it, what it guards is still good.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
