//! How long requests wait for a store that does not answer.

use std::time::Duration;

/// How long to wait, in all, for a store that does not answer. Each call waits for half of what is left at most, so there
/// is always some left; one that is answered takes nothing of it.
#[derive(Debug)]
pub(super) struct Patience(Duration);

impl Patience {
    /// Each call waits as long as it may.
    pub(super) fn endless() -> Self {
        Self(Duration::MAX)
    }

    /// So long.
    pub(super) fn of(all: Duration) -> Self {
        Self(all)
    }

    /// How long a call may wait that has so much time.
    pub(super) fn limit(&self, time: Duration) -> Duration {
        time.min(self.0 / 2)
    }

    /// A call waited for so long in vain.
    pub(super) fn take(&mut self, waited: Duration) {
        self.0 = self.0.saturating_sub(waited);
    }
}
