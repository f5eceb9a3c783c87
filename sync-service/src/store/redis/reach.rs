//! Settings shared by all connections of a store.

use std::sync::Arc;
use std::time::Duration;

use super::confirmer::Confirmer;
use super::script::Lua;
use super::server::Server;
use crate::store::clock::{Clocks, ServerClock};
use crate::store::dial::Dialer;
use crate::store::keys::RedisKeys;
use crate::store::link::{Link, LinkTarget};

/// Settings for reaching servers.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    pub(super) dialer: Arc<Dialer>,
    /// Names of the keys there.
    pub(super) keys: RedisKeys,
    /// Time-out of an answer, in addition to the round trip.
    pub(super) response_timeout: Duration,
    /// Scripts that are loaded on each new connection.
    pub(super) scripts: Arc<[String]>,
    /// Script of the calls that count only once a replica has their effects, and the time that may take; none
    /// if no call waits for a replica.
    pub(super) confirmed: Option<(Arc<Lua>, Duration)>,
    pub(super) clocks: Arc<Clocks>,
}

impl Reach {
    /// Creates a server at `place`, and starts connecting. Must be called inside a tokio runtime.
    pub(super) fn server(&self, place: LinkTarget) -> Server {
        let clock = ServerClock::new(Arc::clone(&self.clocks));
        let (keys, scripts) = (self.keys.clone(), Arc::clone(&self.scripts));
        let link = Arc::new(Link::new(place, keys, self.response_timeout, scripts, clock));
        let waiting = self.confirmed.clone();
        let confirmer = waiting.map(|(script, wait)| Confirmer::new(Arc::clone(&link), script, wait));
        Server { link, confirmer }
    }
}
