//! Rules that POPs may run: those of the kept versions and of the latest revisions.

use std::collections::BTreeMap;

use weir_budget::report_limits::KnownRule;

use crate::store::rules::VERSIONS_KEPT;

/// Lowest number of a revision that is made offline. Numbers from the store are far below it, and a double
/// holds all of them exactly.
pub const OFFLINE_NUMBER_MIN: u64 = 1 << 52;
/// Rules by version and by revision.
#[derive(Default)]
pub(super) struct NumberedRules {
    versions: BTreeMap<u64, Vec<KnownRule>>,
    /// Rules that only overrides make, by the revision's number.
    revisions: BTreeMap<u64, Vec<KnownRule>>,
    /// Rules made only by overrides that the store does not have.
    offline: Vec<KnownRule>,
    /// True if all versions were read that the store had at the start.
    pub(super) is_complete: bool,
    /// True if [`NumberedRules::news`] has returned them.
    is_told: bool,
}

impl NumberedRules {
    /// Adds the rules of a version.
    pub(super) fn add(&mut self, version: u64, rules: Vec<KnownRule>) {
        self.is_told &= insert(&mut self.versions, version, rules);
    }

    /// Adds the rules of the revision `number`, beyond those of versions.
    pub(super) fn add_revision(&mut self, number: u64, rules: impl Iterator<Item = KnownRule>) {
        let is_new = |rule: &KnownRule| !self.versions.values().any(|known| known.contains(rule));
        let rules: Vec<_> = rules.filter(is_new).collect();
        if number >= OFFLINE_NUMBER_MIN {
            self.is_told &= rules.iter().all(|rule| self.offline.contains(rule));
            self.offline = rules;
            return;
        }
        self.is_told &= insert(&mut self.revisions, number, rules);
    }

    /// True if the rules of this version or revision are known, or if the initial versions were not all read
    /// yet. Revisions made offline are not in the store, and count as known.
    pub(super) fn has(&self, number: u64) -> bool {
        number >= OFFLINE_NUMBER_MIN
            || !self.is_complete
            || self.versions.contains_key(&number)
            || self.revisions.contains_key(&number)
    }

    /// True if a version with this number is known.
    pub(super) fn is_version(&self, number: u64) -> bool {
        self.versions.contains_key(&number)
    }

    /// Returns the highest known number and all rules, if there are new ones since the last call.
    pub(super) fn news(&mut self) -> Option<(u64, Vec<KnownRule>)> {
        if !self.is_complete || std::mem::replace(&mut self.is_told, true) {
            return None;
        }
        let last =
            |known: &BTreeMap<u64, Vec<KnownRule>>| known.keys().next_back().copied().unwrap_or_default();
        let newest = last(&self.versions).max(last(&self.revisions));
        let rules = self.versions.values().chain(self.revisions.values()).chain([&self.offline]);
        Some((newest, rules.flatten().cloned().collect()))
    }
}

/// Adds rules; returns true if they were known already.
fn insert(known: &mut BTreeMap<u64, Vec<KnownRule>>, number: u64, rules: Vec<KnownRule>) -> bool {
    let is_known = known.insert(number, rules.clone()) == Some(rules);
    while known.len() > VERSIONS_KEPT {
        known.pop_first();
    }
    is_known
}
