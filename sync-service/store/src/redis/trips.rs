//! Exchanges with one server that combine everything that waits at the same moment.

use std::iter;
use std::mem;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

/// Maximum number of requests that wait to be sent.
const ASKED_MAX: usize = 4_096;
/// Maximum number of exchanges under way.
const TRIPS_MAX: usize = 64;
/// Maximum time for which requests wait for the end of the current exchange, so that they are sent together.
/// Redis may be far away, and no answer should be delayed for long.
const NEAR: Duration = Duration::from_millis(5);

/// Sends requests in exchanges. Requests that arrive during an exchange are sent with the next one, or beside
/// it if it takes long. The background task ends when this is dropped.
#[derive(Debug)]
pub(super) struct Trips<T> {
    asked: mpsc::Sender<T>,
    _task: JoinSet<()>,
}

impl<T: Send + 'static> Trips<T> {
    /// Creates the sender; `go` makes an exchange. Requests that were given up according to `is_given_up` are
    /// not sent. Must be called inside a tokio runtime.
    pub(super) fn new<G, F>(is_given_up: fn(&T) -> bool, go: G) -> Self
    where
        G: Fn(Vec<T>) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (asked, asking) = mpsc::channel(ASKED_MAX);
        Self { asked, _task: JoinSet::from_iter([run(asking, is_given_up, go)]) }
    }

    pub(super) async fn ask(&self, asked: T) {
        // The receiver lives as long as this sender.
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
        // Tasks woken together with this one may be about to send as well.
        yield_now().await;
        let room = ASKED_MAX.saturating_sub(asked.len());
        asked.extend(iter::from_fn(|| asking.try_recv().ok()).take(room));
        asked.retain(|asked| !is_given_up(asked));
        // A call without requests would be refused, and the link would report a failure.
        if !asked.is_empty() {
            trips.push(go(mem::take(&mut asked)));
            let _ = timeout(NEAR, trips.next()).await;
        }
    }
}
