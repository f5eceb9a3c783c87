//! Views for operators: gauges, the top keys, and the state of one key.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_protocol::messages::{BudgetRule, Leased, RULES_MAX, Report};
use weir_protocol::quota::Quota;
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::sharing::Sharing;
use weir_protocol::time::{SECOND_NS, Time};

use super::Hub;
use super::plan::Plan;
use crate::bound::{FleetParameters, bound};
use crate::budget::{Account, BudgetId, PlanEntry};
use crate::demand::TokenCounts;
use crate::divide::{Division, GrantSettings};
use crate::escrow::{AcquireRequest, AcquireResult, Claim, LEASE_US_MIN};
use crate::offline::{LastState, RuleDebts, Share};
use crate::report_limits::DEMAND_TIMES;
use crate::top_keys::{Use, level_milli};

/// Question to the store about one key; it debits nothing.
#[derive(Clone, Debug)]
pub enum BudgetQuery {
    Shared(PlanEntry),
    Strict(AcquireRequest),
}

#[derive(Clone, Debug)]
pub struct BudgetState {
    pub quota: Quota,
    pub refill_policy: RefillPolicy,
    pub level_milli: i64,
    /// Nanoseconds of refill until full; for a strict budget, [`AcquireResult::deficit_ns`].
    pub deficit_ns: u64,
    pub fan_out: u32,
    pub outstanding: u64,
    /// Grants to POPs of this region, or `None` for a strict budget.
    pub division: Option<Division>,
}

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
    /// Records, for operators, the charges and acquires of a report from `pop`, sent to the store at `asked_at`.
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

    pub fn banned_ms(&self, now: Time, id: &BudgetId) -> Option<u32> {
        self.bans.banned_ms(now, id)
    }

    /// Question to the store about the key `id` at `now`, or `unix_us` microseconds since 1970, if its rule is known.
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

    pub fn known_rules(&self, report: &Report) -> Vec<bool> {
        report.rules.iter().map(|rule| self.limits.has(rule)).collect()
    }

    pub fn refill_policies(&self, rule: &str) -> Vec<RefillPolicy> {
        self.rules.refill_policy(rule).into_iter().chain(self.limits.refill_policies(rule)).collect()
    }

    pub fn is_reported(&self, rule: &str) -> bool {
        self.rules.get(rule).is_some()
    }

    /// Quota and sharing of a rule: as last reported, or else from the newest rule set.
    fn terms_of(&self, rule: &str) -> Option<(Quota, Sharing)> {
        let known = || self.limits.known(rule).map(|rule| (rule.quota, rule.sharing.clone()));
        self.rules.get(rule).or_else(known)
    }
}

/// Counts of an acquire. A report does not state the requests that a strict rule limited, only the tokens wanted.
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

/// Time for which a rule that no report contains is remembered, in nanoseconds.
const RULE_IDLE_NS: u64 = 600 * SECOND_NS;
/// Default time after which a POP gives up an exchange, in nanoseconds.
const TIMEOUT_NS: u64 = SECOND_NS;

#[derive(Clone, Debug)]
pub struct Figures {
    pub budgets: usize,
    pub in_debt: usize,
    pub rules: BTreeMap<String, RuleFigures>,
    pub pops_here: u32,
    pub share: Share,
    pub store_silence_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleFigures {
    pub owed: RuleDebts,
    /// Maximum number of tokens that a key can get above its quota while no exchange of a POP fails twice in a row.
    /// `None` if no report has contained the rule recently.
    pub bound: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct LiveRules(BTreeMap<String, LiveRule>);

#[derive(Debug)]
struct LiveRule {
    quota: Quota,
    sharing: Sharing,
    seen_at: Time,
}

impl LiveRules {
    pub(super) fn observe(&mut self, now: Time, rules: &[BudgetRule]) {
        for rule in rules {
            let rule_now = LiveRule { quota: rule.quota, sharing: rule.sharing.clone(), seen_at: now };
            if let Some(known) = self.0.get_mut(&rule.name) {
                *known = rule_now;
            } else if self.0.len() < RULES_MAX {
                self.0.insert(rule.name.clone(), rule_now);
            }
        }
    }

    pub(super) fn get(&self, rule: &str) -> Option<(Quota, Sharing)> {
        self.0.get(rule).map(|known| (known.quota, known.sharing.clone()))
    }

    pub(super) fn refill_policy(&self, rule: &str) -> Option<RefillPolicy> {
        self.0.get(rule).filter(|rule| rule.sharing.strict).map(|rule| rule.sharing.refill_policy)
    }

    /// Figures of each rule at `now` in a fleet of `pops`, for debts `owed`.
    pub(super) fn figures(
        &mut self,
        now: Time,
        owed: BTreeMap<String, RuleDebts>,
        pops: u32,
        terms: &GrantSettings,
    ) -> BTreeMap<String, RuleFigures> {
        self.0.retain(|_, known| now.nanos_since(known.seen_at) <= RULE_IDLE_NS);
        // The interval in the terms includes the round trip.
        let interval_ns = terms.interval_ns;
        let fleet = FleetParameters { pops, interval_ns, trip_ns: 0, timeout_ns: TIMEOUT_NS, failures: 1 };
        let owed = owed.into_iter().map(|(rule, owed)| (rule, RuleFigures { owed, bound: None }));
        let mut rules: BTreeMap<_, _> = owed.collect();
        for (rule, known) in &self.0 {
            rules.entry(rule.clone()).or_default().bound = Some(bound(known.quota, &known.sharing, &fleet));
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use weir_protocol::quota::{Period, Rate};

    fn rule(name: &str) -> BudgetRule {
        let quota = Quota::new(Rate::new(10, Period::Second).unwrap(), 100).unwrap();
        BudgetRule { name: name.into(), quota, sharing: Sharing::of(quota) }
    }

    // I2
    #[test]
    fn rules_without_reports_are_forgotten_and_bounded() {
        let mut rules = LiveRules::default();
        let at = Time::from_nanos;
        let shown = |rules: &mut LiveRules, ns| {
            let owed = BTreeMap::from([("owes".into(), RuleDebts::default())]);
            let figures = rules.figures(at(ns), owed, 3, &GrantSettings::default());
            figures.into_iter().map(|(name, of)| (name, of.bound.is_some())).collect::<Vec<_>>()
        };
        let row = |name: &str, is_bound| (String::from(name), is_bound);
        rules.observe(at(0), &[rule("old"), rule("kept")]);
        assert_eq!(shown(&mut rules, 1), [row("kept", true), row("old", true), row("owes", false)]);
        rules.observe(at(RULE_IDLE_NS), &[rule("kept")]);
        assert_eq!(shown(&mut rules, RULE_IDLE_NS + 1), [row("kept", true), row("owes", false)]);
        let many: Vec<_> = (0..2 * RULES_MAX).map(|n| rule(&n.to_string())).collect();
        rules.observe(at(RULE_IDLE_NS + 2), &many);
        assert!(rules.0.len() <= RULES_MAX);
    }
}
