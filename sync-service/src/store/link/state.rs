//! State of a connection.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;

use crate::store::StoreError;

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
