//! Rule sets, the canary and overrides in memory.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::rules::{CanaryChange, CanaryResult, StoredCanary};
use crate::rules::{NewVersion, Stored, StoredVersion, VERSIONS_KEPT};
use crate::rules::{OVERRIDES_MAX, OverrideChange, OverrideResult, StoredOverride};

/// Kept versions, and the canary.
#[derive(Debug, Default)]
pub(super) struct MemoryRules {
    versions: BTreeMap<u64, Version>,
    /// The first version, which may no longer be kept.
    first: u64,
    /// The last document that came from a file.
    file: Option<String>,
    canary: Option<StoredCanary>,
    /// Number of the last canary.
    canaries: u64,
}

#[derive(Debug)]
struct Version {
    document: String,
    at_s: u64,
    note: String,
}

impl MemoryRules {
    pub(super) fn put(&mut self, since_1970: Duration, put: &NewVersion<'_>) -> Stored {
        let current = self.version().unwrap_or_default();
        if put.expected.is_some_and(|expected| expected != current) {
            return Stored::Conflict(current);
        }
        let is_known = self.file.as_deref() == Some(put.document) || self.document(current) == Some(put.document);
        if put.from_file && current > 0 && is_known {
            self.file = Some(put.document.to_owned());
            return Stored::Same(current);
        }
        if let Some(canary) = &self.canary {
            return Stored::Canary(canary.id);
        }
        if put.from_file {
            self.file = Some(put.document.to_owned());
        }
        Stored::New(self.add(since_1970, put.document.to_owned(), put.note))
    }

    fn add(&mut self, since_1970: Duration, document: String, note: &str) -> u64 {
        let version = self.version().map_or_else(|| millis(since_1970).max(1), |version| version + 1);
        if self.versions.is_empty() {
            self.first = version;
        }
        let new = Version { document, at_s: since_1970.as_secs(), note: note.to_owned() };
        self.versions.insert(version, new);
        while self.versions.len() > VERSIONS_KEPT {
            self.versions.pop_first();
        }
        version
    }

    pub(super) fn change_canary(&mut self, since_1970: Duration, change: &CanaryChange<'_>) -> CanaryResult {
        let (current, now_ms) = (self.version().unwrap_or_default(), millis(since_1970));
        let runs = self.canary.as_ref().map(|canary| canary.id);
        match *change {
            CanaryChange::Begin { document, text, expected } => {
                if current == 0 || expected.is_some_and(|expected| expected != current) {
                    return CanaryResult::Conflict(current);
                }
                if let Some(id) = runs {
                    return CanaryResult::Runs(id);
                }
                let id = now_ms.max(self.canaries + 1);
                let (text, document) = (text.to_owned(), document.to_owned());
                (self.canary, self.canaries) = (Some(StoredCanary { id, at_ms: now_ms, text, document }), id);
                CanaryResult::Begun(id)
            }
            CanaryChange::Promote { id, note } => match self.end(id) {
                Ok(canary) => CanaryResult::Put(self.add(since_1970, canary.document, note)),
                Err(outcome) => outcome,
            },
            CanaryChange::Withdraw { id } => {
                self.end(id).map_or_else(|outcome| outcome, |canary| CanaryResult::Withdrawn(canary.id))
            }
            CanaryChange::PutOver { expected, .. } if expected != current => CanaryResult::Conflict(current),
            CanaryChange::PutOver { document, note, .. } => {
                self.canary = None;
                CanaryResult::Put(self.add(since_1970, document.to_owned(), note))
            }
        }
    }

    /// Ends the canary. If a number is given, it must be the canary's.
    fn end(&mut self, id: Option<u64>) -> Result<StoredCanary, CanaryResult> {
        let canary = self.canary.take_if(|canary| id.is_none_or(|id| id == canary.id));
        canary.ok_or_else(|| self.canary.as_ref().map_or(CanaryResult::Missing, |canary| CanaryResult::Runs(canary.id)))
    }

    pub(super) fn canary(&self) -> Option<&StoredCanary> {
        self.canary.as_ref()
    }

    pub(super) fn version(&self) -> Option<u64> {
        self.versions.last_key_value().map(|(version, _)| *version)
    }

    pub(super) fn document(&self, version: u64) -> Option<&str> {
        self.versions.get(&version).map(|version| version.document.as_str())
    }

    /// Kept versions, the newest first.
    pub(super) fn kept(&self) -> Vec<StoredVersion> {
        let kept = |(&version, of): (&u64, &Version)| {
            let short = version.saturating_sub(self.first) + 1;
            StoredVersion { version, short, at_s: of.at_s, note: of.note.clone() }
        };
        self.versions.iter().rev().map(kept).collect()
    }
}

#[derive(Debug, Default)]
pub(super) struct MemoryOverrides {
    number: u64,
    kept: BTreeMap<String, StoredOverride>,
}

impl MemoryOverrides {
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

pub(super) fn millis(since_1970: Duration) -> u64 {
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}
