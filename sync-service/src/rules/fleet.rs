//! What each POP of the fleet is to run.

use std::sync::Arc;

use super::RuleSets;
use super::audience::Canary;
use crate::fleet::Seen;
use crate::store::StoreError;
use crate::store::orders::Current;

/// The fleet at one moment.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// The version of the rule set; 0 if there is none.
    pub version: u64,
    /// The edition that POPs are to run; 0 if there is none.
    pub edition: u64,
    /// The canary that runs, and the edition of its POPs.
    pub canary: Option<(Arc<Canary>, u64)>,
    /// Every POP; without the store, those that report here.
    pub pops: Vec<Seen>,
    /// Why the store does not answer, if so.
    pub offline: Option<StoreError>,
}

impl Fleet {
    /// As the store says.
    pub(crate) fn of(current: Current, canary: Option<Arc<Canary>>, pops: Vec<Seen>) -> Self {
        let (version, edition) = (current.version.unwrap_or_default(), current.edition());
        Self { version, edition, canary: canary.zip(current.canary_edition()), pops, offline: None }
    }

    /// Whether `pop` is to run the canary.
    pub fn is_canary(&self, pop: &Seen) -> bool {
        self.canary.as_ref().is_some_and(|(canary, _)| canary.audience.covers(&pop.pop, &pop.region))
    }

    /// Whether `pop` runs what it is to run.
    pub fn is_current(&self, pop: &Seen) -> bool {
        let canary = self.canary.as_ref().filter(|_| self.is_canary(pop));
        pop.version == canary.map_or(self.edition, |(_, edition)| *edition)
    }

    /// The latest edition that a POP runs, if there is no rule set: the store has lost it.
    pub fn lost(&self) -> Option<u64> {
        let runs = self.pops.iter().map(|pop| pop.version).max();
        runs.filter(|edition| self.edition == 0 && *edition > 0)
    }
}

impl RuleSets {
    /// What these POPs are told to run, while the store does not answer.
    pub(crate) fn fleet_offline(&self, pops: Vec<Seen>, error: StoreError) -> Fleet {
        let told = self.told();
        let canary = told.canary().map(|trial| (Arc::clone(&trial.canary), trial.edition.number));
        let (version, edition) = told.current().map_or((0, 0), |edition| (edition.version, edition.number));
        Fleet { version, edition, canary, pops, offline: Some(error) }
    }
}
