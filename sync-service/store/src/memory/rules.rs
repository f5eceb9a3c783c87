//! Rule sets, the canary and overrides in memory.

use std::collections::BTreeMap;

use crate::rules::{Current, OVERRIDES_MAX, OverrideChange, OverrideResult, StoredOverride, StoredOverrides};
use crate::rules::{NewVersion, RulesChange, RulesResult, StoredCanary, StoredVersion, VERSIONS_KEPT};

#[derive(Debug, Default)]
pub(super) struct MemoryRules {
    versions: BTreeMap<u64, Version>,
    /// The first version, which may no longer be kept.
    first: u64,
    /// The last document that came from a file.
    file: Option<String>,
    pub(super) canary: Option<StoredCanary>,
    canaries: u64,
    overrides: BTreeMap<String, StoredOverride>,
    number: u64,
}

#[derive(Debug)]
struct Version {
    document: String,
    at_s: u64,
    note: String,
}

impl MemoryRules {
    /// Stores a version; `ends_canary` is true if it replaces a canary, too.
    fn put(&mut self, now_ms: u64, put: &NewVersion<'_>, ends_canary: bool) -> RulesResult {
        let current = self.version().unwrap_or_default();
        if put.expected.is_some_and(|expected| expected != current) {
            return RulesResult::Conflict(current);
        }
        let is_known = self.file.as_deref() == Some(put.document) || self.document(current) == Some(put.document);
        if put.from_file && current > 0 && is_known {
            self.file = Some(put.document.to_owned());
            return RulesResult::Same(current);
        }
        match &self.canary {
            Some(canary) if !ends_canary => return RulesResult::Runs(canary.id),
            Some(_) => {
                self.canary = None;
                self.pass(now_ms, 1);
            }
            None => {}
        }
        if put.from_file {
            self.file = Some(put.document.to_owned());
        }
        RulesResult::Put(self.add(now_ms, put.document.to_owned(), put.note))
    }

    fn add(&mut self, now_ms: u64, document: String, note: &str) -> u64 {
        let version = self.version().map_or_else(|| now_ms.max(1), |version| version + 1);
        if self.versions.is_empty() {
            self.first = version;
        }
        let new = Version { document, at_s: now_ms / 1_000, note: note.to_owned() };
        self.versions.insert(version, new);
        while self.versions.len() > VERSIONS_KEPT {
            self.versions.pop_first();
        }
        version
    }

    pub(super) fn change(&mut self, now_ms: u64, change: &RulesChange<'_>) -> RulesResult {
        match *change {
            RulesChange::Put(put) => self.put(now_ms, &put, false),
            RulesChange::PutOver(put) => self.put(now_ms, &put, true),
            RulesChange::Begin { document, text, expected } => {
                let current = self.version().unwrap_or_default();
                if current == 0 || expected != current {
                    return RulesResult::Conflict(current);
                }
                if let Some(canary) = &self.canary {
                    return RulesResult::Runs(canary.id);
                }
                let id = now_ms.max(self.canaries + 1);
                let (text, document) = (text.to_owned(), document.to_owned());
                (self.canary, self.canaries) = (Some(StoredCanary { id, at_ms: now_ms, text, document }), id);
                RulesResult::Begun(id)
            }
            RulesChange::Promote { id, note } => match self.end(id) {
                Ok(canary) => RulesResult::Put(self.add(now_ms, canary.document, note)),
                Err(outcome) => outcome,
            },
            // Later revisions must not reuse the numbers of the canary's revisions.
            RulesChange::Withdraw { id } => match self.end(id) {
                Ok(canary) => {
                    self.pass(now_ms, 2);
                    RulesResult::Withdrawn(canary.id)
                }
                Err(outcome) => outcome,
            },
        }
    }

    /// Ends the canary with this number.
    fn end(&mut self, id: u64) -> Result<StoredCanary, RulesResult> {
        let canary = self.canary.take_if(|canary| canary.id == id);
        canary.ok_or_else(|| self.canary.as_ref().map_or(RulesResult::Missing, |canary| RulesResult::Runs(canary.id)))
    }

    fn version(&self) -> Option<u64> {
        self.versions.last_key_value().map(|(version, _)| *version)
    }

    pub(super) fn document(&self, version: u64) -> Option<&str> {
        self.versions.get(&version).map(|version| version.document.as_str())
    }

    pub(super) fn kept(&self) -> Vec<StoredVersion> {
        let kept = |(&version, of): (&u64, &Version)| {
            let short = version.saturating_sub(self.first) + 1;
            StoredVersion { version, short, at_s: of.at_s, note: of.note.clone() }
        };
        self.versions.iter().rev().map(kept).collect()
    }

    pub(super) fn current(&self) -> Current {
        let canary = self.canary.as_ref().map_or(0, |canary| canary.id);
        Current { version: self.version(), overrides: self.number, canary }
    }

    /// Drops the overrides that have ended, makes `change`, and returns all overrides, the oldest first. While a canary
    /// runs, each change adds two to the number.
    pub(super) fn change_override(&mut self, now_ms: u64, change: Option<&OverrideChange<'_>>) -> StoredOverrides {
        let step = 1 + u64::from(self.canary.is_some());
        let outcome = change.map_or(OverrideResult::Done, |change| self.make(now_ms, step, change));
        let before = self.overrides.len();
        self.overrides.retain(|_, order| order.until_ms > now_ms);
        if self.overrides.len() < before {
            self.pass(now_ms, step);
        }
        let mut kept: Vec<_> = self.overrides.values().cloned().collect();
        kept.sort_by_key(|order| order.id);
        StoredOverrides { current: self.current(), now_ms, outcome, kept }
    }

    fn make(&mut self, now_ms: u64, step: u64, change: &OverrideChange<'_>) -> OverrideResult {
        match *change {
            OverrideChange::Drop(name) => {
                if self.overrides.remove(name).is_none() {
                    return OverrideResult::Missing;
                }
                self.pass(now_ms, step);
            }
            OverrideChange::Put { name, text, until } => {
                if self.overrides.len() >= OVERRIDES_MAX && !self.overrides.contains_key(name) {
                    return OverrideResult::Full;
                }
                let until_ms = until.by(now_ms);
                let (id, name, text) = (self.pass(now_ms, step), name.to_owned(), text.to_owned());
                self.overrides.insert(name.clone(), StoredOverride { name, id, at_ms: now_ms, until_ms, text });
            }
        }
        OverrideResult::Done
    }

    /// Increases the number by `step`, and returns it.
    fn pass(&mut self, now_ms: u64, step: u64) -> u64 {
        self.number = if self.number > 0 { self.number + step } else { now_ms.max(1) };
        self.number
    }
}
