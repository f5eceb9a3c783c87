//! What is found in a file counts once it is found twice in a row: a file that is still being written is left alone.
//!
//! Files are read again and again, which works on every file system and through symbolic links that are swapped.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often files are read.
const READ_INTERVAL: Duration = Duration::from_millis(500);

/// What a watcher has found.
#[derive(Debug)]
pub struct Settling<T> {
    last: Option<T>,
    settled: Option<T>,
}

impl<T> Default for Settling<T> {
    fn default() -> Self {
        Self { last: None, settled: None }
    }
}

impl<T: Clone + PartialEq> Settling<T> {
    /// Begins with what is known already.
    pub fn on(known: T) -> Self {
        Self { last: None, settled: Some(known) }
    }

    /// Takes in what was found; returns it if it is new and has just settled.
    pub fn see(&mut self, found: T) -> Option<T> {
        let is_still = self.last.as_ref() == Some(&found);
        self.last = Some(found.clone());
        if !is_still || self.settled.as_ref() == Some(&found) {
            return None;
        }
        self.settled = Some(found.clone());
        Some(found)
    }
}

/// When to look.
pub fn ticks() -> Interval {
    let mut ticks = interval(READ_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
