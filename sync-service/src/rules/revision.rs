//! Revisions that POPs run (a version of the rule set with the overrides that change it), the state of the store
//! that they were composed from, and the rules that POPs may run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use weir_budget::budget::BudgetId;
use weir_budget::report_limits::KnownRule;
use weir_cli::document::{Document, Form};
use weir_cli::moment;
use weir_protocol::messages::BudgetRule;
use weir_rules::RuleSet;
use weir_store::rules::{Current, StoredOverrides, VERSIONS_KEPT};

use super::change::{Canary, ChangeOrigin};
use crate::overrides::compose::{compose, with_effects};
use crate::overrides::spec::{Override, OverrideState};
use crate::overrides::tier;

/// Maximum number of revisions kept for POPs that have received their numbers and will fetch them.
const REVISIONS_KEPT: usize = 8;

#[derive(Debug)]
pub(super) struct Base {
    pub(super) version: u64,
    pub(super) text: Bytes,
    /// The parsed document, or `None` if it can no longer be parsed. Then no POP can run it either.
    pub(super) document: Option<Document>,
}

impl Base {
    pub(super) fn read(version: u64, text: String) -> Self {
        let document = Document::read(text.as_bytes(), Form::Json).ok();
        Self { version, text: text.into(), document }
    }

    pub(super) fn of(version: u64, document: Document) -> Self {
        Self { version, text: document.text().into(), document: Some(document) }
    }

    /// The same version with all rules on or off, if it can be parsed.
    pub(super) fn with_enforce(&self, enforce: bool) -> Self {
        match &self.document {
            Some(document) => Self::of(self.version, document.clone().with_enforce(enforce)),
            None => Self { version: self.version, text: self.text.clone(), document: None },
        }
    }
}

#[derive(Debug)]
pub(super) struct Revision {
    /// Unique number. Of two revisions from the store, the later one has the higher number.
    pub(super) number: u64,
    pub(super) version: u64,
    pub(super) document: Bytes,
    pub(super) override_states: Vec<OverrideState>,
    pub(super) rules: Vec<KnownRule>,
    /// Keys that overrides ban, with the ends of their bans, or `None` if the rule set cannot be parsed.
    pub(super) banned: Option<Vec<(BudgetId, u64)>>,
    pub(super) rule_set: Option<Arc<RuleSet>>,
}

impl Revision {
    /// Computes the revision of `base` with these `overrides`, which may take a while. Without overrides, POPs get the
    /// stored text itself, so that replicas of different versions serve the same bytes.
    pub(super) fn of(number: u64, base: &Base, overrides: &[Override]) -> Self {
        let Some(document) = &base.document else {
            let why = || Some("the rule set cannot be read".to_owned());
            let state = |order: &Override| OverrideState { order: order.clone(), without_effect: why() };
            let (document, override_states) = (base.text.clone(), overrides.iter().map(state).collect());
            let (rules, banned, rule_set) = (Vec::new(), None, None);
            return Self { number, version: base.version, document, override_states, rules, banned, rule_set };
        };
        let (document, effects) = compose(document, overrides);
        Self {
            number,
            version: base.version,
            document: if overrides.is_empty() { base.text.clone() } else { document.text().into() },
            override_states: with_effects(overrides.iter().cloned(), effects),
            rules: known_rules(document.rules()).collect(),
            banned: Some(tier::banned_keys(Some(document.rules()), overrides)),
            rule_set: Some(Arc::new(document.into_rules())),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) canary: Arc<Canary>,
    pub(super) revision: Arc<Revision>,
}

#[derive(Debug, Default)]
pub(super) struct RecentRevisions {
    latest: VecDeque<Arc<Revision>>,
    pub(super) current: Option<Arc<Revision>>,
    pub(super) canary: Option<Trial>,
}

impl RecentRevisions {
    pub(super) fn find(&self, number: u64) -> Option<&Arc<Revision>> {
        self.latest.iter().find(|revision| revision.number == number)
    }

