//! One server: the connection that its calls share, and another for the acquires that wait for replicas.

use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, Script, Value};
use tokio::time::{Instant, timeout};

use super::Wait;
use super::confirmer::{Confirmer, patience};
use super::exchange::{RoutedCommand, exchange};
use super::script::Lua;
use crate::address::Node;
use crate::clock::{Clocks, ServerClock};
use crate::dial::Dialer;
use crate::keys::RedisKeys;
use crate::link::{Link, LinkTarget, OpenConnection};
use crate::trouble::explain;
use crate::{Master, StoreError};

#[derive(Clone, Debug)]
pub(super) struct Reach {
    pub(super) dialer: Arc<Dialer>,
    pub(super) keys: RedisKeys,
    /// Time-out of an answer, in addition to the round trip.
    pub(super) response_timeout: Duration,
    pub(super) scripts: Arc<[Script]>,
    /// Script whose calls wait for replicas, and the terms of that wait; `None` if no call waits.
    pub(super) confirmed: Option<(Arc<Lua>, Wait)>,
    pub(super) clocks: Arc<Clocks>,
}

/// A server, or those that take over from each other under one name.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) link: Arc<Link>,
    /// If there is none, no acquire waits for a replica.
    confirmer: Option<Confirmer>,
}

impl Server {
    /// Starts connecting to the only server, or to a `node` of a cluster (see [`LinkTarget`]).
    pub(super) fn new(reach: &Reach, node: Option<(Node, String)>) -> Self {
        let target = LinkTarget { dialer: Arc::clone(&reach.dialer), keys: reach.keys.clone(), node };
        let clock = ServerClock::new(Arc::clone(&reach.clocks));
        let link = Arc::new(Link::new(target, reach.response_timeout, Arc::clone(&reach.scripts), clock));
        let waiting = reach.confirmed.clone();
        let confirmer = waiting.map(|(script, wait)| Confirmer::new(Arc::clone(&link), script, wait));
        Self { link, confirmer }
    }

    /// Sends `calls` of `script`; returns their answers, which may be errors, and the connection that was used.
    /// Fails if there is no connection, or no answer in time.
    ///
    /// All exchanges of the calls end by `until`; a link that is being opened is waited for until then. Without
    /// `until`, the link's own limit applies, and the link has to be open.
    pub(super) async fn send(
        &self,
        calls: Vec<RoutedCommand>,
        script: &Lua,
        until: Option<Instant>,
    ) -> Result<(OpenConnection, Vec<Value>), StoreError> {
        let open = match until {
            Some(until) => self.link.opened(until).await?,
            None => self.link.connection()?,
        };
        let confirmer = self.confirmer.as_ref().filter(|_| script.is_confirmed);
        let longest = open.limit + confirmer.map(|confirmer| patience(confirmer.wait)).unwrap_or_default();
        let left = until.map_or(longest, |until| until.saturating_duration_since(Instant::now()));
        let limit = left.min(longest);
        let asking = async {
            match confirmer {
                Some(confirmer) => confirmer.send(calls).await,
                None => exchange(&self.link, &open, &calls, script, None).await,
            }
        };
        // One limit for all tries: a report waits no longer because a server was restarted.
        let answer = timeout(limit, asking).await;
        match answer.unwrap_or(Err(StoreError::Slow(longest.as_millis()))) {
            Ok(values) => Ok((open, values)),
            Err(reason) => {
                // A server that got only a part of its time might have answered in time.
                let is_its_own = !matches!(reason, StoreError::Slow(_)) || limit >= longest / 2;
                // The confirmer reopens its own connection; calls of others continue.
                if is_its_own && confirmer.is_none() {
                    self.link.failed(&open, reason.clone());
                }
                Err(reason)
            }
        }
    }

    /// Result of an answer that came over `open`. A refusal is reported to the link.
    pub(super) fn given(&self, value: Value, open: &OpenConnection) -> Result<Value, StoreError> {
        let Value::ServerError(error) = value else { return Ok(value) };
        let reason = explain(&RedisError::from(error), open.limit);
        self.link.failed(open, reason.clone());
        Err(reason)
    }

    /// Result of the last confirmation, or `None` if acquires wait for no replica, or the server is out of reach.
    pub(super) fn master(&self) -> Option<Master> {
        self.confirmer.as_ref().filter(|_| !self.link.is_down()).map(Confirmer::master)
    }
}
