//! Logs the requests that were refused for what they carry, so that an operator sees who tries what, and nobody can fill
//! the log.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a refusal is logged again.
const PAUSE: Duration = Duration::from_mins(1);
/// The most refusals that are told apart; others are not logged until there is room.
const REFUSALS_MAX: usize = 1_000;

/// The refusals of the last minute.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<HashMap<(IpAddr, String), Seen>>);

#[derive(Debug)]
struct Seen {
    logged_at: Instant,
    since: u64,
}

impl Refusals {
    /// Logs that a request of `peer` was refused, unless that was logged within the last minute.
    pub fn log(&self, peer: IpAddr, reason: String) {
        // Nothing that runs under this lock panics; should it, what it guards is still good.
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= REFUSALS_MAX {
            seen.retain(|_, seen| seen.logged_at.elapsed() < PAUSE);
        }
        let has_room = seen.len() < REFUSALS_MAX;
        let key = (peer, reason);
        match seen.get_mut(&key) {
            Some(seen) if seen.logged_at.elapsed() < PAUSE => seen.since += 1,
            Some(seen) => {
                tracing::warn!(%peer, times_since = seen.since + 1, "refused again: {}", key.1);
                *seen = Seen { logged_at: Instant::now(), since: 0 };
            }
            None if has_room => {
                tracing::warn!(%peer, "refused: {}", key.1);
                seen.insert(key, Seen { logged_at: Instant::now(), since: 0 });
            }
            None => {}
        }
    }
}
