//! The connection to Redis: opened, watched and reopened in the background.
//!
//! While a server is out of reach, asking for the connection fails at once with the reason: a report never waits for a
//! reconnect. A connection counts as good once the scripts are loaded and the probe, which calls the same commands,
//! went through. So a replica, a full or loading Redis, a user with too few rights and a cluster's node are found out,
//! with the reason.
//!
//! Redis may be far away: what can be sent together is. An answer's time-out comes on top of the shortest round trip of
//! late: that is the distance, and only what goes beyond it is Redis being slow.

mod episode;
mod eviction;
mod keeper;
mod place;
mod probe;
mod round_trips;
mod state;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::StoreError;
use super::clock::ServerClock;
use super::dial::connect;
use super::keys::Keys;
pub use episode::Episode;
use keeper::{FIND_PART, Keeper, NOT_TAKEN, OPEN_TIMEOUT_FACTOR};
pub use place::{Place, Tag};
use probe::{judge, probe};
pub use state::Open;
use state::State;

/// A connection that mends itself; the background work ends when this is dropped.
#[derive(Debug)]
pub struct Link {
    /// The server's clock.
    pub clock: ServerClock,
    place: Place,
    keys: Keys,
    state: Arc<watch::Sender<State>>,
    failed: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Link {
    /// Starts connecting; `scripts` are loaded on every new connection. An answer may take `response_timeout` beside
    /// the round trip. Must run inside tokio.
    pub fn new(
        place: Place,
        keys: Keys,
        response_timeout: Duration,
        scripts: Arc<[String]>,
        clock: ServerClock,
    ) -> Self {
        let state = Arc::new(watch::Sender::new(State::Opening));
        let failed = Arc::new(Notify::new());
        let (to, told) = ((place.clone(), keys.clone()), (Arc::clone(&failed), Arc::clone(&state)));
        let keeper = Keeper::new(to, response_timeout, scripts, told);
        Self { clock, place, keys, state, failed, task: tokio::spawn(keeper.run()) }
    }

    /// The connection, or at once why there is none.
    pub fn connection(&self) -> Result<Open, StoreError> {
        match &*self.state.borrow() {
            State::Up { open, .. } => Ok(open.clone()),
            State::Down(reason) => Err(reason.clone()),
            State::Opening => Err(StoreError::Connecting),
        }
    }

    /// The connection, once it was tried to open one; waits for that `until` then at most.
    pub async fn opened(&self, until: Instant) -> Result<Open, StoreError> {
        let mut states = self.state.subscribe();
        // Either the link's own state says why there is none, or it is still being opened.
        let _ = timeout_at(until, states.wait_for(|state| !matches!(state, State::Opening))).await;
        self.connection()
    }

    /// Whether it is known that there is no connection.
    pub fn is_down(&self) -> bool {
        matches!(&*self.state.borrow(), State::Down(_))
    }

    /// Waits for a connection that was opened later than that of this number.
    pub async fn is_newer_than(&self, generation: u64) {
        let mut states = self.state.subscribe();
        let is_newer =
            |state: &State| matches!(state, State::Up { open, .. } if open.generation > generation);
        // Fails where the link is gone, and then nobody waits.
        let _ = states.wait_for(is_newer).await;
    }

    /// Another connection to where this leads, and where that is.
    pub async fn another(&self, open: &Open) -> Result<(String, MultiplexedConnection), StoreError> {
        let limit = open.limit * OPEN_TIMEOUT_FACTOR;
        let opening = async {
            let found = self.place.find(limit / FIND_PART).await?;
            let connection = connect(&found.client, limit).await?;
            Ok((found.server, connection))
        };
        timeout(limit, opening).await.unwrap_or_else(|_| Err(StoreError::Unreachable(NOT_TAKEN.into())))
    }

    /// What the connection is probed with; nothing of its answers is kept.
    pub fn probe(&self) -> Pipeline {
        probe(&self.place, &self.keys)
    }

    /// What an error of a probe means; a slot that has just moved is no trouble of the server.
    pub fn judge(&self, error: &RedisError, limit: Duration) -> Result<(), StoreError> {
        judge(&self.place, error, limit)
    }

    /// Has the connection probed soon.
    pub fn probe_soon(&self) {
        self.failed.notify_one();
    }

    /// Tells that an exchange over the connection `used` failed, and why. If Redis was out of reach or slow, the
    /// connection counts as gone until it has answered a probe, and is replaced if it does not: so one report pays for
    /// finding out, and the others do not wait. A refusal may be of one exchange; the probe finds one of all.
    pub fn failed(&self, used: &Open, reason: StoreError) {
        let is_gone = matches!(reason, StoreError::Unreachable(_) | StoreError::Slow(_));
        let is_down = self.state.send_if_modified(|state| match state {
            State::Up { open, refused } if open.generation == used.generation => {
                if is_gone {
                    *state = State::Down(reason);
                } else {
                    *refused = Some(reason);
                }
                is_gone
            }
            // An earlier connection failed, or it is known already.
            _ => false,
        });
        if is_down {
            self.failed.notify_one();
        }
    }
}

impl fmt::Display for Link {
    /// Where it leads, without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}
