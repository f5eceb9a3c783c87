//! Time limits of requests that wait for a store that does not answer.

use std::time::Duration;

/// Total time to wait for a store that does not answer. Each call may use at most half of what is left, so some
/// is always left. Calls that are answered consume none of it.
#[derive(Debug)]
pub(super) struct Patience(Duration);

impl Patience {
    /// No total limit.
    pub(super) fn endless() -> Self {
        Self(Duration::MAX)
    }

    /// Total limit of `all`.
    pub(super) fn of(all: Duration) -> Self {
        Self(all)
    }

    /// Time limit of a call that may take at most `time`.
    pub(super) fn limit(&self, time: Duration) -> Duration {
        time.min(self.0 / 2)
    }

    /// Deducts the time of a call that was not answered.
    pub(super) fn take(&mut self, waited: Duration) {
        self.0 = self.0.saturating_sub(waited);
    }
}
