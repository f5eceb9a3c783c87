//! Target of a link, and the state of its connection.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;

use crate::store::StoreError;
use crate::store::address::Node;
use crate::store::dial::{Dialer, FoundServer};

/// Target of a link.
#[derive(Clone, Debug)]
pub enum LinkTarget {
    /// The only server.
    Only(Arc<Dialer>),
    /// A node of a cluster.
    Node(Arc<Dialer>, Node, Arc<HashTag>),
}

/// Hash tag of a slot that a node of a cluster serves, for the keys that its probes write.
#[derive(Debug)]
pub struct HashTag(Mutex<String>);

impl HashTag {
    /// Creates it with an initial value.
    pub fn new(tag: &str) -> Self {
        Self(Mutex::new(tag.to_owned()))
    }

    /// Replaces the tag.
    pub fn set(&self, tag: &str) {
        tag.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The current tag.
    pub(super) fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl LinkTarget {
    /// Returns a client of the server, found within `limit`.
    pub(super) async fn find(&self, limit: Duration) -> Result<FoundServer, StoreError> {
        match self {
            Self::Only(dialer) => dialer.find(limit).await,
            Self::Node(dialer, node, _) => Ok(FoundServer {
                client: dialer.client_of(node).await?,
                server: node.to_string(),
                named: None,
            }),
        }
    }

    /// True if it may lead to another server each time.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self, Self::Only(dialer) if dialer.is_asking())
    }

    /// Waits until sentinels name another server than the one that they `named`, and returns that as an error.
    /// Each answer of theirs may take `limit`.
    pub(super) async fn replaced(&self, named: Option<Node>, limit: Duration) -> StoreError {
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

/// A good connection.
#[derive(Clone)]
pub struct OpenConnection {
    /// The connection itself.
    pub connection: MultiplexedConnection,
    /// Time limit of an answer: the store's time-out and the round trip.
    pub limit: Duration,
    /// Number of the connection.
    pub generation: u64,
}

impl OpenConnection {
    /// Creates it for a connection that belongs to no link.
    pub fn new(connection: MultiplexedConnection, limit: Duration) -> Self {
        Self { connection, limit, generation: 0 }
    }
}

/// State of a connection.
#[derive(Clone)]
pub(super) enum LinkState {
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
