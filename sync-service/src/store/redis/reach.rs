//! What every connection of a store is made with.

use std::sync::Arc;
use std::time::Duration;

use super::confirmer::Confirmer;
use super::script::Lua;
use super::server::Server;
use crate::store::clock::{Clocks, ServerClock};
use crate::store::dial::Dialer;
use crate::store::keys::Keys;
use crate::store::link::{Link, Place};

/// How servers are reached.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    pub(super) dialer: Arc<Dialer>,
    /// The names of what is written there.
    pub(super) keys: Keys,
    /// How long an answer may take, beside the round trip.
    pub(super) response_timeout: Duration,
    /// What is loaded on each new connection.
    pub(super) scripts: Arc<[String]>,
    /// The script of the calls that count once a replica has what they did, and how long that may take; without this none
    /// is waited for.
    pub(super) confirmed: Option<(Arc<Lua>, Duration)>,
    pub(super) clocks: Arc<Clocks>,
}

impl Reach {
    /// A server at `place`. Starts connecting; must run inside tokio.
    pub(super) fn server(&self, place: Place) -> Server {
        let clock = ServerClock::new(Arc::clone(&self.clocks));
        let (keys, scripts) = (self.keys.clone(), Arc::clone(&self.scripts));
        let link = Arc::new(Link::new(place, keys, self.response_timeout, scripts, clock));
        let waiting = self.confirmed.clone();
        let confirmer = waiting.map(|(script, wait)| Confirmer::new(Arc::clone(&link), script, wait));
        Server { link, confirmer }
    }
}
