//! What is streamed to those who look at the page at `/`, and how many they may be.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore};

/// Where the stream is.
pub const PATH: &str = "/v1/live";
/// The most streams at a time.
pub const LISTENERS_MAX: usize = 32;

/// A body that is sent as it comes about.
pub type Stream = UnsyncBoxBody<Bytes, Infallible>;

/// An event, and when it was found out.
type Known = Option<(Instant, Bytes)>;

/// What all streams share.
#[derive(Debug)]
pub struct Live {
    places: Arc<Semaphore>,
    known: Mutex<Known>,
}

impl Default for Live {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(LISTENERS_MAX)), known: Mutex::default() }
    }
}

impl Live {
    /// A place for one more stream, if there is one.
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// The event that all streams said last. It is held while the next is found out, once for all.
    pub async fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().await
    }
}
