//! Offline mode: without the store, a region continues by itself with its own share of every quota: (POPs that report
//! here) / (POPs of the fleet, as last known), so that regions together admit one quota.
//!
//! Each key gets a local [`Budget`] of that share. It starts from the store's last account: a deficit in nanoseconds of
//! refill is the same fraction of a budget of any size. It is charged with the same cumulative counts, including all
//! that no reply has confirmed, so weir-syncs with reports of the same POPs arrive at the same level.
//!
//! What is charged here stays unconfirmed, so the next report that reaches the store brings all of it, and the local
//! budget is dropped. If only a node of a cluster is down, each of its keys is offline by itself.
//!
//! [`UnfilledBudgets`] keeps the last known state of each budget that is not full, and the debt of each rule.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_protocol::messages::RULES_MAX;
use weir_protocol::quota::{FILL_NS_MAX, Quota};
use weir_protocol::sharing::Sharing;
use weir_protocol::time::Time;

use crate::budget::{Account, Budget, BudgetId, Charge, Count, Demand, PlanEntry};
use crate::id::BoundedMap;
use crate::scaled;

/// Maximum span of a first charge to a local budget, in microseconds: of tokens that no reply has confirmed, only the
/// part admitted within it is charged here.
const SPAN_US_MAX: u64 = 1_000_000;
/// Initial clock of a budget without a known account, in microseconds.
const CLOCK_BEGINS_US: u64 = 1 << 50;
/// Source of a local budget's opening charge; no POP has this name.
const NOBODY: &str = "";

/// A region's fraction of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    here: u32,
    fleet: u32,
    is_guess: bool,
}

impl Share {
    /// Share of `here` POPs in a fleet of `fleet`, at least one POP and at most all.
    pub fn new(here: u32, fleet: u32) -> Self {
        let here = here.max(1);
        Self { here, fleet: fleet.max(here), is_guess: false }
    }

    /// Share of `here` POPs in a fleet of unknown size: assumes that there are no others.
    pub fn guess(here: u32) -> Self {
        Self { is_guess: true, ..Self::new(here, here) }
    }

    pub fn is_guess(self) -> bool {
        self.is_guess
    }

    pub fn fleet(self) -> u32 {
        self.fleet
    }

    /// Limits the fan-out of each account to the number of POPs, if known: outages cause overshoots, too.
    pub fn limit_fan_outs<'a>(self, accounts: impl Iterator<Item = &'a mut Account>) {
        if !self.is_guess {
            accounts.for_each(|account| account.fan_out = account.fan_out.min(self.fleet));
        }
    }

    /// Share of `quota`: rate and burst rounded down, but with a burst of at least one token and a valid rate.
    pub fn of(self, quota: Quota) -> Quota {
        let (here, fleet) = (u64::from(self.here), u64::from(self.fleet));
        let burst = (u64::from(quota.burst()) * here / fleet).max(1);
        let token_ns = (u128::from(quota.token_ns()) * u128::from(fleet)).div_ceil(u128::from(here));
        let token_ns = u64::try_from(token_ns).unwrap_or(u64::MAX).min(FILL_NS_MAX / burst);
        let burst = u32::try_from(burst).unwrap_or(quota.burst());
        Quota::from_token_ns(token_ns, burst).unwrap_or(quota)
    }

    /// Sharing of the region's share of `quota`. While the region is offline, no region has a floor.
    pub fn of_sharing(self, sharing: &Sharing, quota: Quota) -> Sharing {
        let local_burst = sharing.local_burst.min(self.of(quota).burst());
        Sharing { strict: sharing.strict, local_burst, floors: Vec::new(), refill_policy: sharing.refill_policy }
    }
}

/// Local budgets of a region that is offline. Without room for a key, each report is charged on its own.
#[derive(Debug, Default)]
pub struct OfflineBudgets {
    budgets: BoundedMap<Local>,
}

impl OfflineBudgets {
    /// Charges `entry`, whose quota is the share, to the local budget; `last` is the store's last account of it.
    pub fn charge(
        &mut self,
        now: Time,
        entry: &PlanEntry,
        last: Option<LastState>,
        replica: &str,
        pop: &str,
    ) -> Account {
        let begin = || Local::after(last, entry, replica);
        let is_needed = |local: &Local| local.budget.expires_us() > local.clock_us(now);
        match self.budgets.get_or_insert(now, &entry.id, begin, is_needed) {
            Some(local) => local.charge(now, entry, replica, pop),
            None => Self::evaluate(now, entry, last, replica, pop),
        }
    }

