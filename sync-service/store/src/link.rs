//! Connection to Redis that is opened, probed and reopened in the background.
//!
//! While a server is out of reach, a request for the connection fails at once with the reason: a report never
//! waits for a reconnect. A connection counts as good once the scripts are loaded and the probe, which calls
//! the same commands, has succeeded. So a replica, a full or loading Redis, a user with too few rights and a
//! cluster's node are detected, with the reason.
//!
//! Redis may be far away, so commands are sent together where possible. An answer may take the time-out and the
//! shortest recent round trip: that is the distance, and only time beyond it is slowness of Redis.

mod keeper;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, Pipeline, RedisError, Script, ServerErrorKind};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::StoreError;
use super::address::Node;
use super::clock::ServerClock;
use super::dial::{Dialer, FoundServer, connect};
use super::keys::RedisKeys;
use super::trouble::{Episode, explain};
use keeper::{FIND_PART, Keeper, NOT_TAKEN, OPEN_TIMEOUT_FACTOR, RoundTrips};

#[derive(Clone, Debug)]
pub(crate) struct LinkTarget {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) keys: RedisKeys,
    /// The node of a cluster, and the hash tag of a slot that it serves, or `None` for the only server of a store.
    pub(crate) node: Option<(Node, String)>,
}

impl LinkTarget {
    async fn find(&self, limit: Duration) -> Result<FoundServer, StoreError> {
        let Some((node, _)) = &self.node else { return self.dialer.find(limit).await };
        Ok(FoundServer { client: self.dialer.client_of(node).await?, server: node.to_string(), named: None })
    }

    /// Commands of a probe; their answers are not needed. They call the commands of all scripts, which detects a
    /// replica, a full or loading Redis, and a user with too few rights.
    pub(crate) fn probe(&self) -> Pipeline {
        // The keys expire. A node of a cluster refuses those for a single server.
        let keys = match &self.node {
            None => ["probe", "{probe}:set"].map(|name| self.keys.one(name)),
            Some((_, tag)) => ["", ":set"].map(|end| self.keys.one(&format!("{{{tag}}}{end}"))),
        };
        let script = Script::new(include_str!("probe.lua"));
        let mut pipeline = Pipeline::new();
        pipeline.load_script(&script).ignore();
        pipeline.cmd("EVALSHA").arg(script.get_hash()).arg(keys.len()).arg(&keys).ignore();
        pipeline
    }

    /// Converts an error of a probe. A slot that has just moved to another node is not this node's failure.
    pub(crate) fn check_error(&self, error: &RedisError, limit: Duration) -> Result<(), StoreError> {
        let has_moved = matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::TryAgain)
        );
        if has_moved && self.node.is_some() { Ok(()) } else { Err(explain(error, limit)) }
    }
}

impl fmt::Display for LinkTarget {
    /// Omits user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            None => self.dialer.address.fmt(f),
            Some((node, _)) => node.fmt(f),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct OpenConnection {
    pub(crate) connection: MultiplexedConnection,
    /// Time limit of an answer: the store's time-out and the round trip.
    pub(crate) limit: Duration,
    pub(crate) generation: u64,
}

#[derive(Clone, Debug)]
enum LinkState {
    Opening,
    Up { open: OpenConnection, refused: Option<StoreError> },
    Down(StoreError),
}

/// A connection that is reopened when it fails. The background task ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) clock: ServerClock,
    pub(crate) target: LinkTarget,
    state: Arc<watch::Sender<LinkState>>,
    failed: Arc<Notify>,
    _keeper: JoinSet<()>,
}

impl Link {
    /// Starts connecting. An answer may take `response_timeout` beside the round trip. Needs a tokio runtime.
    pub(crate) fn new(
        target: LinkTarget,
        response_timeout: Duration,
        scripts: Arc<[Script]>,
        clock: ServerClock,
    ) -> Self {
        let (state, failed) = (Arc::new(watch::Sender::new(LinkState::Opening)), Arc::new(Notify::new()));
        let keeper = Keeper {
            target: target.clone(),
            response_timeout,
            scripts,
            failed: Arc::clone(&failed),
            state: Arc::clone(&state),
            server: target.to_string(),
            episode: Episode::default(),
            round_trips: RoundTrips::default(),
            generation: 0,
        };
        Self { clock, target, state, failed, _keeper: JoinSet::from_iter([keeper.run()]) }
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

    /// Waits for a connection that was opened after the one with this number.
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
            let found = self.target.find(limit / FIND_PART).await?;
            let connection = connect(&found.client, limit).await?;
            Ok((found.server, connection))
        };
        timeout(limit, opening).await.unwrap_or_else(|_| Err(StoreError::Unreachable(NOT_TAKEN.into())))
    }

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::redis::texts;

    /// The commands that a script calls.
    fn called(script: &str) -> BTreeSet<&str> {
        let calls = script.split("call('").skip(1).chain(script.split("call, '").skip(1));
        calls.filter_map(|rest| rest.split('\'').next()).collect()
    }

    #[test]
    fn the_probe_calls_what_the_scripts_call() {
        let scripts = texts();
        let needed: BTreeSet<_> = scripts.iter().flat_map(|script| called(script)).collect();
        assert!(needed.len() > 15, "{needed:?}");
        let probe = include_str!("probe.lua");
        let tried: BTreeSet<_> = probe.split("try('").skip(1).filter_map(|rest| rest.split('\'').next()).collect();
        assert_eq!(tried, needed);
    }
}
