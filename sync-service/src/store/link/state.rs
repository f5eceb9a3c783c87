//! How it stands with a connection.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;

use crate::store::StoreError;

/// A good connection.
#[derive(Clone)]
pub struct Open {
    /// The connection itself.
    pub connection: MultiplexedConnection,
    /// How long an answer may take: the store's time-out and the way there and back.
    pub limit: Duration,
    /// The connection's number.
    pub generation: u64,
}

impl Open {
    /// A connection that no link has.
    pub fn new(connection: MultiplexedConnection, limit: Duration) -> Self {
        Self { connection, limit, generation: 0 }
    }
}

/// How it stands with a connection.
#[derive(Clone)]
pub(super) enum State {
    Opening,
    Up { open: Open, refused: Option<StoreError> },
    Down(StoreError),
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opening => f.write_str("Opening"),
            Self::Up { .. } => f.write_str("Up"),
            Self::Down(reason) => f.debug_tuple("Down").field(reason).finish(),
        }
    }
}
