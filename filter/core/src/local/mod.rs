//! State that each worker keeps for itself: refusals that still hold, and the watched keys that it has met.

mod local_cache;
mod watch;

pub(crate) use local_cache::{Denial, LocalCache};
pub(crate) use watch::{WatchList, bytes_of};
