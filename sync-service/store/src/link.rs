//! Connection to Redis that is opened, probed and reopened in the background.
//!
//! While a server is out of reach, a request for the connection fails at once with the reason: a report never
//! waits for a reconnect. A connection counts as good once the scripts are loaded and the probe, which calls
//! the same commands, has succeeded. So a replica, a full or loading Redis, a user with too few rights and a
//! cluster's node are detected, with the reason.
//!
//! Redis may be far away, so commands are sent together where possible. The time-out of an answer is added to
//! the shortest recent round trip: that is the distance, and only time beyond it is slowness of Redis.

mod episode;
mod keeper;
mod probe;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::StoreError;
use super::address::Node;
use super::clock::ServerClock;
use super::dial::{Dialer, FoundServer, connect};
use super::keys::RedisKeys;
pub(crate) use episode::Episode;
use keeper::{FIND_PART, Keeper, NOT_TAKEN, OPEN_TIMEOUT_FACTOR};
use probe::{check_error, probe};

#[derive(Clone, Debug)]
pub(crate) enum LinkTarget {
    Only(Arc<Dialer>),
    Node(Arc<Dialer>, Node, Arc<HashTag>),
}

/// Hash tag of a slot that a node of a cluster serves, for the keys that its probes write.
#[derive(Debug)]
pub(crate) struct HashTag(Mutex<String>);

impl HashTag {
    pub(crate) fn new(tag: &str) -> Self {
        Self(Mutex::new(tag.to_owned()))
    }

    pub(crate) fn set(&self, tag: &str) {
        tag.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl LinkTarget {
    /// Returns a client of the server, found within `limit`.
    async fn find(&self, limit: Duration) -> Result<FoundServer, StoreError> {
        match self {
            Self::Only(dialer) => dialer.find(limit).await,
            Self::Node(dialer, node, _) => {
                Ok(FoundServer { client: dialer.client_of(node).await?, server: node.to_string(), named: None })
            }
        }
    }

    fn is_asking(&self) -> bool {
        matches!(self, Self::Only(dialer) if dialer.is_asking())
    }

    /// Waits until sentinels name another server than the one that they `named`, and returns that as an error.
    /// Each answer of theirs may take `limit`.
    async fn replaced(&self, named: Option<Node>, limit: Duration) -> StoreError {
        match (self, named) {
            (Self::Only(dialer), Some(named)) => dialer.replaced(&named, limit).await,
            _ => std::future::pending().await,
        }
    }
}

impl fmt::Display for LinkTarget {
    /// Omits user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only(dialer) => dialer.address().fmt(f),
            Self::Node(_, node, _) => node.fmt(f),
        }
    }
}

#[derive(Clone)]
pub(crate) struct OpenConnection {
    pub(crate) connection: MultiplexedConnection,
    /// Time limit of an answer: the store's time-out and the round trip.
    pub(crate) limit: Duration,
    /// Number of the connection.
    pub(crate) generation: u64,
}

impl OpenConnection {
    /// Creates it for a connection that belongs to no link.
    pub(crate) fn new(connection: MultiplexedConnection, limit: Duration) -> Self {
        Self { connection, limit, generation: 0 }
    }
}

#[derive(Clone)]
enum LinkState {
    Opening,
    Up { open: OpenConnection, refused: Option<StoreError> },
    Down(StoreError),
}

impl fmt::Debug for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opening => f.write_str("Opening"),
            Self::Up { .. } => f.write_str("Up"),
            Self::Down(reason) => f.debug_tuple("Down").field(reason).finish(),
        }
    }
}