    /// Returns the account of `entry` of `pop` computed from `last` alone.
    pub(crate) fn evaluate(now: Time, entry: &PlanEntry, last: Option<LastState>, replica: &str, pop: &str) -> Account {
        Local::after(last, entry, replica).charge(now, entry, replica, pop)
    }

    /// Drops the local budget, because the store has charged everything that was charged here.
    pub fn end(&mut self, id: &BudgetId) {
        self.budgets.remove(id);
    }
}

#[derive(Debug, Default)]
struct Local {
    budget: Budget,
    /// Time at which the budget's clock showed `shown_us`.
    at: Time,
    shown_us: u64,
    since: Option<Time>,
}

impl Local {
    fn after(last: Option<LastState>, entry: &PlanEntry, replica: &str) -> Self {
        last.map_or_else(Self::full, |last| Self::begin(entry, last, replica))
    }

    /// Creates a budget that has been full since long ago: a report may cover the time before this process started.
    fn full() -> Self {
        Self { shown_us: CLOCK_BEGINS_US, ..Self::default() }
    }

    /// Creates a budget with the deficit of `last`. The deficit is charged at the budget's time zero, rounded up to
    /// whole tokens; then the clock is advanced by the refill that the rounding added.
    fn begin(entry: &PlanEntry, last: LastState, replica: &str) -> Self {
        let token_ns = entry.quota.token_ns();
        let tokens = last.deficit_ns.div_ceil(token_ns);
        let shown_us = (token_ns.saturating_mul(tokens) - last.deficit_ns) / 1_000;
        let mut local = Self { at: last.at, since: Some(last.at), shown_us, ..Self::default() };
        let owed = Count { epoch: 0, admitted: tokens, unconfirmed: tokens, span_us: 0, missing: 0, made_ms: 0 };
        let opening = Charge { demand: Demand::default(), counts: &[owed], ..entry.charge(replica, NOBODY) };
        local.budget.charge(0, &opening);
        local
    }

    fn charge(&mut self, now: Time, entry: &PlanEntry, replica: &str, pop: &str) -> Account {
        // This budget lacks the refill of the time before it began, so older tokens are not charged in full. Tokens
        // admitted before the last account may already be in it.
        let since_us = self.since.map_or(u64::MAX, |since| now.nanos_since(since) / 1_000);
        let most_us = since_us.min(SPAN_US_MAX);
        let mut counts = entry.counts.clone();
        for count in counts.iter_mut().filter(|count| count.span_us > most_us) {
            count.unconfirmed = count.unconfirmed.saturating_mul(most_us) / count.span_us;
            count.span_us = most_us;
        }
        let charge = Charge { counts: &counts, ..entry.charge(replica, pop) };
        self.budget.charge(self.clock_us(now), &charge)
    }

    fn clock_us(&self, now: Time) -> u64 {
        self.shown_us.saturating_add(now.nanos_since(self.at) / 1_000)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastState {
    pub quota: Quota,
    /// Nanoseconds of refill until full, at `at`.
    pub deficit_ns: u64,
    pub at: Time,
}

impl LastState {
    pub(crate) fn of(entry: &PlanEntry, account: &Account, at: Time) -> Self {
        Self { quota: entry.quota, deficit_ns: account.deficit_ns, at }
    }

    /// Nanoseconds of refill until full at `now`, if nothing was debited since.
    pub fn deficit_ns_at(&self, now: Time) -> u64 {
        self.deficit_ns.saturating_sub(now.nanos_since(self.at))
    }

    pub fn debt_milli(&self, now: Time) -> u64 {
        let debt_ns = self.deficit_ns_at(now).saturating_sub(self.quota.fill_ns());
        if debt_ns == 0 { 0 } else { scaled(debt_ns, 1_000, self.quota.token_ns()) }
    }
}

/// Debts of one rule's budgets, in thousandths of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleDebts {
    pub sum_milli: u64,
    /// Largest debt now: the tokens that its key got above burst + rate x t.
    pub deepest_milli: u64,
    /// Largest debt so far.
    pub most_milli: u64,
}

/// Budgets of a region that are not full. A budget without room counts as full.
#[derive(Debug, Default)]
pub struct UnfilledBudgets {
    budgets: BoundedMap<LastState>,
    most_milli: BTreeMap<String, u64>,
}

impl UnfilledBudgets {
    pub fn record(&mut self, id: &BudgetId, last: LastState) {
        let debt_milli = last.debt_milli(last.at);
        if debt_milli > 0 {
            self.owes(&id.rule, debt_milli);
        }
        let is_needed = |known: &LastState| known.deficit_ns_at(last.at) > 0;
        let known = if last.deficit_ns > 0 {
            self.budgets.get_or_insert(last.at, id, || last, is_needed)
        } else {
            self.budgets.get_mut(id)
        };
        if let Some(known) = known {
            *known = last;
        }
    }

