//! Places at a listener, and the connections among them that wait for a request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;

/// The connections that wait for a request, longest first.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// By the number of their turn.
    by_turn: Mutex<BTreeMap<u64, Arc<Notify>>>,
    turns: AtomicU64,
    /// Notified when one more begins to wait.
    pub(super) begins: Notify,
}

impl Waiting {
    fn by_turn(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Notify>>> {
        self.by_turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there was one to close.
    pub(super) fn close_longest(&self) -> bool {
        let longest = self.by_turn().pop_first();
        longest.map(|(_, close)| close.notify_one()).is_some()
    }
}

/// One connection among those that wait.
#[derive(Debug)]
pub(super) struct Seat {
    waiting: Arc<Waiting>,
    pub(super) close: Arc<Notify>,
    turn: AtomicU64,
    /// Requests that are being answered.
    requests: AtomicU32,
    /// Counts the connections.
    open: Gauge,
}

impl Seat {
    pub(super) fn new(waiting: &Arc<Waiting>, open: &Gauge) -> Self {
        let place = Self {
            waiting: Arc::clone(waiting),
            close: Arc::default(),
            turn: AtomicU64::new(0),
            requests: AtomicU32::new(0),
            open: open.clone(),
        };
        place.open.inc();
        place.wait();
        place
    }

    fn wait(&self) {
        self.wait_in(&mut self.waiting.by_turn());
        self.waiting.begins.notify_waiters();
    }

    fn wait_in(&self, by_turn: &mut BTreeMap<u64, Arc<Notify>>) {
        let turn = self.waiting.turns.fetch_add(1, Ordering::Relaxed);
        self.turn.store(turn, Ordering::Relaxed);
        by_turn.insert(turn, Arc::clone(&self.close));
    }

    pub(super) fn is_busy(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// One request more. The first and the last of several may meet, so these count under the lock.
    fn begin(&self) {
        let mut by_turn = self.waiting.by_turn();
        if self.requests.fetch_add(1, Ordering::Relaxed) == 0 {
            by_turn.remove(&self.turn.load(Ordering::Relaxed));
        }
    }

    /// One request less.
    fn end(&self) {
        let mut by_turn = self.waiting.by_turn();
        if self.requests.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.wait_in(&mut by_turn);
            drop(by_turn);
            self.waiting.begins.notify_waiters();
        }
    }

    fn leave(&self) {
        self.waiting.by_turn().remove(&self.turn.load(Ordering::Relaxed));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.open.dec();
        self.leave();
    }
}

/// A request that is being answered: its connection does not wait meanwhile.
pub(super) struct Busy(Arc<Seat>);

impl Busy {
    pub(super) fn new(place: &Arc<Seat>) -> Self {
        place.begin();
        Self(Arc::clone(place))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.end();
    }
}
