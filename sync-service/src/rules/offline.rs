//! The kill switch, and changes that operators make while the store is out of reach.
//!
//! Without the store, the POPs that report here are notified, and the store gets the changes once it answers again.
//! Other weir-syncs, including those of the same region, receive them only then.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use tokio::task::spawn_blocking;
use weir_cli::document::Document;
use weir_cli::moment;
use weir_store::StoreError;
use weir_store::rules::{self as store, Current, OVERRIDES_MAX, OverrideResult, Until};

use super::revision::{Base, Followed, OFFLINE_NUMBER_MIN, OfflineChange, Revision, Trial, known_rules};
use super::{Canary, ChangeError, ChangeOrigin, RuleSets, canary, read};
use crate::audit::event::ChangeEvent;
use crate::lock;

const CHANGES_MAX: usize = OVERRIDES_MAX;
/// Rule set without limits, for the kill switch if no rule set is known.
const OFF: &str = r#"{"enforce": false, "rules": [{"name": "none", "key": ["all"], "rate": "1/s", "mode": "shadow"}]}"#;

const TRIES_MAX: u32 = 5;

pub(super) struct Enforced {
    version: u64,
    /// The new document, or `None` if nothing changed.
    document: Option<Document>,
    canary: Option<Arc<Canary>>,
}

fn off() -> Result<Document, ChangeError> {
    read(OFF.as_bytes())
}

/// Fails for [`OFF`], which the kill switch puts if there is no rule set.
fn has_rules(document: &Document) -> Result<(), ChangeError> {
    if document.text() == off()?.text() { Err(ChangeError::NoRules) } else { Ok(()) }
}

impl RuleSets {
    /// Keeps `change`, which the store failed to make with this `error`, and notifies the POPs that report here. Fails
    /// with `error` if the store is in reach, or if there is no known rule set to change.
    pub(super) async fn change_offline(&self, change: OfflineChange, error: &StoreError) -> Result<(), ChangeError> {
        let mut followed = self.followed.lock().await;
        let is_off_switch = matches!(change, OfflineChange::Enforce(false, _));
        let has_base = followed.base.is_some() || followed.enforced() == Some(false);
        let fits = followed.offline.len() < CHANGES_MAX && (has_base || is_off_switch);
        if !error.is_out_of_reach() || !fits {
            return Err(error.clone().into());
        }
        if matches!(change, OfflineChange::Enforce(true, _)) {
            followed.document().map_or(Ok(()), has_rules)?;
        }
        // After the store has lost its data, POPs keep their revision, which has overrides that are not known here.
        let is_override = !matches!(change, OfflineChange::Enforce(..));
        followed.offline.push(change);
        if is_override && self.is_missing() { Ok(()) } else { self.publish_offline(&followed).await }
    }

    /// Notifies POPs of a revision with the changes that the store does not have. Its number is a hash of its
    /// content, so that weir-syncs with the same changes use the same number.
    async fn publish_offline(&self, followed: &Followed) -> Result<(), ChangeError> {
        let enforced = followed.enforced();
        let base = match (&followed.base, enforced) {
            (Some(base), None) => Arc::clone(base),
            (Some(base), Some(enforce)) => Arc::new(base.with_enforce(enforce)),
            (None, _) => Arc::new(Base::of(0, off()?)),
        };
        // No POP enforces a canary while rules are off.
        let canary = followed.canary.clone().filter(|_| enforced != Some(false));
        let overrides = followed.all_overrides();
        let made = spawn_blocking(move || {
            let of = |base: &Base| {
                let revision = Revision::of(0, base, &overrides);
                Arc::new(Revision { number: number_of(&revision.document), ..revision })
            };
            let trial = canary.map(|(canary, base)| Trial { canary, revision: of(&base) });
            (of(&base), trial)
        });
        // If composing fails, POPs keep their revision.
        if let Ok((revision, trial)) = made.await {
            self.publish(revision, trial);
        }
        Ok(())
    }

    /// Makes earlier offline changes in the store, if it is in reach, so that the latest change wins.
    pub(super) async fn catch_up_first(&self) {
        let waits = !self.followed.lock().await.offline.is_empty();
        if waits {
            self.listen_now().await;
        }
    }

