//! The kill switch: all rules off, or on again.

use std::sync::Arc;

use super::followed::OfflineChange;
use super::{Canary, ChangeError, ChangeOrigin, RuleSets, canary, offline, read};
use crate::audit::event::ChangeEvent;
use crate::document::Document;
use crate::refused_claims::known_rules;
use crate::store::StoreError;

/// Maximum number of attempts after conflicts with other writers.
const TRIES_MAX: u32 = 5;

/// Result of the kill switch in the store.
pub(super) struct Enforced {
    version: u64,
    /// The new document; none if nothing changed.
    document: Option<Document>,
    /// The canary that it ended.
    canary: Option<Arc<Canary>>,
}

impl RuleSets {
    /// Stores the current document with all its rules on or off, unless they already are. Switching rules off
    /// also withdraws a canary, so that no POP enforces any rules. Without the store, only the POPs that report
    /// here are notified. Returns the version, and the store's error if it does not have the change.
    pub async fn enforce(
        &self,
        enforce: bool,
        change: &ChangeOrigin,
    ) -> Result<(u64, Option<StoreError>), ChangeError> {
        let change = change.noted(format!("kill switch: enforce {enforce}"));
        self.catch_up_first().await;
        match self.enforce_in_store(enforce, &change).await {
            Ok(made) => {
                self.listen_now().await;
                self.tell_of_enforced(&made, &change).await;
                Ok((made.version, None))
            }
            Err(ChangeError::Store(error)) => {
                self.change_offline(OfflineChange::Enforce(enforce, change.clone()), &error).await?;
                tracing::warn!(enforce, author = change.author, %error, "the kill switch, in this weir-sync's POPs alone");
                let note = format!("{}, in {} alone: {error}", change.note, self.region);
                self.audit_log.change(ChangeEvent { note, ..change.told("rules") });
                Ok((self.version(), Some(error)))
            }
            Err(error) => Err(error),
        }
    }

    /// The same in the store, without notifying POPs. If there is no rule set, rules are switched off by
    /// storing one that limits nobody: POPs may run one that the store has lost.
    pub(super) async fn enforce_in_store(
        &self,
        enforce: bool,
        change: &ChangeOrigin,
    ) -> Result<Enforced, ChangeError> {
        let mut tries = 0;
        loop {
            let Some(current) = self.current().await? else {
                let document = if enforce { Err(ChangeError::None) } else { offline::off() }?;
                let version = self.put_in_store(&document, Some(0), change).await?;
                return Ok(Enforced { version, document: Some(document), canary: None });
            };
            let document = read(&current)?;
            let canary = if enforce { None } else { self.canary().await? };
            if document.is_enforced() == enforce && canary.is_none() {
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
    pub(super) async fn tell_of_enforced(&self, made: &Enforced, change: &ChangeOrigin) {
        let Some(document) = &made.document else { return };
        self.known().add(made.version, known_rules(document.rules()).collect());
        let ChangeOrigin { note, author, comment, .. } = change;
        let version = self.name(made.version).await;
        tracing::info!(version, note, author, comment, "new rule set");
        self.tell_of(made.version, document, change).await;
        if let Some(canary) = &made.canary {
            self.audit_log.change(canary::withdrawn(canary, change));
        }
    }
}
