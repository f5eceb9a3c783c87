//! Operators' queries about keys: the top keys, and the state of one key.

use alloc::string::String;
use alloc::vec::Vec;

use weir_protocol::messages::Report;
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::sharing::Sharing;
use weir_protocol::time::Time;

use super::Hub;
use crate::budget::{Account, BudgetId};
use crate::decisions::{DecisionCounts, RuleRates};
use crate::escrow::{AcquireRequest, AcquireResult, LEASE_US_MIN};
use crate::plan::{Plan, PlanEntry};
use crate::statuses::PopStatus;
use crate::top_keys::budget_state::{BudgetQuery, BudgetState, level_milli};
use crate::top_keys::fleet::{ReplicaTopKeys, TopKey};

impl Hub {
    /// Records for operators the charges and draws of a report of `pop`, as answered by the store, which was
    /// asked at `asked_at`.
    pub(super) fn record_uses<E>(
        &mut self,
        now: Time,
        asked_at: Time,
        pop: &str,
        plan: &Plan,
        accounts: &[Result<Account, E>],
        drawn: &[Result<AcquireResult, E>],
    ) {
        let is_known = |id: &BudgetId| !self.bans.is_forgotten_since(id, asked_at);
        for ((entry, new), account) in plan.entries.iter().zip(&plan.news).zip(accounts) {
            match account {
                Ok(account) if is_known(&entry.id) => self.region.record_use(now, pop, entry, *new, account),
                Ok(_) => {}
                Err(_) => self.region.record_offline_use(now, pop, entry, *new),
            }
        }
        for (draw, drawn) in plan.draws.iter().zip(drawn) {
            if let Some(drawn) = drawn.as_ref().ok().filter(|_| is_known(&draw.id)) {
                self.region.record_acquired(now, pop, draw, drawn);
            }
        }
    }

    /// Top keys reported here: up to `most` by limited requests, and half as many each by admitted requests and
    /// by debt.
    pub fn top_keys(&self, now: Time, most: usize) -> ReplicaTopKeys {
        self.region.top_keys.said(now, most)
    }

    /// State of the key `id`; none if it is not a top key.
    pub fn top_key(&self, now: Time, id: &BudgetId) -> Option<TopKey> {
        self.region.top_keys.get(now, id)
    }

    /// Decisions per second of each rule, as far as POPs report them here.
    pub fn rates(&self, now: Time) -> Vec<RuleRates> {
        self.decisions.rates(now)
    }

    /// Status of the POPs that report here, at most `most` of them.
    pub fn statuses(&self, now: Time, most: usize) -> Vec<PopStatus> {
        self.statuses.said(now, most)
    }

    /// Decisions since the last call, by rule, as far as POPs report them here.
    pub fn decided(&mut self) -> Vec<(String, DecisionCounts)> {
        self.decisions.news()
    }

    /// Remaining time of the ban of `id`, in milliseconds; none if it is not banned.
    pub fn banned_ms(&self, now: Time, id: &BudgetId) -> Option<u32> {
        self.bans.banned_ms(now, id)
    }

    /// Question to the store about the key `id` at `now`, which is `unix_us` microseconds since 1970. None if
    /// its rule was not reported recently and is in no rule set that is kept.
    pub fn question(&self, now: Time, unix_us: u64, id: &BudgetId) -> Option<BudgetQuery> {
        let (quota, sharing) = self.terms_of(&id.rule)?;
        if !sharing.strict {
            let demand = self.region.demands.current(now, id);
            return Some(BudgetQuery::Shared(PlanEntry {
                demand,
                ..PlanEntry::new(id.clone(), quota, sharing)
            }));
        }
        let (id, refill_policy, claims) = (id.clone(), sharing.refill_policy, Vec::new());
        let window = refill_policy.windows().map(|calendar| calendar.window(unix_us));
        Some(BudgetQuery::Strict(AcquireRequest {
            id,
            quota,
            lease_us: LEASE_US_MIN,
            refill_policy,
            window,
            claims,
        }))
    }

    /// For each rule of `report`, true if the fleet may run it: if it is in a rule set that is kept, or if
    /// there is none.
    pub fn known_rules(&self, report: &Report) -> Vec<bool> {
        report.rules.iter().map(|rule| self.region.claims.has(rule)).collect()
    }

    /// True if POPs have reported keys of the rule recently.
    pub fn is_reported(&self, rule: &str) -> bool {
        self.rules.get(rule).is_some()
    }

    /// Quota status of a shared budget, from the store's answer to `entry`.
    pub fn shared_standing(&self, entry: &PlanEntry, account: &Account) -> BudgetState {
        let division = self.region.divide(entry, account);
        BudgetState {
            quota: entry.quota,
            refill_policy: RefillPolicy::Continuous,
            level_milli: level_milli(entry.quota, account.deficit_ns),
            deficit_ns: account.deficit_ns,
            spread: account.spread,
            outstanding: 0,
            division: Some(division),
        }
    }

    /// Quota and sharing of a rule: as last reported, or else from the newest rule set.
    fn terms_of(&self, rule: &str) -> Option<(Quota, Sharing)> {
        let known = || self.region.claims.known(rule).map(|rule| (rule.quota, rule.sharing.clone()));
        self.rules.get(rule).or_else(known)
    }
}
