//! Follows the store: reads the current rule set, canary and overrides, and notifies POPs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::spawn_blocking;
use weir_store::StoreError;
use weir_store::fleet::Seen;
use weir_store::rules::{OverrideChange, StoredOverrides};

use super::RuleSets;
use super::change::Canary;
use super::revision::{Base, Followed, Revision, Trial};
use crate::lock;
use crate::overrides::spec::OverrideState;

impl RuleSets {
    /// Reads the store, and notifies POPs of changes. A store that has lost its data changes nothing.
    pub async fn listen(&self) -> Result<(), StoreError> {
        // One at a time, so that the latest answer counts.
        let mut followed = self.followed.lock().await;
        let mut current = self.store.current().await?;
        if !followed.offline.is_empty() {
            self.catch_up(&mut followed).await?;
            current = self.store.current().await?;
        }
        self.is_missing.store(current.version.is_none(), Ordering::Relaxed);
        if current.overrides != followed.current.overrides || followed.is_due() {
            // The store drops overrides that have ended.
            let overrides = self.store.overrides(None).await?;
            followed.observe(&overrides);
            current = overrides.current;
        }
        let Some(version) = current.version else { return Ok(()) };
        self.know_kept(version).await?;
        if current == followed.current {
            return Ok(());
        }
        let base = match &followed.base {
            Some(base) if base.version == version => Arc::clone(base),
            _ => {
                // The version was dropped since; the next interval reads a newer one.
                let Some(text) = self.store.get_rules(version).await? else { return Ok(()) };
                Arc::new(Base::read(version, text))
            }
        };
        followed.base = Some(Arc::clone(&base));
        if !self.follow_canary(&mut followed, current.canary, version).await? {
            return Ok(());
        }
        let (canary, overrides) = (followed.canary.clone(), Arc::clone(&followed.overrides));
        // Composing a large rule set takes a while. If it fails, POPs keep their revision.
        let made = spawn_blocking(move || {
            let revision = Arc::new(Revision::of(current.revision(), &base, &overrides));
            let trial = canary.zip(current.canary_revision()).map(|((canary, base), number)| Trial {
                canary,
                revision: Arc::new(Revision::of(number, &base, &overrides)),
            });
            (revision, trial)
        });
        if let Ok((revision, trial)) = made.await {
            self.publish(revision, trial);
            followed.current = current;
        }
        Ok(())
    }

    /// Reads the canary `id` (0: none) beside `version`. Returns false if it has ended, which the next interval reads.
    async fn follow_canary(&self, followed: &mut Followed, id: u64, version: u64) -> Result<bool, StoreError> {
        let known = followed.canary.as_ref().map_or(0, |(canary, _)| canary.id);
        if id == known {
            return Ok(true);
        }
        followed.canary = None;
        if id == 0 {
            return Ok(true);
        }
        let Some(kept) = self.store.canary().await?.filter(|kept| kept.id == id) else { return Ok(false) };
        let text = kept.document.clone();
        let canary = Canary::read(kept);
        if canary.is_none() {
            tracing::warn!(id, "a canary of a newer weir-sync cannot be read: POPs that report here do not run it");
        }
        followed.canary = canary.map(|canary| (Arc::new(canary), Arc::new(Base::read(version, text))));
        Ok(true)
    }

    pub(super) async fn change(&self, change: &OverrideChange<'_>) -> Result<StoredOverrides, StoreError> {
        let changed = self.store.overrides(Some(change)).await?;
        self.listen_now().await;
        Ok(changed)
    }

    /// Like [`Self::listen`], but only logs an error, because the next interval reads the store again.
    pub(super) async fn listen_now(&self) {
        if let Err(error) = self.listen().await {
            tracing::debug!(%error, "POPs get a change once the store answers");
        }
    }

    pub(super) fn publish(&self, revision: Arc<Revision>, canary: Option<Trial>) {
        let number = |revision: &Revision| i64::try_from(revision.number).unwrap_or(i64::MAX);
        let [of_all, of_canary] = &self.shown;
        of_all.set(number(&revision));
        of_canary.set(canary.as_ref().map_or(0, |trial| number(&trial.revision)));
        for revision in canary.iter().map(|trial| &trial.revision).chain([&revision]) {
            lock(&self.known).add_revision(revision.number, revision.rules.iter().cloned());
        }
        let mut recent = lock(&self.recent);
        let before = recent.current.clone();
        let is_known = |state: &OverrideState| before.iter().any(|before| before.override_states.contains(state));
        for state in revision.override_states.iter().filter(|state| !is_known(state)) {
            if let Some(why) = &state.without_effect {
                tracing::warn!(about = state.order.settings.summary(), why, "an override is without effect");
            }
        }
        recent.publish(revision, canary);
    }

    /// State of the fleet without the store, limited to these POPs.
    pub(crate) fn fleet_offline(&self, pops: Vec<Seen>, error: StoreError) -> FleetState {
        let recent = lock(&self.recent);
        let canary = recent.canary.as_ref().map(|trial| (Arc::clone(&trial.canary), trial.revision.number));
        let (version, revision) =
            recent.current.as_ref().map_or((0, 0), |revision| (revision.version, revision.number));
        FleetState { version, revision, canary, pops, offline: Some(error) }
    }
}

/// The fleet at one moment. Numbers are 0 if there is no rule set.
#[derive(Debug)]
pub(crate) struct FleetState {
    pub(crate) version: u64,
    pub(crate) revision: u64,
    /// The current canary, and the revision of its POPs.
    pub(crate) canary: Option<(Arc<Canary>, u64)>,
    /// All POPs; without the store, those that report here.
    pub(crate) pops: Vec<Seen>,
    pub(crate) offline: Option<StoreError>,
}

impl FleetState {
    pub(crate) fn is_canary(&self, pop: &Seen) -> bool {
        self.canary.as_ref().is_some_and(|(canary, _)| canary.audience.covers(&pop.pop, &pop.region))
    }

    pub(crate) fn is_current(&self, pop: &Seen) -> bool {
        let canary = self.canary.as_ref().filter(|_| self.is_canary(pop));
        pop.version == canary.map_or(self.revision, |(_, revision)| *revision)
    }

    /// Latest revision that a POP runs, if the store has lost the rule set.
    pub(crate) fn lost(&self) -> Option<u64> {
        let runs = self.pops.iter().map(|pop| pop.version).max();
        runs.filter(|revision| self.revision == 0 && *revision > 0)
    }
}
