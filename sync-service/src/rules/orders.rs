//! Orders: put, dropped, listed.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::{Change, ChangeError, RuleSets};
use crate::orders::Order;
use crate::orders::ask::Asked;
use crate::orders::compose::{Effect, compose};
use crate::orders::order::{Kind, Said, Standing, Which};
use crate::store::StoreError;
use crate::store::orders::{self as store, Outcome};
use crate::trail::event::Changed;

impl RuleSets {
    /// All orders, and what comes of each; the oldest first.
    pub async fn orders(&self) -> Result<Vec<Standing>, StoreError> {
        self.listen().await?;
        let followed = self.followed.lock().await;
        let told = self.told().current().cloned();
        let standings = told.map(|edition| edition.standings.clone()).unwrap_or_default();
        // Those about which there is no rule set to change.
        let lost = |order: &Order| Standing { order: order.clone(), without_effect: Some(NO_RULES.into()) };
        Ok(if standings.is_empty() { followed.orders.iter().map(lost).collect() } else { standings })
    }

    /// Puts an order, in place of the one about the same address if there is one.
    pub async fn put_order(
        &self,
        kind: Kind,
        asked: &Asked,
        change: &Change,
    ) -> Result<Standing, ChangeError> {
        let said = Said {
            kind,
            subject: asked.subject.clone(),
            terms: asked.terms.clone(),
            reason: asked.reason.clone(),
            author: change.author.clone(),
        };
        let effect = self.try_order(&said).await?;
        let (name, text) = (said.name(), said.text());
        let put = store::Change::Put { name: &name, text: &text, until: asked.until };
        let changed = self.change(&put).await?;
        if changed.outcome == Outcome::Full {
            return Err(ChangeError::Full);
        }
        let kept = changed.kept.iter().find(|kept| kept.name == name);
        let order =
            kept.and_then(Order::read).ok_or(StoreError::Nonsense("an order was put, and is not there"))?;
        let (id, what) = (order.id, said.summary());
        tracing::info!(id, order = what, author = said.author, reason = said.reason, "new order");
        self.tell_of_order(kind.as_str(), "", &order, change);
        Ok(Standing { order, without_effect: effect.why_none() })
    }

    /// Drops an order of this kind.
    pub async fn drop_order(
        &self,
        kind: Kind,
        which: &Which,
        change: &Change,
    ) -> Result<Standing, ChangeError> {
        let all = self.orders().await?;
        let is_it = |order: &Order| match which {
            Which::Id(id) => order.id == *id,
            Which::Named(name) => order.said.name() == *name,
        };
        let found =
            all.into_iter().find(|standing| standing.order.said.kind == kind && is_it(&standing.order));
        let standing = found.ok_or(ChangeError::NoOrder)?;
        let name = standing.order.said.name();
        if self.change(&store::Change::Drop(&name)).await?.outcome == Outcome::Missing {
            return Err(ChangeError::NoOrder);
        }
        let (id, what) = (standing.order.id, standing.order.said.summary());
        tracing::info!(
            id,
            order = what,
            author = change.author,
            comment = change.comment,
            "an order is lifted"
        );
        Ok(standing)
    }

    /// Tells the trail of a change of an order.
    fn tell_of_order(&self, what: &'static str, note: &str, order: &Order, change: &Change) {
        let Change { author, comment, peer, .. } = change.clone();
        self.trail.change(Changed {
            what,
            author,
            peer,
            comment,
            note: note.into(),
            until: Some(order.until_ms),
            target: Some(order.said.target()),
            ..Changed::default()
        });
    }

    /// What would come of an order beside those that there are. Fails if there is no rule set, or if it would have errors.
    async fn try_order(&self, said: &Said) -> Result<Effect, ChangeError> {
        self.listen().await?;
        let followed = self.followed.lock().await;
        let (base, orders) = (followed.base.clone(), Arc::clone(&followed.orders));
        drop(followed);
        let base = base.ok_or(ChangeError::None)?;
        let tried = Order { said: said.clone(), id: 0, at_ms: 0, until_ms: 0 };
        let judge = move || {
            let document = base.document.as_ref()?;
            let name = tried.said.name();
            let others = orders.iter().filter(|order| order.said.name() != name).cloned();
            let all: Vec<Order> = others.chain([tried]).collect();
            compose(document, &all).effects.pop()
        };
        match spawn_blocking(judge).await.ok().flatten() {
            Some(Effect::Invalid(errors)) => Err(ChangeError::Order(errors)),
            Some(effect) => Ok(effect),
            None => Ok(Effect::None("the rule set cannot be read".into())),
        }
    }
}

/// Why an order without a rule set changes nothing.
const NO_RULES: &str = "there is no rule set: POPs run their own configuration's";
