//! Debounces changes of a file: content counts once it was read twice in a row, so a file that is still being
//! written is ignored.
//!
//! Files are polled. That works on every file system, and through symbolic links that are swapped.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

/// Interval at which files are read.
const READ_INTERVAL: Duration = Duration::from_millis(500);

/// Last content read, and last content that settled.
#[derive(Debug)]
pub(crate) struct Settling<T> {
    last: Option<T>,
    settled: Option<T>,
}

impl<T> Default for Settling<T> {
    fn default() -> Self {
        Self { last: None, settled: None }
    }
}

impl<T: Clone + PartialEq> Settling<T> {
    /// Begins with `known` as the settled content.
    pub(crate) fn on(known: T) -> Self {
        Self { last: None, settled: Some(known) }
    }

    /// Applies the content that was read. Returns it if it is new and has just settled.
    pub(crate) fn see(&mut self, found: T) -> Option<T> {
        let is_still = self.last.as_ref() == Some(&found);
        self.last = Some(found.clone());
        if !is_still || self.settled.as_ref() == Some(&found) {
            return None;
        }
        self.settled = Some(found.clone());
        Some(found)
    }
}

/// Ticks at which to read.
pub(crate) fn ticks() -> Interval {
    let mut ticks = interval(READ_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