/// A connection that is reopened when it fails. The background task ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) clock: ServerClock,
    place: LinkTarget,
    keys: RedisKeys,
    state: Arc<watch::Sender<LinkState>>,
    failed: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Link {
    /// Starts connecting; `scripts` are loaded on every new connection. An answer may take `response_timeout`
    /// in addition to the round trip. Must be called inside a tokio runtime.
    pub(crate) fn new(
        place: LinkTarget,
        keys: RedisKeys,
        response_timeout: Duration,
        scripts: Arc<[String]>,
        clock: ServerClock,
    ) -> Self {
        let state = Arc::new(watch::Sender::new(LinkState::Opening));
        let failed = Arc::new(Notify::new());
        let (to, shared) = ((place.clone(), keys.clone()), (Arc::clone(&failed), Arc::clone(&state)));
        let keeper = Keeper::new(to, response_timeout, scripts, shared);
        Self { clock, place, keys, state, failed, task: tokio::spawn(keeper.run()) }
    }

    /// Returns the connection, or at once the reason why there is none.
    pub(crate) fn connection(&self) -> Result<OpenConnection, StoreError> {
        match &*self.state.borrow() {
            LinkState::Up { open, .. } => Ok(open.clone()),
            LinkState::Down(reason) => Err(reason.clone()),
            LinkState::Opening => Err(StoreError::Connecting),
        }
    }

    /// Returns the connection after the first attempt to open one; waits for that at most `until`.
    pub(crate) async fn opened(&self, until: Instant) -> Result<OpenConnection, StoreError> {
        let mut states = self.state.subscribe();
        // On a time-out the link's state has the reason, or it is still opening.
        let _ = timeout_at(until, states.wait_for(|state| !matches!(state, LinkState::Opening))).await;
        self.connection()
    }

    /// True if there is known to be no connection.
    pub(crate) fn is_down(&self) -> bool {
        matches!(&*self.state.borrow(), LinkState::Down(_))
    }

    /// Waits for a connection that was opened later than that of this number.
    pub(crate) async fn is_newer_than(&self, generation: u64) {
        let mut states = self.state.subscribe();
        let is_newer = |state: &LinkState| matches!(state, LinkState::Up { open, .. } if open.generation > generation);
        // Fails if the link is gone, and then there is nothing to wait for.
        let _ = states.wait_for(is_newer).await;
    }

    /// Opens another connection to the link's server, and returns that server's address, too.
    pub(crate) async fn another(&self, open: &OpenConnection) -> Result<(String, MultiplexedConnection), StoreError> {
        let limit = open.limit * OPEN_TIMEOUT_FACTOR;
        let opening = async {
            let found = self.place.find(limit / FIND_PART).await?;
            let connection = connect(&found.client, limit).await?;
            Ok((found.server, connection))
        };
        timeout(limit, opening).await.unwrap_or_else(|_| Err(StoreError::Unreachable(NOT_TAKEN.into())))
    }

    pub(crate) fn probe(&self) -> Pipeline {
        probe(&self.place, &self.keys)
    }

    /// Converts an error of a probe. A slot that has just moved is no failure of the server.
    pub(crate) fn check_error(&self, error: &RedisError, limit: Duration) -> Result<(), StoreError> {
        check_error(&self.place, error, limit)
    }

    /// Requests a probe of the connection.
    pub(crate) fn probe_soon(&self) {
        self.failed.notify_one();
    }

    /// Reports that an exchange over the connection `used` failed. If Redis was out of reach or slow, the connection is
    /// down until it has answered a probe, and is replaced if it does not. So only one report waits for the time-out,
    /// and the others fail at once. A refusal may concern one exchange only; a refusal of all is found by the probe.
    pub(crate) fn failed(&self, used: &OpenConnection, reason: StoreError) {
        let is_gone = matches!(reason, StoreError::Unreachable(_) | StoreError::Slow(_));
        let is_down = self.state.send_if_modified(|state| match state {
            LinkState::Up { open, refused } if open.generation == used.generation => {
                if is_gone {
                    *state = LinkState::Down(reason);
                } else {
                    *refused = Some(reason);
                }
                is_gone
            }
            // An earlier connection failed, or the failure is known already.
            _ => false,
        });
        if is_down {
            self.failed.notify_one();
        }
    }
}

impl fmt::Display for Link {
    /// Omits user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}
