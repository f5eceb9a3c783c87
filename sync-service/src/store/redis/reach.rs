//! What every connection of a store is made with.

use std::sync::Arc;
use std::time::Duration;

use crate::store::clock::{Clocks, ServerClock};
use crate::store::dial::Dialer;
use crate::store::link::{Link, Place};

/// How servers are reached.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    pub(super) dialer: Arc<Dialer>,
    /// How long an answer may take, beside the round trip.
    pub(super) response_timeout: Duration,
    /// What is loaded on each new connection.
    pub(super) scripts: Arc<[String]>,
    /// How long a replica may take to have what a call did; without this it is not waited for.
    pub(super) wait: Option<Duration>,
    pub(super) clocks: Arc<Clocks>,
}

impl Reach {
    /// A link to `place`.
    pub(super) fn link(&self, place: Place) -> Link {
        let clock = ServerClock::new(Arc::clone(&self.clocks));
        Link::new(place, self.response_timeout, Arc::clone(&self.scripts), clock)
    }
}
