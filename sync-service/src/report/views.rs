//! Views of the hub's state: metrics that are computed when they are read, and answers to operators' queries about
//! keys, rules and POPs, with data from the store and the other weir-syncs.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use weir_budget::budget::{Account, BudgetId};
use weir_budget::decisions::{self, DecisionCounts, RuleRates, WINDOW_S};
use weir_budget::hub::{BudgetQuery, BudgetState, Figures};
use weir_budget::pops::{self, PopStatus};
use weir_budget::top_keys::fleet::{FleetTopKey, together};
use weir_gateway::metrics::OfRule;
use weir_protocol::messages::RULES_MAX;
use weir_store::{ChargeBatch, StoreError, unix_us};

use super::ReportHandler;
use crate::keys::page::{KeyState, TopKeysPage, parts};
use crate::keys::query::{self, LISTED_MAX};
use crate::keys::shared::{self, SharedKeys};
use crate::lock;
use crate::metrics::{ByRule, FloatGauge, Metrics, OfDecision, gauge};

const NO_ANSWER: StoreError = StoreError::Invalid("no answer to a look");

impl ReportHandler {
    /// Shares top keys, rule rates and statuses with the other weir-syncs; stores an empty text once if there are none.
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
        let (hub, now) = (lock(&self.hub), self.now());
        let statuses = hub.statuses.list(now, shared::STATUSES_MAX);
        SharedKeys { top_keys: hub.top_keys.message(now, most), rates: hub.decisions.rates(now), statuses }
    }

    /// Data shared by every weir-sync, by name. The flag is true if some of it is missing.
    async fn shared_by_all(&self) -> (Vec<(String, SharedKeys)>, bool) {
        let texts = self.store.top_keys().await;
        let mut is_partial = texts.is_err();
        let mut all = vec![(self.replica.clone(), self.shared_keys(LISTED_MAX))];
        for (replica, text) in texts.unwrap_or_default().into_iter().filter(|(replica, _)| *replica != self.replica) {
            match shared::read(&text) {
                Some(shared) => all.push((replica, shared)),
                // A text of another version.
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

    /// Decision rates of rules (JSON) and statuses of POPs in the fleet; without the store, only from POPs here.
    pub(crate) async fn rates_and_statuses(&self) -> (Value, BTreeMap<String, PopStatus>) {
        let (all, is_partial) = self.shared_by_all().await;
        let weir_syncs = all.len();
        let rules = decisions::together(all.iter().map(|(replica, shared)| (replica.as_str(), shared.rates.clone())));
        // POPs keep reporting a removed rule until their process ends.
        let is_shown = |of: &RuleRates| of.milli != DecisionCounts::default() || self.rules.has_rule(&of.rule);
        let row = |RuleRates { rule, milli, pops }: RuleRates| {
            json!({
                "rule": rule,
                "allowed_per_s": parts(milli.allowed),
                "limited_per_s": parts(milli.limited),
                "shadow_per_s": parts(milli.shadow),
                "denied_per_s": parts(milli.denied),
                "pops": pops,
            })
        };
        let rules: Vec<_> = rules.into_iter().filter(is_shown).map(row).collect();
        let statuses = all.into_iter().flat_map(|(_, shared)| shared.statuses);
        let rates = json!({
            "rules": rules, "window_s": WINDOW_S, "weir_syncs": weir_syncs, "is_partial": is_partial,
        });
        (rates, pops::newest_statuses(statuses))
    }

    /// Remaining time of the ban of each key or its address, in milliseconds; `None` for a key that is not banned.
    pub(crate) fn banned_ms(&self, keys: &[FleetTopKey]) -> Vec<Option<u32>> {
        let override_states = self.rules.override_states();
        let (hub, now) = (lock(&self.hub), self.now());
        let of = |key: &FleetTopKey| hub.banned_ms(now, &key.id).max(query::banned_ms(&override_states, &key.id));
        keys.iter().map(of).collect()
    }

    /// State of each of these keys; `None` if no POP has recently reported the key's rule and no kept rule set has it.
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
        let question = lock(&self.hub).question(self.now(), unix_us(), id)?;
        let (budget, replicas) = match &question {
            BudgetQuery::Shared(entry) => {
                let batch = ChargeBatch { replica: &self.replica, pop: "", entries: slice::from_ref(entry) };
                let account = self.store.charge(&batch).await.pop().unwrap_or(Err(NO_ANSWER));
                let budget = account.as_ref().map(|account| lock(&self.hub).shared_budget_state(entry, account));
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
        let (hub, now) = (lock(&self.hub), self.now());
        let top_keys = top_keys.or_else(|| {
            let mine = hub.top_keys.get(now, id)?;
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

/// Updates `metrics` from `figures`. Clears the metrics by rule first, so no page may be written meanwhile.
pub(super) fn show(figures: &Figures, metrics: &Metrics) {
    metrics.budgets.set(gauge(figures.budgets));
    metrics.budgets_in_debt.set(gauge(figures.in_debt));
    metrics.pops_here.set(i64::from(figures.pops_here));
    metrics.pops.set(i64::from(figures.share.fleet()));
    metrics.pops_known.set(i64::from(!figures.share.is_guess()));
    metrics.store_silence.set(Duration::from_nanos(figures.store_silence_ns).as_secs_f64());
    metrics.by_rule().into_iter().for_each(ByRule::clear);
    for (rule, of) in &figures.rules {
        row(&metrics.debt_tokens, rule).set(parts(of.owed.sum_milli));
        row(&metrics.overshoot_tokens, rule).set(parts(of.owed.deepest_milli));
        row(&metrics.overshoot_max_tokens, rule).set(parts(of.owed.most_milli));
        if let Some(tokens) = of.bound {
            #[allow(clippy::cast_precision_loss, reason = "a metric")]
            row(&metrics.bound_tokens, rule).set(tokens as f64);
        }
    }
}

/// A rule's gauge of `family`. It is owned, because a reference would hold the family's lock.
fn row(family: &ByRule, rule: &str) -> FloatGauge {
    family.get_or_create_owned(&OfRule { rule: rule.to_owned() })
}

/// Maximum number of rules with metrics of decisions, including replaced rules. Further rules get none.
const RULES_SHOWN_MAX: usize = 4 * RULES_MAX;

#[derive(Debug, Default)]
pub(super) struct RateMetrics(Mutex<BTreeSet<String>>);

impl RateMetrics {
    /// Adds the decisions since the last call to the metrics.
    pub(super) fn add(&self, decided: Vec<(String, DecisionCounts)>, metrics: &Metrics) {
        let mut shown = lock(&self.0);
        for (rule, DecisionCounts { allowed, limited, shadow, denied }) in decided {
            if shown.len() >= RULES_SHOWN_MAX && !shown.contains(&rule) {
                continue;
            }
            for (decision, count) in [("allow", allowed), ("limit", limited), ("shadow", shadow), ("deny", denied)] {
                metrics.decisions.get_or_create(&OfDecision { rule: rule.clone(), decision }).inc_by(count);
            }
            shown.insert(rule);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_come_and_go_take_bounded_room() {
        let (metrics, _) = Metrics::new("eu");
        let shown = RateMetrics::default();
        let one = DecisionCounts { allowed: 2, limited: 1, ..DecisionCounts::default() };
        for n in 0..2 * RULES_SHOWN_MAX {
            shown.add(vec![(format!("r{n}"), one)], &metrics);
        }
        shown.add(vec![("r1".into(), one)], &metrics);
        assert_eq!(shown.0.lock().unwrap().len(), RULES_SHOWN_MAX);
        let of =
            |rule: &str, decision| metrics.decisions.get_or_create(&OfDecision { rule: rule.into(), decision }).get();
        assert_eq!((of("r1", "allow"), of("r1", "limit"), of("r1", "deny")), (4, 2, 0));
        assert_eq!(of(&format!("r{RULES_SHOWN_MAX}"), "allow"), 0);
    }
}
