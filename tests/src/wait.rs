//! Waiting for a condition, with a deadline: what the tests do instead of sleeping for luck.

use std::time::{Duration, Instant};

/// Time that a part of the edge may take to start, or a change to show, before the test fails. Far
/// above what it takes, so that a slow machine does not fail it.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// Between two looks at a condition.
const LOOK: Duration = Duration::from_millis(20);

/// Looks until `check` gives something; panics with `what` after [`DEADLINE`].
pub async fn until<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(Instant::now() < end, "waited {} s in vain for {what}", DEADLINE.as_secs());
        tokio::time::sleep(LOOK).await;
    }
}
