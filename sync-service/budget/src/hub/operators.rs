//! Operators' queries: the top keys, and the state of one key.

use alloc::string::String;
use alloc::vec::Vec;

use weir_protocol::messages::{Leased, Report};
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::sharing::Sharing;
use weir_protocol::time::Time;

use super::Hub;
use crate::budget::{Account, BudgetId};
use crate::decisions::{DecisionCounts, RuleRates};
use crate::demand::TokenCounts;
use crate::divide::Division;
use crate::escrow::{AcquireRequest, AcquireResult, Claim, LEASE_US_MIN};
use crate::offline::LastState;
use crate::plan::{Plan, PlanEntry};
use crate::pops::PopStatus;
use crate::report_limits::DEMAND_TIMES;
use crate::top_keys::fleet::{ReplicaTopKeys, TopKey};
use crate::top_keys::{Use, level_milli};

/// Question to the store about one key; it debits nothing.
#[derive(Clone, Debug)]
pub enum BudgetQuery {
    /// About a shared budget.
    Shared(PlanEntry),
    /// About a strict budget.
    Strict(AcquireRequest),
}

/// State of a budget.
#[derive(Clone, Debug)]
pub struct BudgetState {
    /// Its quota.
    pub quota: Quota,
    /// Its refill policy.
    pub refill_policy: RefillPolicy,
    /// Its level in thousandths of a token; negative if it is in debt.
    pub level_milli: i64,
    /// Nanoseconds of refill until it is full.
    pub deficit_ns: u64,
    /// Its recent fan-out in bursts; 0 if none is remembered.
    pub fan_out: u32,
    /// Tokens that are leased to POPs and not known to be spent.
    pub outstanding: u64,
    /// Grants to POPs of this region; none for a strict budget.
    pub division: Option<Division>,
}

/// State of a strict budget, from the result of an acquire.
impl From<(&AcquireRequest, &AcquireResult)> for BudgetState {
    fn from((acquire, acquired): (&AcquireRequest, &AcquireResult)) -> Self {
        Self {
            quota: acquire.quota,
            refill_policy: acquire.refill_policy,
            level_milli: level_milli(acquire.quota, acquired.deficit_ns),
            deficit_ns: acquired.deficit_ns,
            fan_out: 0,
            outstanding: acquired.outstanding,
            division: None,
        }
    }
}

impl Hub {
    /// Records for operators the charges and acquires of a report of `pop`, as answered by the store, which was
    /// asked at `asked_at`.
    pub(super) fn record_uses<E>(
        &mut self,
        now: Time,
        asked_at: Time,
        pop: &str,
        plan: &Plan,
        accounts: &[Result<Account, E>],
        acquired: &[Result<AcquireResult, E>],
    ) {
        let Self { bans, grants, top_keys, .. } = self;
        for ((entry, new), account) in plan.entries.iter().zip(&plan.news).zip(accounts) {
            let (last, admitted) = match account {
                Ok(_) if bans.is_forgotten_since(&entry.id, asked_at) => continue,
                // The store charges tokens of all workers of a POP to the first report that carries them, which may
                // have gone to another weir-sync.
                Ok(account) => {
                    let is_shared = grants.demands.is_shared(now);
                    let admitted = if is_shared { new.admitted } else { account.charged };
                    (LastState::of(entry, account, now), admitted)
                }
                // The state of a budget that the store did not charge is that of the region's last grant.
                Err(_) => {
                    let full = LastState { quota: entry.quota, deficit_ns: 0, at: now };
                    (grants.unfilled.last(&entry.id).unwrap_or(full), new.admitted)
                }
            };
            let counts = TokenCounts { admitted, ..*new };
            top_keys.observe(now, pop, &entry.id, &Use { counts, last, askers: entry.demand.askers });
        }
        for (acquire, acquired) in plan.acquires.iter().zip(acquired) {
            if let Some(acquired) = acquired.as_ref().ok().filter(|_| !bans.is_forgotten_since(&acquire.id, asked_at)) {
                let last = LastState { quota: acquire.quota, deficit_ns: acquired.deficit_ns, at: now };
                top_keys.observe(
                    now,
                    pop,
                    &acquire.id,
                    &Use { counts: acquired_counts(acquire, acquired), last, askers: 1 },
                );
            }
        }
    }

