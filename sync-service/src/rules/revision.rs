//! Revisions that POPs run: a version of the rule set, with the overrides that change it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use weir_budget::budget::BudgetId;
use weir_budget::report_limits::KnownRule;
use weir_rules::RuleSet;

use super::audience::Canary;
use crate::document::{Document, Form};
use crate::overrides::compose::{Composed, OverrideEffect, compose};
use crate::overrides::spec::OverrideState;
use crate::overrides::{Override, banned};
use crate::refused_claims::known_rules;

/// Maximum number of revisions kept, for POPs that received their numbers and fetch them.
const REVISIONS_KEPT: usize = 8;

/// A version and its document.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) version: u64,
    pub(super) text: Bytes,
    /// The parsed document; none if it cannot be parsed any more. Then no POP can run it either.
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

/// A revision that POPs run.
#[derive(Debug)]
pub(super) struct Revision {
    /// Unique number; later revisions have higher ones.
    pub(super) number: u64,
    /// Version of the rule set.
    pub(super) version: u64,
    pub(super) document: Bytes,
    /// The overrides, with the effect of each.
    pub(super) standings: Vec<OverrideState>,
    pub(super) rules: Vec<KnownRule>,
    /// Keys that overrides ban, with their ends; none if the rule set cannot be parsed.
    pub(super) banned: Option<Vec<(BudgetId, u64)>>,
    /// The parsed document; none if it cannot be parsed.
    pub(super) rule_set: Option<Arc<RuleSet>>,
}

impl Revision {
    /// Computes the revision of `base` with these `overrides`. May take a while.
    pub(super) fn of(number: u64, base: &Base, overrides: &[Override]) -> Self {
        let Composed { document, effects } = match &base.document {
            Some(document) if !overrides.is_empty() => compose(document, overrides),
            _ => return Self::plain(number, base, overrides),
        };
        let stand = |(order, effect): (&Override, &OverrideEffect)| OverrideState {
            order: order.clone(),
            without_effect: effect.why_none(),
        };
        Self {
            number,
            version: base.version,
            document: document.text().into(),
            standings: overrides.iter().zip(&effects).map(stand).collect(),
            rules: known_rules(document.rules()).collect(),
            banned: Some(banned::keys(document.rules(), overrides)),
            rule_set: Some(Arc::new(document.into_rules())),
        }
    }

    /// Revision of `base` without changes.
    fn plain(number: u64, base: &Base, overrides: &[Override]) -> Self {
        let why = || Some("the rule set cannot be read".to_owned());
        let stand = |order: &Override| OverrideState { order: order.clone(), without_effect: why() };
        Self {
            number,
            version: base.version,
            document: base.text.clone(),
            standings: overrides.iter().map(stand).collect(),
            rules: base.document.iter().flat_map(|document| known_rules(document.rules())).collect(),
            banned: base.document.is_some().then(Vec::new),
            rule_set: base.document.as_ref().map(|document| Arc::new(document.rules().clone())),
        }
    }
}

/// A canary, and the revision of its POPs.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) canary: Arc<Canary>,
    pub(super) revision: Arc<Revision>,
}

/// Latest revisions.
#[derive(Debug, Default)]
pub(super) struct RecentRevisions {
    latest: VecDeque<Arc<Revision>>,
    current: Option<Arc<Revision>>,
    canary: Option<Trial>,
}

impl RecentRevisions {
    /// Revision of the POPs that are not in a canary.
    pub(super) fn current(&self) -> Option<&Arc<Revision>> {
        self.current.as_ref()
    }

    /// The current canary.
    pub(super) fn canary(&self) -> Option<&Trial> {
        self.canary.as_ref()
    }

    /// The revision with this number.
    pub(super) fn find(&self, number: u64) -> Option<&Arc<Revision>> {
        self.latest.iter().find(|revision| revision.number == number)
    }

    pub(super) fn publish(&mut self, revision: Arc<Revision>, canary: Option<Trial>) {
        for revision in canary.iter().map(|trial| &trial.revision).chain([&revision]) {
            self.latest.retain(|told| told.number != revision.number);
            self.latest.push_front(Arc::clone(revision));
        }
        self.latest.truncate(REVISIONS_KEPT);
        (self.current, self.canary) = (Some(revision), canary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_revisions_are_kept_and_the_last_told_is_current() {
        let base = Base::read(7, "no document".into());
        let mut told = RecentRevisions::default();
        for number in (7..20).chain([16]) {
            told.publish(Arc::new(Revision::of(number, &base, &[])), None);
        }
        assert_eq!(told.current().unwrap().number, 16);
        let numbers: Vec<_> = told.latest.iter().map(|revision| revision.number).collect();
        assert_eq!(numbers, [16, 19, 18, 17, 15, 14, 13, 12]);
        assert!(told.find(19).is_some_and(|revision| revision.document == "no document"));
        assert!(told.find(7).is_none(), "it may be read from the store");
    }
}
