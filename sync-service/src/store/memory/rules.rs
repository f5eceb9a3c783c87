//! Rule sets in memory.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::store::rules::{Kept, Put, Stored, VERSIONS_KEPT};

/// The versions that are kept.
#[derive(Debug, Default)]
pub(super) struct Rules {
    versions: BTreeMap<u64, Version>,
    /// The document that a file has put last.
    file: Option<String>,
}

#[derive(Debug)]
struct Version {
    document: String,
    at_s: u64,
    note: String,
}

impl Rules {
    /// Puts a rule set `since_1970`.
    pub(super) fn put(&mut self, since_1970: Duration, put: &Put<'_>) -> Stored {
        let current = self.version().unwrap_or_default();
        if put.expected.is_some_and(|expected| expected != current) {
            return Stored::Conflict(current);
        }
        if put.from_file {
            let last = self.file.replace(put.document.to_owned());
            let is_known =
                last.as_deref() == Some(put.document) || self.document(current) == Some(put.document);
            if current > 0 && is_known {
                return Stored::Same(current);
            }
        }
        let version =
            if current > 0 { current + 1 } else { u64::try_from(since_1970.as_millis()).unwrap_or(1).max(1) };
        let new = Version {
            document: put.document.to_owned(),
            at_s: since_1970.as_secs(),
            note: put.note.to_owned(),
        };
        self.versions.insert(version, new);
        while self.versions.len() > VERSIONS_KEPT {
            self.versions.pop_first();
        }
        Stored::New(version)
    }

    pub(super) fn version(&self) -> Option<u64> {
        self.versions.last_key_value().map(|(version, _)| *version)
    }

    pub(super) fn document(&self, version: u64) -> Option<&str> {
        self.versions.get(&version).map(|version| version.document.as_str())
    }

    /// The newest first.
    pub(super) fn kept(&self) -> Vec<Kept> {
        let kept = |(&version, of): (&u64, &Version)| Kept { version, at_s: of.at_s, note: of.note.clone() };
        self.versions.iter().rev().map(kept).collect()
    }
}