    /// Top keys reported here: up to `most` by limited requests, and half as many each by admitted requests and
    /// by debt.
    pub fn top_keys(&self, now: Time, most: usize) -> ReplicaTopKeys {
        self.top_keys.message(now, most)
    }

    /// State of the key `id`; none if it is not a top key.
    pub fn top_key(&self, now: Time, id: &BudgetId) -> Option<TopKey> {
        self.top_keys.get(now, id)
    }

    /// Decisions per second of each rule, as far as POPs report them here.
    pub fn rates(&self, now: Time) -> Vec<RuleRates> {
        self.decisions.rates(now)
    }

    /// Decisions since the last call, by rule, as far as POPs report them here.
    pub fn decided(&mut self) -> Vec<(String, DecisionCounts)> {
        self.decisions.news()
    }

    /// Status of the POPs that report here, at most `most` of them.
    pub fn statuses(&self, now: Time, most: usize) -> Vec<PopStatus> {
        self.statuses.list(now, most)
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
            let demand = self.grants.demands.current(now, id);
            let entry = PlanEntry::new(id.clone(), quota, sharing);
            return Some(BudgetQuery::Shared(PlanEntry { demand, ..entry }));
        }
        let (id, refill_policy, claims) = (id.clone(), sharing.refill_policy, Vec::new());
        let window = refill_policy.windows().map(|calendar| calendar.window(unix_us));
        let lease_us = LEASE_US_MIN;
        Some(BudgetQuery::Strict(AcquireRequest { id, quota, lease_us, refill_policy, window, claims }))
    }

    /// State of a shared budget, from the store's answer to `entry`.
    pub fn shared_budget_state(&self, entry: &PlanEntry, account: &Account) -> BudgetState {
        BudgetState {
            quota: entry.quota,
            refill_policy: RefillPolicy::Continuous,
            level_milli: level_milli(entry.quota, account.deficit_ns),
            deficit_ns: account.deficit_ns,
            fan_out: account.fan_out,
            outstanding: 0,
            division: Some(self.grants.divide(entry, account)),
        }
    }

    /// For each rule of `report`, true if the fleet may run it: if it is in a rule set that is kept, or if
    /// there is none.
    pub fn known_rules(&self, report: &Report) -> Vec<bool> {
        report.rules.iter().map(|rule| self.limits.has(rule)).collect()
    }

    /// Known refill policies of strict rules with this name.
    pub fn refill_policies(&self, rule: &str) -> Vec<RefillPolicy> {
        self.rules.refill_policy(rule).into_iter().chain(self.limits.refill_policies(rule)).collect()
    }

    /// True if POPs have reported keys of the rule recently.
    pub fn is_reported(&self, rule: &str) -> bool {
        self.rules.get(rule).is_some()
    }

    /// Quota and sharing of a rule: as last reported, or else from the newest rule set.
    fn terms_of(&self, rule: &str) -> Option<(Quota, Sharing)> {
        let known = || self.limits.known(rule).map(|rule| (rule.quota, rule.sharing.clone()));
        self.rules.get(rule).or_else(known)
    }
}

/// Counts of an acquire from a strict budget. Reports do not contain the requests that a strict rule limited, only the
/// tokens that POPs wanted.
fn acquired_counts(acquire: &AcquireRequest, acquired: &AcquireResult) -> TokenCounts {
    let wanted =
        acquire.claims.iter().zip(&acquired.leases).filter(|(claim, lease)| {
            claim.ahead > 0 && lease.lease_ms > 0 && acquire.refill_policy != RefillPolicy::Queue
        });
    let unmet =
        |(claim, lease): (&Claim, &Leased)| (claim.spent() + u64::from(claim.ahead)).saturating_sub(lease.charged);
    let unmet = wanted.map(unmet).fold(0, u64::saturating_add);
    let unmet = unmet.min(DEMAND_TIMES * u64::from(acquire.quota.burst()));
    // Spent tokens were debited by earlier acquires.
    TokenCounts { asked: acquired.given.saturating_add(unmet), admitted: acquired.given }
}
