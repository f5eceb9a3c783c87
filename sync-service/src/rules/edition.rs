//! What POPs are told to run: a version of the rule set, with the orders that change it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use weir_budget::budget::BudgetId;
use weir_budget::claims::KnownRule;

use crate::claims::known_rules;
use crate::document::{Document, Form};
use crate::orders::compose::{Composed, Effect, compose};
use crate::orders::order::Standing;
use crate::orders::{Order, banned};
use crate::store::orders::Current;

/// The most editions that are kept, for POPs that were just told of them.
const EDITIONS_KEPT: usize = 4;

/// A version and its document.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) version: u64,
    pub(super) text: Bytes,
    /// What it says; none if that cannot be read any more. Then no POP can run it either.
    pub(super) document: Option<Document>,
}

impl Base {
    pub(super) fn read(version: u64, text: String) -> Self {
        let document = Document::read(text.as_bytes(), Form::Json).ok();
        Self { version, text: text.into(), document }
    }
}

/// What POPs are told to run.
#[derive(Debug)]
pub(super) struct Edition {
    /// What names it: no other edition has the same, and a later one has a higher one.
    pub(super) number: u64,
    /// The version of the rule set.
    pub(super) version: u64,
    pub(super) document: Bytes,
    /// The orders, and what comes of each.
    pub(super) standings: Vec<Standing>,
    pub(super) rules: Vec<KnownRule>,
    /// The keys that orders ban, and until when; none if the rule set cannot be read.
    pub(super) banned: Option<Vec<(BudgetId, u64)>>,
}

impl Edition {
    /// That of `base` with `orders`, which are the `current` ones. It may take a moment.
    pub(super) fn of(current: Current, base: &Base, orders: &[Order]) -> Self {
        let Composed { document, effects } = match &base.document {
            Some(document) if !orders.is_empty() => compose(document, orders),
            _ => return Self::plain(current, base, orders),
        };
        let stand = |(order, effect): (&Order, &Effect)| Standing {
            order: order.clone(),
            without_effect: effect.why_none(),
        };
        Self {
            number: current.edition(),
            version: base.version,
            document: document.text().into(),
            standings: orders.iter().zip(&effects).map(stand).collect(),
            rules: known_rules(document.rules()).collect(),
            banned: Some(banned::keys(document.rules(), orders)),
        }
    }

    /// That of `base` as it is.
    fn plain(current: Current, base: &Base, orders: &[Order]) -> Self {
        let why = || Some("the rule set cannot be read".to_owned());
        let stand = |order: &Order| Standing { order: order.clone(), without_effect: why() };
        Self {
            number: current.edition(),
            version: base.version,
            document: base.text.clone(),
            standings: orders.iter().map(stand).collect(),
            rules: base.document.iter().flat_map(|document| known_rules(document.rules())).collect(),
            banned: base.document.is_some().then(Vec::new),
        }
    }
}

/// The latest editions.
#[derive(Debug, Default)]
pub(super) struct Told(VecDeque<Arc<Edition>>);

impl Told {
    /// What POPs are told to run.
    pub(super) fn current(&self) -> Option<&Arc<Edition>> {
        self.0.front()
    }

    /// The edition of this number.
    pub(super) fn find(&self, number: u64) -> Option<&Arc<Edition>> {
        self.0.iter().find(|edition| edition.number == number)
    }

    pub(super) fn tell(&mut self, edition: Edition) {
        self.0.retain(|told| told.number != edition.number);
        self.0.push_front(Arc::new(edition));
        self.0.truncate(EDITIONS_KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_editions_are_kept_and_the_last_told_is_current() {
        let base = Base::read(7, "no document".into());
        let mut told = Told::default();
        for orders in [0, 9, 10, 11, 12, 9] {
            told.tell(Edition::of(Current { version: Some(7), orders }, &base, &[]));
        }
        assert_eq!(told.current().unwrap().number, 16);
        let numbers: Vec<_> = told.0.iter().map(|edition| edition.number).collect();
        assert_eq!(numbers, [16, 19, 18, 17]);
        assert!(told.find(19).is_some_and(|edition| edition.document == "no document"));
        assert!(told.find(7).is_none(), "it may be read from the store");
    }
}
