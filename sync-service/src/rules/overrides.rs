//! Puts, lifts and lists overrides.

use std::sync::Arc;

use tokio::task::spawn_blocking;
use weir_budget::budget::BudgetId;
use weir_cli::document::Document;
use weir_cli::moment;
use weir_store::StoreError;
use weir_store::rules::{self as store, OverrideResult};

use super::revision::{Base, OfflineChange};
use super::{ChangeError, ChangeOrigin, RuleSets};
use crate::audit::event::ChangeEvent;
use crate::lock;
use crate::overrides::compose::{OverrideEffect, compose, try_beside, with_effects};
use crate::overrides::request::OverrideRequest;
use crate::overrides::spec::{Override, OverrideKind, OverrideSelector, OverrideSettings, OverrideState, Subject};
use crate::overrides::tier;

impl RuleSets {
    /// All overrides with their effects, oldest first.
    pub(crate) async fn overrides(&self) -> Result<Vec<OverrideState>, StoreError> {
        self.listen_if_in_reach().await?;
        let followed = self.followed.lock().await;
        let mut override_states = self.override_states();
        if override_states.is_empty() || self.is_missing() {
            // Without a rule set, overrides have nothing to change, but POPs receive bans of keys in another way.
            let why = |order: &Override| (!order.settings.is_ban_of_key()).then(|| NO_RULES.to_owned());
            let state = |order: &Override| OverrideState { order: order.clone(), without_effect: why(order) };
            let all = followed.all_overrides();
            override_states.extend(all.iter().filter(|order| !self.has_override(&order.settings.name())).map(state));
        }
        Ok(override_states)
    }

    fn has_override(&self, name: &str) -> bool {
        self.override_states().iter().any(|state| state.order.settings.name() == name)
    }

    /// Overrides of the current revision, without reading the store.
    pub(crate) fn override_states(&self) -> Vec<OverrideState> {
        lock(&self.recent).current.as_ref().map(|revision| revision.override_states.clone()).unwrap_or_default()
    }

    /// Overrides in force that would have no effect with this rule set, with the reason.
    pub(crate) async fn lost_overrides(&self, document: &Document) -> Vec<OverrideState> {
        let in_force = |state: &OverrideState| state.without_effect.is_none();
        // Without the store, no rule set can be put either.
        let override_states = self.overrides().await.unwrap_or_default();
        let overrides: Vec<Override> = override_states.into_iter().filter(in_force).map(|state| state.order).collect();
        // If all rules are switched off, that is intended.
        if overrides.is_empty() || !document.rules().is_enforced() {
            return Vec::new();
        }
        let document = document.clone();
        let try_it = move || {
            let effects = compose(&document, &overrides).1;
            with_effects(overrides, effects).into_iter().filter(|state| !in_force(state)).collect()
        };
        spawn_blocking(try_it).await.unwrap_or_default()
    }

    /// Puts an override in place of one for the same address or key. Without the store, notifies only the POPs that
    /// report here, and returns the store's error too.
    pub async fn put_override(
        &self,
        asked: &OverrideRequest,
        change: &ChangeOrigin,
    ) -> Result<(OverrideState, Option<StoreError>), ChangeError> {
        let (base, overrides) = self.last_known().await?;
        // If the store has lost its data, POPs run the last revision, and get no other.
        let base = base.filter(|_| !self.is_missing());
        let OverrideSettings { kind, subject, .. } = &asked.settings;
        let kind = *kind;
        let subject = base.as_ref().map_or_else(|| subject.clone(), |base| as_listed(base, kind, subject));
        let settings = OverrideSettings { subject, author: change.author.clone(), ..asked.settings.clone() };
        let until_ms = asked.until.by(moment::now_ms());
        let effect = match base {
            Some(base) => try_override(base, overrides, settings.clone(), until_ms).await?,
            // A ban of a key travels apart from the rules, so POPs keep the rules that they run.
            None if settings.is_ban_of_key() && !self.has_override(&settings.name()) => OverrideEffect::InForce,
            None => return Err(ChangeError::None),
        };
        let (name, text) = (settings.name(), settings.text());
        let put = store::OverrideChange::Put { name: &name, text: &text, until: asked.until };
        let (order, offline) = match self.change(&put).await {
            Ok(changed) if changed.outcome == OverrideResult::Full => return Err(ChangeError::Full),
            Ok(changed) => {
                let kept = changed.kept.iter().find(|kept| kept.name == name).and_then(Override::read);
                (kept.ok_or(StoreError::Invalid("an override was put, and is not there"))?, None)
            }
            Err(error) => {
                let now_ms = moment::now_ms();
                let order = Override { settings: settings.clone(), id: now_ms, at_ms: now_ms, until_ms };
                let kept = self.change_offline(OfflineChange::Put(order.clone()), &error).await;
                kept.inspect_err(|_| {
                    self.audit_log.change_failed(&error, event(kind.as_str(), "", &order, change));
                })?;
                (order, Some(error))
            }
        };
        let (id, about, is_offline) = (order.id, settings.summary(), offline.is_some());
        let OverrideSettings { author, reason, .. } = &settings;
        tracing::info!(id, about, author, reason, is_offline, "new override");
        self.audit_log.change(event(kind.as_str(), "", &order, change));
        Ok((OverrideState { order, without_effect: effect.why_none() }, offline))
    }