    fn owes(&mut self, rule: &str, debt_milli: u64) {
        if let Some(most) = self.most_milli.get_mut(rule) {
            *most = debt_milli.max(*most);
        } else if self.most_milli.len() < RULES_MAX {
            self.most_milli.insert(rule.into(), debt_milli);
        }
    }

    pub fn last(&self, id: &BudgetId) -> Option<LastState> {
        self.budgets.get(id).copied()
    }

    pub fn forget(&mut self, id: &BudgetId) {
        self.budgets.remove(id);
    }

    pub fn owed(&self, now: Time) -> BTreeMap<String, RuleDebts> {
        let most = |(rule, most_milli): (&String, &u64)| {
            (rule.clone(), RuleDebts { most_milli: *most_milli, ..RuleDebts::default() })
        };
        let mut owed: BTreeMap<String, RuleDebts> = self.most_milli.iter().map(most).collect();
        for (id, last) in self.budgets.iter() {
            // Rules beyond the maximum are left out, and so are those that never had a debt.
            if let Some(rule) = owed.get_mut(&id.rule) {
                let debt_milli = last.debt_milli(now);
                rule.sum_milli = rule.sum_milli.saturating_add(debt_milli);
                rule.deepest_milli = rule.deepest_milli.max(debt_milli);
            }
        }
        owed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use weir_protocol::quota::{Period, Rate};
    use weir_protocol::time::SECOND_NS;

    fn quota(rate: u32, period: Period, burst: u32) -> Quota {
        Quota::new(Rate::new(rate, period).unwrap(), burst).unwrap()
    }

    fn entry(quota: Quota, value: u8, admitted: u64, unconfirmed: u64) -> PlanEntry {
        PlanEntry {
            id: BudgetId::new("r".into(), vec![value]),
            quota,
            sharing: Sharing::of(quota),
            demand: Demand::default(),
            own_milli: 0,
            counts: vec![Count { epoch: 1, admitted, unconfirmed, span_us: 0, missing: 0, made_ms: 0 }],
        }
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    // I5
    #[test]
    fn a_share_has_at_least_a_token_and_a_bounded_refill_time() {
        let (whole, slowest) = (quota(100, Period::Second, 100), quota(1, Period::Day, 1));
        for (here, fleet, quota, token_ns, burst) in [
            (1, 3, whole, 30_000_000, 33),
            (3, 3, whole, whole.token_ns(), 100),
            // The fleet is not known to have more POPs than this region, so the region has all of it.
            (5, 1, whole, whole.token_ns(), 100),
            (0, 0, whole, whole.token_ns(), 100),
            (1, 330, whole, 3_300_000_000, 1),
            (1, 10_000, slowest, FILL_NS_MAX, 1),
        ] {
            let share = Share::new(here, fleet).of(quota);
            assert_eq!((share.token_ns(), share.burst()), (token_ns, burst), "{here} of {fleet}");
        }
    }

    // I5
    #[test]
    fn two_replicas_with_the_same_reports_grant_the_same() {
        let part = quota(1, Period::Day, 100);
        let (mut a, mut b) = (OfflineBudgets::default(), OfflineBudgets::default());
        let (mut at_a, mut at_b) = (0, 0);
        // Each report counts ten tokens more, and none of them is confirmed.
        for n in 1..=6 {
            let report = entry(part, 1, 10 * n, 10 * n);
            if n % 2 == 0 {
                at_a = a.charge(Time::ZERO, &report, None, "eu/a", "fra1").deficit_ns;
            } else {
                at_b = b.charge(Time::ZERO, &report, None, "eu/b", "fra1").deficit_ns;
            }
        }
        assert_eq!((at_a / part.token_ns(), at_b / part.token_ns()), (60, 50));
        let repeated = a.charge(Time::ZERO, &entry(part, 1, 60, 60), None, "eu/a", "fra1");
        assert_eq!((repeated.charged, repeated.deficit_ns), (0, at_a));
    }

    // I2
    #[test]
    fn budgets_are_bounded_and_any_other_report_is_charged_alone() {
        let part = quota(10, Period::Second, 100);
        let mut alone = OfflineBudgets { budgets: BoundedMap::new(2) };
        for value in 1..=4 {
            for admitted in [10, 20] {
                let account = alone.charge(at(0), &entry(part, value, admitted, admitted), None, "m", "p");
                assert_eq!(account.deficit_ns, admitted * part.token_ns(), "{value}");
                assert!(alone.budgets.len() <= 2);
            }
        }
        // The budgets are full again, and a report that is sent again would have come by now.
        alone.charge(at(70_000), &entry(part, 3, 30, 30), None, "m", "p");
        assert_eq!(alone.budgets.len(), 1);
        alone.end(&entry(part, 3, 0, 0).id);
        assert_eq!(alone.budgets.len(), 0);
    }

    fn id(rule: &str, value: u8) -> BudgetId {
        BudgetId::new(rule.into(), vec![value])
    }

    fn lacking(tokens: u64, at_s: u64) -> LastState {
        let quota = Quota::new(Rate::new(10, Period::Second).unwrap(), 100).unwrap();
        let at = at(at_s * 1_000);
        LastState { quota, deficit_ns: tokens * quota.token_ns(), at }
    }

    #[test]
    fn debt_is_summed_by_rule_and_refills_without_reports() {
        let mut unfilled = UnfilledBudgets::default();
        unfilled.record(&id("a", 1), lacking(130, 0));
        unfilled.record(&id("a", 2), lacking(150, 0));
        unfilled.record(&id("b", 1), lacking(99, 0));
        let owed = |unfilled: &UnfilledBudgets, s| unfilled.owed(Time::from_nanos(s * SECOND_NS));
        assert_eq!(
            owed(&unfilled, 1).get("a"),
            Some(&RuleDebts { sum_milli: 60_000, deepest_milli: 40_000, most_milli: 50_000 })
        );
        assert_eq!(owed(&unfilled, 1).get("b"), None, "within its burst");
        assert_eq!(
            owed(&unfilled, 60).get("a"),
            Some(&RuleDebts { sum_milli: 0, deepest_milli: 0, most_milli: 50_000 })
        );
        unfilled.record(&id("a", 2), lacking(100, 61));
        assert_eq!(owed(&unfilled, 61).get("a").unwrap().most_milli, 50_000);
    }

    // I2
    #[test]
    fn full_budgets_are_not_remembered_and_the_refilled_make_room() {
        let mut unfilled = UnfilledBudgets { budgets: BoundedMap::new(2), ..UnfilledBudgets::default() };
        unfilled.record(&id("a", 0), lacking(0, 0));
        assert_eq!(unfilled.budgets.len(), 0);
        for (value, tokens) in [(1, 10), (2, 100), (3, 100)] {
            unfilled.record(&id("a", value), lacking(tokens, 0));
        }
        assert_eq!((unfilled.budgets.len(), unfilled.last(&id("a", 3))), (2, None));
        unfilled.record(&id("a", 3), lacking(100, 2));
        assert_eq!((unfilled.budgets.len(), unfilled.last(&id("a", 1))), (2, None), "refilled after a second");
        assert!(unfilled.last(&id("a", 2)).is_some() && unfilled.last(&id("a", 3)).is_some());
        for rule in 0..2 * RULES_MAX {
            unfilled.record(&id(&alloc::format!("{rule}"), 1), lacking(200, 0));
        }
        assert!(unfilled.most_milli.len() <= RULES_MAX);
    }
}
