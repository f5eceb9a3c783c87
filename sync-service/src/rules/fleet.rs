//! Revisions that each POP of the fleet should run.

use std::sync::Arc;

use super::RuleSets;
use super::audience::Canary;
use crate::fleet::Seen;
use crate::store::StoreError;
use crate::store::overrides::Current;

/// The fleet at one moment.
#[derive(Clone, Debug, Default)]
pub struct FleetState {
    /// Version of the rule set; 0 if there is none.
    pub version: u64,
    /// Revision that POPs should run; 0 if there is none.
    pub revision: u64,
    /// The current canary, and the revision of its POPs.
    pub canary: Option<(Arc<Canary>, u64)>,
    /// All POPs; without the store, those that report here.
    pub pops: Vec<Seen>,
    /// The store's error, if it is out of reach.
    pub offline: Option<StoreError>,
}

impl FleetState {
    /// The fleet according to the store.
    pub(crate) fn of(current: Current, canary: Option<Arc<Canary>>, pops: Vec<Seen>) -> Self {
        let (version, revision) = (current.version.unwrap_or_default(), current.revision());
        Self { version, revision, canary: canary.zip(current.canary_revision()), pops, offline: None }
    }

    /// True if `pop` should run the canary.
    pub fn is_canary(&self, pop: &Seen) -> bool {
        self.canary.as_ref().is_some_and(|(canary, _)| canary.audience.covers(&pop.pop, &pop.region))
    }

    /// True if `pop` runs the revision that it should run.
    pub fn is_current(&self, pop: &Seen) -> bool {
        let canary = self.canary.as_ref().filter(|_| self.is_canary(pop));
        pop.version == canary.map_or(self.revision, |(_, revision)| *revision)
    }

    /// Latest revision that a POP runs, if the store has lost the rule set; else none.
    pub fn lost(&self) -> Option<u64> {
        let runs = self.pops.iter().map(|pop| pop.version).max();
        runs.filter(|revision| self.revision == 0 && *revision > 0)
    }
}

impl RuleSets {
    /// Revisions that these POPs should run, while the store is out of reach.
    pub(crate) fn fleet_offline(&self, pops: Vec<Seen>, error: StoreError) -> FleetState {
        let told = self.told();
        let canary = told.canary().map(|trial| (Arc::clone(&trial.canary), trial.revision.number));
        let (version, revision) =
            told.current().map_or((0, 0), |revision| (revision.version, revision.number));
        FleetState { version, revision, canary, pops, offline: Some(error) }
    }
}