    pub(crate) async fn order(
        &self,
        kind: OverrideKind,
        which: &OverrideSelector,
    ) -> Result<OverrideState, ChangeError> {
        let all = self.overrides().await?;
        let (base, _) = self.last_known().await?;
        let is_it = |order: &Override| match which {
            OverrideSelector::Id(id) => order.id == *id,
            OverrideSelector::About(subject) => {
                let subjects = [Some(subject.clone()), base.as_ref().map(|base| as_listed(base, kind, subject))];
                subjects.contains(&Some(order.settings.subject.clone()))
            }
        };
        let found = all.into_iter().find(|state| state.order.settings.kind == kind && is_it(&state.order));
        found.ok_or(ChangeError::NoOverride)
    }

    /// Lifts an override of this kind. Without the store, the same applies as for [`Self::put_override`].
    pub(crate) async fn lift_override(
        &self,
        kind: OverrideKind,
        which: &OverrideSelector,
        change: &ChangeOrigin,
    ) -> Result<(OverrideState, Option<StoreError>), ChangeError> {
        let state = self.order(kind, which).await?;
        let name = state.order.settings.name();
        let offline = match self.change(&store::OverrideChange::Drop(&name)).await {
            Ok(dropped) if dropped.outcome == OverrideResult::Missing => return Err(ChangeError::NoOverride),
            Ok(_) => None,
            Err(error) => {
                let lift = OfflineChange::Lift(state.order.clone());
                self.change_offline(lift, &error).await.inspect_err(|_| {
                    let lost = event("lift", kind.as_str(), &state.order, change);
                    self.audit_log.change_failed(&error, lost);
                })?;
                Some(error)
            }
        };
        let (id, about, is_offline) = (state.order.id, state.order.settings.summary(), offline.is_some());
        let ChangeOrigin { author, comment, .. } = change;
        tracing::info!(id, about, author, comment, is_offline, "an override is lifted");
        self.audit_log.change(event("lift", kind.as_str(), &state.order, change));
        Ok((state, offline))
    }

    /// Current time, and banned keys with the ends of their bans (ms since 1970); `None` without the store's clock.
    pub(crate) async fn banned(&self) -> Option<(u64, Vec<(BudgetId, u64)>)> {
        let followed = self.followed.lock().await;
        let clock = followed.clock?;
        let recent = lock(&self.recent);
        let Some(current) = &recent.current else {
            return Some((clock.now_ms(), tier::banned_keys(None, &followed.all_overrides())));
        };
        let mut banned = current.banned.clone()?;
        // Includes keys under the rules of a canary.
        banned.extend(recent.canary.as_ref().and_then(|trial| trial.revision.banned.clone()).unwrap_or_default());
        drop(recent);
        if self.is_missing() {
            banned.extend(tier::banned_keys(followed.document().map(Document::rules), &followed.all_overrides()));
        }
        banned.sort();
        banned.dedup();
        Some((clock.now_ms(), banned))
    }

    async fn last_known(&self) -> Result<(Option<Arc<Base>>, Arc<[Override]>), StoreError> {
        self.listen_if_in_reach().await?;
        let followed = self.followed.lock().await;
        Ok((followed.base.clone(), followed.all_overrides()))
    }

    /// Reads the store. Succeeds if the store is out of reach, but its last state is known.
    async fn listen_if_in_reach(&self) -> Result<(), StoreError> {
        let listened = self.listen().await;
        let is_known = self.followed.lock().await.base.is_some();
        listened.or_else(|error| if is_known && error.is_out_of_reach() { Ok(()) } else { Err(error) })
    }
}

fn event(what: &'static str, note: &str, order: &Override, change: &ChangeOrigin) -> ChangeEvent {
    let (until, target) = (Some(moment::text(order.until_ms)), Some(order.settings.target()));
    ChangeEvent { note: note.into(), until, target, ..change.event(what) }
}

/// A subject in its listed form, if the rule set has it: a key may be written in several ways.
fn as_listed(base: &Base, kind: OverrideKind, subject: &Subject) -> Subject {
    match (subject, &base.document) {
        (Subject::Key { rule, key }, Some(document)) if kind == OverrideKind::Rate => {
            let listed = tier::listed(document.rules(), rule, key);
            Subject::Key { rule: rule.clone(), key: listed.unwrap_or_else(|| key.clone()) }
        }
        _ => subject.clone(),
    }
}

/// Effect that an override would have beside the existing ones. Fails if there would be errors.
async fn try_override(
    base: Arc<Base>,
    overrides: Arc<[Override]>,
    settings: OverrideSettings,
    until_ms: u64,
) -> Result<OverrideEffect, ChangeError> {
    let tried = Override { settings, id: 0, at_ms: 0, until_ms };
    let try_it = move || {
        let name = tried.settings.name();
        let others = overrides.iter().filter(|order| order.settings.name() != name).cloned().collect();
        base.document.as_ref().map(|document| try_beside(document, others, tried))
    };
    match spawn_blocking(try_it).await.ok().flatten() {
        Some(OverrideEffect::Invalid(errors)) => Err(ChangeError::Override(errors)),
        Some(effect) => Ok(effect),
        None => Ok(OverrideEffect::None("the rule set cannot be read".into())),
    }
}

const NO_RULES: &str = "there is no rule set: POPs run their own configuration's";
