//! Overrides in memory.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::store::overrides::{OVERRIDES_MAX, OverrideChange, OverrideResult, StoredOverride};

/// Overrides by name.
#[derive(Debug, Default)]
pub(super) struct MemoryOverrides {
    number: u64,
    kept: BTreeMap<String, StoredOverride>,
}

impl MemoryOverrides {
    /// Number of the latest change.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Makes a change at the time `since_1970`, and drops the overrides that have ended. While a canary runs,
    /// each change adds two to the number.
    pub(super) fn change(
        &mut self,
        since_1970: Duration,
        change: Option<&OverrideChange<'_>>,
        has_canary: bool,
    ) -> OverrideResult {
        let (now_ms, step) = (millis(since_1970), 1 + u64::from(has_canary));
        let outcome = change.map_or(OverrideResult::Done, |change| self.make(now_ms, step, change));
        let before = self.kept.len();
        self.kept.retain(|_, order| order.until_ms > now_ms);
        if self.kept.len() < before {
            self.pass(now_ms, step);
        }
        outcome
    }

    fn make(&mut self, now_ms: u64, step: u64, change: &OverrideChange<'_>) -> OverrideResult {
        match *change {
            OverrideChange::Drop(name) => {
                if self.kept.remove(name).is_none() {
                    return OverrideResult::Missing;
                }
                self.pass(now_ms, step);
            }
            OverrideChange::Put { name, text, until } => {
                if self.kept.len() >= OVERRIDES_MAX && !self.kept.contains_key(name) {
                    return OverrideResult::Full;
                }
                let until_ms = until.by(now_ms);
                let (id, name, text) = (self.pass(now_ms, step), name.to_owned(), text.to_owned());
                self.kept.insert(name.clone(), StoredOverride { name, id, at_ms: now_ms, until_ms, text });
            }
        }
        OverrideResult::Done
    }

    /// All overrides, the oldest first.
    pub(super) fn kept(&self) -> Vec<StoredOverride> {
        let mut kept: Vec<_> = self.kept.values().cloned().collect();
        kept.sort_by_key(|order| order.id);
        kept
    }

    /// Increases the number by `step`, and returns it.
    pub(super) fn pass(&mut self, now_ms: u64, step: u64) -> u64 {
        self.number = if self.number > 0 { self.number + step } else { now_ms.max(1) };
        self.number
    }
}

/// Milliseconds since 1970.
pub(super) fn millis(since_1970: Duration) -> u64 {
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}
