//! State that each worker keeps for itself: refusals that still hold, and the watched keys that it has met.

mod deny_cache;
mod watch;

pub(crate) use deny_cache::{Denial, DenyCache};
pub(crate) use watch::{WatchList, bytes_of};