    pub(super) fn publish(&mut self, revision: Arc<Revision>, canary: Option<Trial>) {
        for revision in canary.iter().map(|trial| &trial.revision).chain([&revision]) {
            self.latest.retain(|known| known.number != revision.number);
            self.latest.push_front(Arc::clone(revision));
        }
        self.latest.truncate(REVISIONS_KEPT);
        (self.current, self.canary) = (Some(revision), canary);
    }
}

#[derive(Debug, Default)]
pub(super) struct Followed {
    pub(super) current: Current,
    pub(super) base: Option<Arc<Base>>,
    pub(super) canary: Option<(Arc<Canary>, Arc<Base>)>,
    pub(super) overrides: Arc<[Override]>,
    /// Changes made while the store was out of reach.
    pub(super) offline: Vec<OfflineChange>,
    /// The store's clock, read with the overrides.
    pub(super) clock: Option<ClockReading>,
    ends_at: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(super) enum OfflineChange {
    Enforce(bool, ChangeOrigin),
    Put(Override),
    Lift(Override),
}

/// A clock that was read once, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReading {
    read_at: Instant,
    ms: u64,
}

impl ClockReading {
    pub(super) fn now_ms(self) -> u64 {
        self.ms.saturating_add(u64::try_from(self.read_at.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

impl Followed {
    pub(super) fn observe(&mut self, overrides: &StoredOverrides) {
        self.overrides = overrides.kept.iter().filter_map(Override::read).collect();
        self.clock = Some(ClockReading { read_at: Instant::now(), ms: overrides.now_ms });
        let first = overrides.kept.iter().map(|order| order.until_ms).min();
        let left = first.map(|until_ms| Duration::from_millis(until_ms.saturating_sub(overrides.now_ms)));
        self.ends_at = left.and_then(|left| Instant::now().checked_add(left));
    }

    pub(super) fn is_due(&self) -> bool {
        self.ends_at.is_some_and(|at| at <= Instant::now())
    }

    pub(super) fn document(&self) -> Option<&Document> {
        self.base.as_ref().and_then(|base| base.document.as_ref())
    }

    /// Overrides last read from the store, with the changes that the store does not have yet.
    pub(super) fn all_overrides(&self) -> Arc<[Override]> {
        let is_override = |change: &OfflineChange| !matches!(change, OfflineChange::Enforce(..));
        if !self.offline.iter().any(is_override) {
            return Arc::clone(&self.overrides);
        }
        let now_ms = self.clock.map_or_else(moment::now_ms, ClockReading::now_ms);
        let mut overrides: Vec<Override> =
            self.overrides.iter().filter(|order| order.until_ms > now_ms).cloned().collect();
        for change in &self.offline {
            let (OfflineChange::Put(order) | OfflineChange::Lift(order)) = change else { continue };
            overrides.retain(|known| known.settings.name() != order.settings.name());
            if matches!(change, OfflineChange::Put(_)) && order.until_ms > now_ms {
                overrides.push(order.clone());
            }
        }
        overrides.into()
    }

    /// Last setting of the kill switch while offline, or `None` if it was not used.
    pub(super) fn enforced(&self) -> Option<bool> {
        let enforced = |change: &OfflineChange| match change {
            OfflineChange::Enforce(enforce, _) => Some(*enforce),
            _ => None,
        };
        self.offline.iter().rev().find_map(enforced)
    }
}

/// Lowest number of a revision made offline: far above the store's numbers, while an `f64` holds each of them exactly.
pub(super) const OFFLINE_NUMBER_MIN: u64 = 1 << 52;

#[derive(Default)]
pub(super) struct NumberedRules {
    versions: BTreeMap<u64, Vec<KnownRule>>,
    /// Rules that only overrides make, by the revision's number.
    revisions: BTreeMap<u64, Vec<KnownRule>>,
    /// Rules made only by overrides that the store does not have.
    offline: Vec<KnownRule>,
    /// True once all versions that the store had at the start were read.
    pub(super) is_complete: bool,
    /// True if [`NumberedRules::news`] has returned all rules.
    is_returned: bool,
}

impl NumberedRules {
    pub(super) fn add(&mut self, version: u64, rules: Vec<KnownRule>) {
        self.is_returned &= insert(&mut self.versions, version, rules);
    }

    /// Adds the rules of revision `number` that no version has.
    pub(super) fn add_revision(&mut self, number: u64, rules: impl Iterator<Item = KnownRule>) {
        let is_new = |rule: &KnownRule| !self.versions.values().any(|known| known.contains(rule));
        let rules: Vec<_> = rules.filter(is_new).collect();
        if number >= OFFLINE_NUMBER_MIN {
            self.is_returned &= rules.iter().all(|rule| self.offline.contains(rule));
            self.offline = rules;
            return;
        }
        self.is_returned &= insert(&mut self.revisions, number, rules);
    }

    /// True if the rules of this version or revision are known, or if the initial versions were not all read yet.
    /// Revisions made offline are not in the store, and count as known.
    pub(super) fn has(&self, number: u64) -> bool {
        number >= OFFLINE_NUMBER_MIN
            || !self.is_complete
            || self.versions.contains_key(&number)
            || self.revisions.contains_key(&number)
    }

    pub(super) fn is_version(&self, number: u64) -> bool {
        self.versions.contains_key(&number)
    }

    /// Returns the highest known number and all rules, if there are new ones since the last call.
    pub(super) fn news(&mut self) -> Option<(u64, Vec<KnownRule>)> {
        if !self.is_complete || std::mem::replace(&mut self.is_returned, true) {
            return None;
        }
        let last = |known: &BTreeMap<u64, Vec<KnownRule>>| known.keys().next_back().copied().unwrap_or_default();
        let newest = last(&self.versions).max(last(&self.revisions));
        let rules = self.versions.values().chain(self.revisions.values()).chain([&self.offline]);
        Some((newest, rules.flatten().cloned().collect()))
    }
}

/// Rules of a rule set that POPs may report.
pub(super) fn known_rules(rules: &RuleSet) -> impl Iterator<Item = KnownRule> {
    rules.rules().iter().map(|rule| KnownRule {
        rule: BudgetRule { name: rule.name.clone(), quota: rule.quota, sharing: rule.sharing.clone() },
        ban_ms: rule.penalty.map_or(0, |penalty| penalty.deny_for_ms),
        cost_max: rule.most_cost(),
    })
}

/// Adds rules; returns true if they were known already.
fn insert(known: &mut BTreeMap<u64, Vec<KnownRule>>, number: u64, rules: Vec<KnownRule>) -> bool {
    let is_known = known.insert(number, rules.clone()) == Some(rules);
    while known.len() > VERSIONS_KEPT {
        known.pop_first();
    }
    is_known
}
