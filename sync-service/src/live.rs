//! Stream of live data for the console at `/`, and its limits.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore};

/// Path of the stream.
pub(crate) const PATH: &str = "/v1/live";
/// Maximum number of concurrent streams.
pub(crate) const LISTENERS_MAX: usize = 32;

/// Body that is sent as it is produced.
pub(crate) type EventStream = UnsyncBoxBody<Bytes, Infallible>;

/// An event, and the time at which it was computed.
type Known = Option<(Instant, Bytes)>;

/// State shared by all streams.
#[derive(Debug)]
pub(crate) struct Live {
    places: Arc<Semaphore>,
    known: Mutex<Known>,
}

impl Default for Live {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(LISTENERS_MAX)), known: Mutex::default() }
    }
}

impl Live {
    /// Acquires a place for another stream; none if there are too many.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Last event of all streams. The lock is held while the next event is computed, once for all streams.
    pub(crate) async fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().await
    }
}
