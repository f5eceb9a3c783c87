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

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::StoreError;
use super::clock::ServerClock;
pub use episode::Episode;
use keeper::Keeper;
pub use place::{Place, Tag};
pub use state::Open;
use state::State;

/// A connection that mends itself; the background work ends when this is dropped.
#[derive(Debug)]
pub struct Link {
    /// The server's clock.
    pub clock: ServerClock,
    state: Arc<watch::Sender<State>>,
    failed: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Link {
    /// Starts connecting; `scripts` are loaded on every new connection. An answer may take `response_timeout` beside
    /// the round trip. Must run inside tokio.
    pub fn new(place: Place, response_timeout: Duration, scripts: Arc<[String]>, clock: ServerClock) -> Self {
        let state = Arc::new(watch::Sender::new(State::Opening));
        let failed = Arc::new(Notify::new());
        let keeper = Keeper::new(place, response_timeout, scripts, Arc::clone(&failed), Arc::clone(&state));
        Self { clock, state, failed, task: tokio::spawn(keeper.run()) }
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

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}
