//! What each POP of the fleet is to run.

use std::sync::Arc;

use super::audience::Canary;
use crate::fleet::Seen;
use crate::store::orders::Current;

/// The fleet at one moment.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// What is current.
    pub current: Current,
    /// The canary, if one runs.
    pub canary: Option<Arc<Canary>>,
    /// Every POP.
    pub pops: Vec<Seen>,
}

impl Fleet {
    /// Whether `pop` is to run the canary.
    pub fn is_canary(&self, pop: &Seen) -> bool {
        self.canary.as_ref().is_some_and(|canary| canary.audience.covers(&pop.pop, &pop.region))
    }

    /// Whether `pop` runs what it is to run.
    pub fn is_current(&self, pop: &Seen) -> bool {
        let canary = self.current.canary_edition().filter(|_| self.is_canary(pop));
        pop.version == canary.unwrap_or(self.current.edition())
    }
}
