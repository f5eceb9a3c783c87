//! Answers to operators' queries about keys and rules, from the hub, the store and the other weir-syncs.

use std::collections::BTreeMap;
use std::slice;
use std::sync::atomic::Ordering;

use weir_budget::budget::{Account, BudgetId};
use weir_budget::decisions::{self, DecisionCounts, RuleRates};
use weir_budget::hub::{BudgetQuery, BudgetState};
use weir_budget::pops::{self, PopStatus};
use weir_budget::top_keys::fleet::{FleetTopKey, together};
use weir_store::{ChargeBatch, StoreError};

use super::figures::DecisionRates;
use super::{ReportHandler, unix_us};
use crate::keys::page::{KeyState, TopKeysPage};
use crate::keys::query::{self, LISTED_MAX};
use crate::keys::shared::{self, SharedKeys};

/// Error for a store that returned no result for a query.
const NO_ANSWER: StoreError = StoreError::Invalid("no answer to a look");

impl ReportHandler {
    /// Shares this weir-sync's top keys and rule rates with the others. If there are none, an empty text is
    /// stored once.
    pub(crate) async fn share_top_keys(&self) -> Result<(), StoreError> {
        let shared = self.shared_keys(shared::SHARED_MAX);
        let has_keys = shared != SharedKeys::default();
        if has_keys || self.has_shared_keys.load(Ordering::Relaxed) {
            let text = if has_keys { shared::write(&shared) } else { String::new() };
            self.store.store_top_keys(&self.replica, &text).await?;
            self.has_shared_keys.store(has_keys, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Data to share, with at most `most` keys of each kind.
    fn shared_keys(&self, most: usize) -> SharedKeys {
        let (hub, now) = (self.hub(), self.now());
        let statuses = hub.statuses(now, shared::STATUSES_MAX);
        SharedKeys { top_keys: hub.top_keys(now, most), rates: hub.rates(now), statuses }
    }

    /// Data shared by every weir-sync, by name. The flag is true if some of it is missing.
    async fn shared_by_all(&self) -> (Vec<(String, SharedKeys)>, bool) {
        let texts = self.store.top_keys().await;
        let mut is_partial = texts.is_err();
        let mut all = vec![(self.replica.clone(), self.shared_keys(LISTED_MAX))];
        for (replica, text) in texts.unwrap_or_default().into_iter().filter(|(replica, _)| *replica != self.replica) {
            match shared::read(&text) {
                Some(shared) => all.push((replica, shared)),
                // It has another version.
                None => is_partial = true,
            }
        }
        (all, is_partial)
    }

    /// Top keys of the whole fleet; only this weir-sync's while the store is out of reach.
    pub(crate) async fn top_keys(&self) -> TopKeysPage {
        let (all, is_partial) = self.shared_by_all().await;
        let weir_syncs = all.len();
        let (keys, unseen) = together(all.iter().map(|(replica, shared)| (replica.as_str(), shared.top_keys.clone())));
        TopKeysPage { keys, unseen, weir_syncs, is_partial }
    }

    /// Decision rates of each rule and statuses of POPs in the whole fleet; only those of this weir-sync's POPs
    /// while the store is out of reach.
    pub(crate) async fn rates_and_statuses(&self) -> (DecisionRates, BTreeMap<String, PopStatus>) {
        let (all, is_partial) = self.shared_by_all().await;
        let weir_syncs = all.len();
        let rules = decisions::together(all.iter().map(|(replica, shared)| (replica.as_str(), shared.rates.clone())));
        // POPs keep reporting a removed rule until their process ends.
        let is_shown = |of: &RuleRates| of.milli != DecisionCounts::default() || self.rules.has_rule(&of.rule);
        let rules = rules.into_iter().filter(is_shown).collect();
        let statuses = all.into_iter().flat_map(|(_, shared)| shared.statuses);
        (DecisionRates { rules, weir_syncs, is_partial }, pops::newest_statuses(statuses))
    }

    /// Remaining time of each key's ban in milliseconds, whether the key or its address is banned. None for a
    /// key that is not banned.
    pub(crate) fn banned_ms(&self, keys: &[FleetTopKey]) -> Vec<Option<u32>> {
        let override_states = self.rules.override_states();
        let (hub, now) = (self.hub(), self.now());
        let of = |key: &FleetTopKey| hub.banned_ms(now, &key.id).max(query::banned_ms(&override_states, &key.id));
        keys.iter().map(of).collect()
    }

    /// State of each of these keys. None if no POP has lately reported the key's rule and no kept rule set has
    /// it.
    pub(crate) async fn keys(&self, ids: &[BudgetId]) -> Vec<Option<KeyState>> {
        self.update_known_rules();
        // Data of the other weir-syncs is read once for all keys.
        let top_keys = if ids.is_empty() { Vec::new() } else { self.top_keys().await.keys };
        let mut keys = Vec::with_capacity(ids.len());
        for id in ids {
            keys.push(self.key(id, &top_keys).await);
        }
        keys
    }

    async fn key(&self, id: &BudgetId, top_keys: &[FleetTopKey]) -> Option<KeyState> {
        let question = self.hub().question(self.now(), unix_us(), id)?;
        let (budget, replicas) = match &question {
            BudgetQuery::Shared(entry) => {
                let batch = ChargeBatch { replica: &self.replica, pop: "", entries: slice::from_ref(entry) };
                let account = self.store.charge(&batch).await.pop().unwrap_or(Err(NO_ANSWER));
                let budget = account.as_ref().map(|account| self.hub().shared_budget_state(entry, account));
                let budget = budget.map_err(Clone::clone);
                (budget, account.map(|Account { replicas, .. }| replicas).unwrap_or_default())
            }
            BudgetQuery::Strict(acquire) => {
                let acquired = self.store.acquire("", slice::from_ref(acquire)).await.pop().unwrap_or(Err(NO_ANSWER));
                (acquired.map(|acquired| BudgetState::from((acquire, &acquired))), Vec::new())
            }
        };
        let top_keys = top_keys.iter().find(|key| key.id == *id).cloned();
        let as_address = query::banned_ms(&self.rules.override_states(), id);
        let (hub, now) = (self.hub(), self.now());
        let top_keys = top_keys.or_else(|| {
            let mine = hub.top_key(now, id)?;
            together([(self.replica.as_str(), mine.into())]).0.pop()
        });
        Some(KeyState {
            id: id.clone(),
            budget,
            replicas,
            top_keys,
            banned_ms: hub.banned_ms(now, id).max(as_address),
            is_reported: hub.is_reported(&id.rule),
        })
    }
}