    /// Makes the waiting changes in the store. Drops those that are no longer possible.
    pub(super) async fn catch_up(&self, followed: &mut Followed) -> Result<(), StoreError> {
        while let Some(change) = followed.offline.first().cloned() {
            match self.make(&change).await {
                Ok(()) => tracing::info!(?change, "the store has a change that was made without it"),
                Err(ChangeError::Store(error)) if error.is_out_of_reach() => return Err(error),
                Err(error) => {
                    tracing::warn!(?change, %error, "a change that was made without the store is dropped");
                }
            }
            followed.offline.remove(0);
            // Forces the next read to notify POPs, whatever is current then.
            followed.current = Current::default();
        }
        Ok(())
    }

    async fn make(&self, change: &OfflineChange) -> Result<(), ChangeError> {
        match change {
            OfflineChange::Enforce(enforce, change) => {
                let made = self.enforce_in_store(*enforce, change).await?;
                self.record_enforced(&made, change).await;
            }
            OfflineChange::Put(order) if order.until_ms <= moment::now_ms() => {}
            OfflineChange::Put(order) => {
                let (name, text) = (order.settings.name(), order.settings.text());
                let put = store::OverrideChange::Put { name: &name, text: &text, until: Until::At(order.until_ms) };
                if self.store.overrides(Some(&put)).await?.outcome == OverrideResult::Full {
                    return Err(ChangeError::Full);
                }
            }
            OfflineChange::Lift(order) => {
                // The override may have ended meanwhile.
                self.store.overrides(Some(&store::OverrideChange::Drop(&order.settings.name()))).await?;
            }
        }
        Ok(())
    }

    /// Stores the current document with all its rules on or off, unless they already are. Switching rules off also
    /// withdraws a canary, so that no POP enforces any rules. Without the store, notifies only the POPs that report
    /// here. Returns the version, and the store's error if the store does not have the change.
    pub(crate) async fn enforce(
        &self,
        enforce: bool,
        change: &ChangeOrigin,
    ) -> Result<(u64, Option<StoreError>), ChangeError> {
        let change = change.with_note(format!("kill switch: enforce {enforce}"));
        self.catch_up_first().await;
        match self.enforce_in_store(enforce, &change).await {
            Ok(made) => {
                self.listen_now().await;
                self.record_enforced(&made, &change).await;
                Ok((made.version, None))
            }
            Err(ChangeError::Store(error)) => {
                self.change_offline(OfflineChange::Enforce(enforce, change.clone()), &error).await?;
                tracing::warn!(enforce, author = change.author, %error, "the kill switch, in this weir-sync's POPs \
                    alone");
                let note = format!("{}, in {} alone: {error}", change.note, self.region);
                self.audit_log.change(ChangeEvent { note, ..change.event("rules") });
                Ok((self.version(), Some(error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Like [`Self::enforce`], without notifying POPs. If there is no rule set, switches rules off by storing one
    /// without limits, because POPs may run one that the store has lost.
    pub(super) async fn enforce_in_store(&self, enforce: bool, change: &ChangeOrigin) -> Result<Enforced, ChangeError> {
        let mut tries = 0;
        loop {
            let Some(current) = self.current().await? else {
                let document = if enforce { Err(ChangeError::None) } else { off() }?;
                let version = self.put_in_store(&document, Some(0), change).await?;
                return Ok(Enforced { version, document: Some(document), canary: None });
            };
            let document = read(&current.document)?;
            if enforce {
                has_rules(&document)?;
            }
            let canary = if enforce { None } else { self.canary().await? };
            if document.rules().is_enforced() == enforce && canary.is_none() {
                return Ok(Enforced { version: current.version, document: None, canary });
            }
            tries += 1;
            let document = document.with_enforce(enforce);
            let put = if enforce {
                self.put_in_store(&document, Some(current.version), change).await
            } else {
                self.put_over(&document, current.version, change).await
            };
            match put {
                Err(ChangeError::Conflict(_)) if tries < TRIES_MAX => {}
                Err(error) => return Err(error),
                Ok(version) => return Ok(Enforced { version, document: Some(document), canary }),
            }
        }
    }

    /// Writes the result of the kill switch to the log and the audit log.
    pub(super) async fn record_enforced(&self, made: &Enforced, change: &ChangeOrigin) {
        let Some(document) = &made.document else { return };
        lock(&self.known).add(made.version, known_rules(document.rules()).collect());
        self.record_version(made.version, document, change).await;
        if let Some(canary) = &made.canary {
            self.audit_log.change(canary::withdrawn(canary, change));
        }
    }
}

fn number_of(document: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    document.hash(&mut hasher);
    OFFLINE_NUMBER_MIN | (hasher.finish() & (OFFLINE_NUMBER_MIN - 1))
}
