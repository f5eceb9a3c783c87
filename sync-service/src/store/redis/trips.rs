//! Trips to one server: what waits at the same moment goes together.

use std::fmt;
use std::iter;
use std::mem;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;

/// The most that waits to be sent.
const ASKED_MAX: usize = 4_096;
/// The most trips that are under way at once.
const TRIPS_MAX: usize = 64;
/// What comes while a trip is under way waits for its end, so that it goes together; but usually no longer than this: Redis may be
/// far away, and nobody's answer is to wait for long.
const NEAR: Duration = Duration::from_millis(5);

/// Sends what is asked, trip after trip: what comes while one is under way goes with the next, and while it takes long, with one
/// beside it. The background work ends when this is dropped.
pub(super) struct Trips<T> {
    asked: mpsc::Sender<T>,
    task: JoinHandle<()>,
}

impl<T> fmt::Debug for Trips<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trips").finish_non_exhaustive()
    }
}

impl<T> Drop for Trips<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<T: Send + 'static> Trips<T> {
    /// Trips that `go` makes. What `is_given_up` meanwhile is not sent. Must run inside tokio.
    pub(super) fn new<G, F>(is_given_up: fn(&T) -> bool, go: G) -> Self
    where
        G: Fn(Vec<T>) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (asked, asking) = mpsc::channel(ASKED_MAX);
        Self { asked, task: tokio::spawn(run(asking, is_given_up, go)) }
    }

    /// Sends it with the next trip.
    pub(super) async fn ask(&self, asked: T) {
        // The other end is there for as long as this is.
        let _ = self.asked.send(asked).await;
    }
}

async fn run<T, G, F>(mut asking: mpsc::Receiver<T>, is_given_up: fn(&T) -> bool, go: G)
where
    G: Fn(Vec<T>) -> F,
    F: Future<Output = ()>,
{
    let mut trips = FuturesUnordered::new();
    let mut asked = Vec::new();
    loop {
        tokio::select! {
            count = asking.recv_many(&mut asked, ASKED_MAX), if trips.len() < TRIPS_MAX => if count == 0 { return },
            Some(()) = trips.next() => continue,
        }
        // Those that came with this one are about to ask, too.
        yield_now().await;
        let room = ASKED_MAX.saturating_sub(asked.len());
        asked.extend(iter::from_fn(|| asking.try_recv().ok()).take(room));
        asked.retain(|asked| !is_given_up(asked));
        // A call of nothing is refused, and the link would hear of it.
        if !asked.is_empty() {
            trips.push(go(mem::take(&mut asked)));
            let _ = timeout(NEAR, trips.next()).await;
        }
    }
}
