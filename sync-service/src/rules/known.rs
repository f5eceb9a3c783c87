//! The rules that POPs may run: those of the versions that are kept, and of the latest editions.

use std::collections::BTreeMap;

use weir_budget::claims::KnownRule;

use crate::store::rules::VERSIONS_KEPT;

/// The lowest number of an edition that is made offline. Those of the store are far below it, and a double holds all.
pub const OFFLINE_NUMBER_MIN: u64 = 1 << 52;
/// The rules, by version and by edition.
#[derive(Default)]
pub(super) struct Known {
    versions: BTreeMap<u64, Vec<KnownRule>>,
    /// Those that only orders make, by the edition's number.
    editions: BTreeMap<u64, Vec<KnownRule>>,
    /// Those that only orders make which the store has not heard of.
    offline: Vec<KnownRule>,
    /// Whether all versions were looked at that the store had at first.
    pub(super) is_complete: bool,
    /// Whether [`Known::news`] has returned them.
    is_told: bool,
}

impl Known {
    /// Adds the rules of a version.
    pub(super) fn add(&mut self, version: u64, rules: Vec<KnownRule>) {
        self.is_told &= insert(&mut self.versions, version, rules);
    }

    /// Adds the rules of the edition `number`; those of its version are known.
    pub(super) fn add_edition(&mut self, number: u64, rules: impl Iterator<Item = KnownRule>) {
        let is_new = |rule: &KnownRule| !self.versions.values().any(|known| known.contains(rule));
        let rules: Vec<_> = rules.filter(is_new).collect();
        if number >= OFFLINE_NUMBER_MIN {
            self.is_told &= rules.iter().all(|rule| self.offline.contains(rule));
            self.offline = rules;
            return;
        }
        self.is_told &= insert(&mut self.editions, number, rules);
    }

    /// Whether the rules of this version or edition are known, or none are known yet. The store knows no edition made offline.
    pub(super) fn has(&self, number: u64) -> bool {
        number >= OFFLINE_NUMBER_MIN
            || !self.is_complete
            || self.versions.contains_key(&number)
            || self.editions.contains_key(&number)
    }

    /// Whether a version of this number is known.
    pub(super) fn is_version(&self, number: u64) -> bool {
        self.versions.contains_key(&number)
    }

    /// The highest number that is known, and all rules, if there are new ones since the last call.
    pub(super) fn news(&mut self) -> Option<(u64, Vec<KnownRule>)> {
        if !self.is_complete || std::mem::replace(&mut self.is_told, true) {
            return None;
        }
        let last =
            |known: &BTreeMap<u64, Vec<KnownRule>>| known.keys().next_back().copied().unwrap_or_default();
        let newest = last(&self.versions).max(last(&self.editions));
        let rules = self.versions.values().chain(self.editions.values()).chain([&self.offline]);
        Some((newest, rules.flatten().cloned().collect()))
    }
}

/// Whether that was known already.
fn insert(known: &mut BTreeMap<u64, Vec<KnownRule>>, number: u64, rules: Vec<KnownRule>) -> bool {
    let is_known = known.insert(number, rules.clone()) == Some(rules);
    while known.len() > VERSIONS_KEPT {
        known.pop_first();
    }
    is_known
}
