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
        let word = self.word(shared::TOLD_MAX);
        let is_told = word != SharedKeys::default();
        if is_told || self.is_busy_told.load(Ordering::Relaxed) {
            let text = if is_told { shared::write(&word) } else { String::new() };
            self.store.store_top_keys(&self.member, &text).await?;
            self.is_busy_told.store(is_told, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Data to share, with at most `most` keys of each kind.
    fn word(&self, most: usize) -> SharedKeys {
        let (hub, now) = (self.hub(), self.now());
        let statuses = hub.statuses(now, shared::STATUSES_MAX);
        SharedKeys { said: hub.top_keys(now, most), rates: hub.rates(now), statuses }
    }

    /// Data shared by every weir-sync, by name. The flag is true if some of it is missing.
    async fn words(&self) -> (Vec<(String, SharedKeys)>, bool) {
        let texts = self.store.top_keys().await;
        let mut is_partial = texts.is_err();
        let mut words = vec![(self.member.clone(), self.word(LISTED_MAX))];
        for (member, text) in
            texts.unwrap_or_default().into_iter().filter(|(member, _)| *member != self.member)
        {
            match shared::read(&text) {
                Some(word) => words.push((member, word)),
                // It has another version.
                None => is_partial = true,
            }
        }
        (words, is_partial)
    }

    /// Top keys of the whole fleet; only this weir-sync's while the store is out of reach.
    pub(crate) async fn top_keys(&self) -> TopKeysPage {
        let (words, is_partial) = self.words().await;
        let members = words.len();
        let (keys, unseen) =
            together(words.iter().map(|(member, word)| (member.as_str(), word.said.clone())));
        TopKeysPage { keys, unseen, members, is_partial }
    }

    /// Decision rates of each rule and statuses of POPs in the whole fleet; only those of this weir-sync's POPs
    /// while the store is out of reach.
    pub(crate) async fn pops_say(&self) -> (DecisionRates, BTreeMap<String, PopStatus>) {
        let (words, is_partial) = self.words().await;
        let members = words.len();
        let rules =
            decisions::together(words.iter().map(|(member, word)| (member.as_str(), word.rates.clone())));
        // POPs keep reporting a removed rule until their process ends.
        let is_shown =
            |of: &RuleRates| of.milli != DecisionCounts::default() || self.rules.has_rule(&of.rule);
        let rules = rules.into_iter().filter(is_shown).collect();
        let statuses = words.into_iter().flat_map(|(_, word)| word.statuses);
        (DecisionRates { rules, members, is_partial }, pops::newest_statuses(statuses))
    }

    /// Remaining time of each key's ban in milliseconds, whether the key or its address is banned. None for a
    /// key that is not banned.
    pub(crate) fn banned_ms(&self, keys: &[FleetTopKey]) -> Vec<Option<u32>> {
        let standings = self.rules.standings();
        let (hub, now) = (self.hub(), self.now());
        let of = |key: &FleetTopKey| hub.banned_ms(now, &key.id).max(query::banned_ms(&standings, &key.id));
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
        let (standing, members) = match &question {
            BudgetQuery::Shared(entry) => {
                let batch = ChargeBatch { member: &self.member, pop: "", entries: slice::from_ref(entry) };
                let account = self.store.charge(&batch).await.pop().unwrap_or(Err(NO_ANSWER));
                let standing = account.as_ref().map(|account| self.hub().shared_standing(entry, account));
                let standing = standing.map_err(Clone::clone);
                (standing, account.map(|Account { members, .. }| members).unwrap_or_default())
            }
            BudgetQuery::Strict(acquire) => {
                let acquired =
                    self.store.acquire("", slice::from_ref(acquire)).await.pop().unwrap_or(Err(NO_ANSWER));
                (acquired.map(|acquired| BudgetState::from((acquire, &acquired))), Vec::new())
            }
        };
        let top_keys = top_keys.iter().find(|key| key.id == *id).cloned();
        let as_address = query::banned_ms(&self.rules.standings(), id);
        let (hub, now) = (self.hub(), self.now());
        let top_keys = top_keys.or_else(|| {
            let mine = hub.top_key(now, id)?;
            together([(self.member.as_str(), mine.into())]).0.pop()
        });
        Some(KeyState {
            id: id.clone(),
            standing,
            members,
            top_keys,
            banned_ms: hub.banned_ms(now, id).max(as_address),
            is_reported: hub.is_reported(&id.rule),
        })
    }
}
