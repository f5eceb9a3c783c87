//! One region's state between reports: turns a report into charges, and the store's accounts into grants.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_protocol::messages::{Allowance, BudgetRule, Key, Leased, PushedGrant, Report};
use weir_protocol::refill_policy::RefillPolicy;
use weir_protocol::time::Time;

use crate::budget::{Account, BudgetId, Count, Demand, SourceId};
use crate::demand::{DemandReport, Demands, TokenCounts};
use crate::divide::{Division, GrantSettings, SharedBudget, divide, region_of};
use crate::escrow::{AcquireRequest, AcquireResult, Claim};
use crate::floors::Floors;
use crate::hashed::Hashed;
use crate::hot::{HotKey, HotKeys};
use crate::id::{Names, RuleName};
use crate::offline::{OfflineBudgets, Share};
use crate::plan::{Plan, PlanEntry};
use crate::report_limits::{
    DEMAND_TIMES, Passed, RefusedClaimReason, ReportLimits, Speaker, demand_milli_max,
};
use crate::top_keys::{TopKeys, Use};
use crate::unfilled::{LastState, RuleDebts, UnfilledBudgets};
use crate::watch_level::WatchLevel;

/// State of a region between reports.
#[derive(Debug)]
pub struct Region {
    /// `region` or `region/replica`.
    member: String,
    name: String,
    terms: GrantSettings,
    names: Names,
    /// Limits on the claims of the POPs.
    pub claims: ReportLimits,
    pub(crate) demands: Demands,
    /// Keys that are pushed to every POP.
    pub hot: HotKeys,
    floors: Floors,
    heard: UnfilledBudgets,
    alone: OfflineBudgets,
    /// Busiest keys, for operators.
    pub(crate) top_keys: TopKeys,
}

impl Region {
    /// Creates the region that `member` (`region` or `region/replica`) serves. It grants by `terms`.
    pub fn new(member: &str, terms: GrantSettings) -> Self {
        Self {
            member: member.into(),
            name: region_of(member).into(),
            terms,
            names: Names::default(),
            claims: ReportLimits::default(),
            demands: Demands::default(),
            hot: HotKeys::default(),
            heard: UnfilledBudgets::default(),
            alone: OfflineBudgets::default(),
            floors: Floors::default(),
            top_keys: TopKeys::default(),
        }
    }

    /// Records a POP's report at `now`. Returns the charges that it asks for.
    pub fn observe(&mut self, now: Time, report: &Report) -> Plan {
        self.observe_from(Speaker::Pop, now, report)
    }

    /// Records a report from `speaker` at `now`. Returns the charges that it asks for.
    pub fn observe_from<'a>(&mut self, speaker: Speaker, now: Time, report: &'a Report) -> Plan {
        let mut plan = Plan::with_capacity(report.keys.len());
        let mut visit = self.claims.visit(now, speaker, report);
        let mut drawn: Hashed<(&[u8], u16), usize> = Hashed::new();
        let mut source = SourceId { epoch: 0, pop: report.pop.clone() };
        let of_rule = |rule: &'a BudgetRule| (rule, RuleName::new(&rule.name), demand_milli_max(rule.quota));
        let rules: Vec<_> = report.rules.iter().map(of_rule).collect();
        for (place, key) in report.keys.iter().enumerate() {
            // Decoding the report has checked the index. A key without its rule gets no entry and no grant.
            let Some(&(rule, name, most_milli)) = rules.get(usize::from(key.rule)) else {
                plan.asked.push(0);
                continue;
            };
            let doubt = visit.doubt(rule, key);
            let id = self.names.get(now, name.of(&key.value));
            if doubt.is_some() && (rule.sharing.strict || doubt == Some(RefusedClaimReason::Rule)) {
                plan.refuse_next(rule.sharing.strict, id);
                plan.asked.push(0);
                continue;
            }
            if rule.sharing.strict {
                let held_us = report.held_ms(place).map(|ms| u64::from(ms) * 1_000);
                let claim = Claim { held_us, ..Claim::of(report.epoch(key), key.admitted, key.ahead) };
                let GrantSettings { strict_lease_ns, calendar_lease_ns, .. } = self.terms;
                let is_window = rule.sharing.refill_policy.is_window();
                let lease_ns = if is_window { calendar_lease_ns } else { strict_lease_ns };
                let claim = visit.cost(&id, rule, key, claim);
                let drawn = drawn.entry((&key.value, key.rule));
                let at = *drawn.or_insert_with(|| plan.add_draw(id, rule, lease_ns / 1_000));
                plan.next_claim(at, claim);
                // Reports carry no demand for strict rules.
                plan.asked.push(0);
                continue;
            }
            source.epoch = report.epoch(key);
            let span_ns = u64::from(key.span_ms) * 1_000_000;
            let said = DemandReport { asked: key.asked, recently: key.asked_recently, span_ns, most_milli };
            let next = plan.entries.len();
            let passed = if doubt.is_none() { visit.take(&id, rule, source.epoch, key, next) } else { None };
            plan.asked.push(passed.map_or(0, |(_, _, asked)| asked));
            let Some((at, passed, asked)) = passed else {
                plan.next_uncharged(uncharged(id, rule, report, key, said.alone()));
                continue;
            };
            if at == next {
                plan.add_entry(id, rule);
            }
            let Some(entry) = plan.next_entry(at, passed.is_clipped) else { continue };
            let heard = self.demands.observe_admitted(now, &entry.id, &source, &said, passed.admitted);
            (entry.demand, entry.own_milli) = (heard.demand, heard.own_milli);
            if entry.sharing.floor(&self.name) > 0 {
                self.floors.observe(now, &entry.id, &source, passed.admitted);
            }
            let Passed { admitted, unconfirmed, .. } = passed;
            entry.counts.push(Count { admitted, unconfirmed, ..count(report, key) });
            plan.add_news(at, TokenCounts { asked: heard.new.asked.min(asked), ..heard.new });
        }
        plan
    }

    /// Grants at `now` for charged entries.
    pub fn grant(&mut self, now: Time, entries: &[PlanEntry], accounts: &[Account]) -> Vec<Allowance> {
        entries.iter().zip(accounts).map(|(entry, account)| self.grant_one(now, entry, account)).collect()
    }

    /// Grant at `now` for a charged entry.
    pub fn grant_one(&mut self, now: Time, entry: &PlanEntry, account: &Account) -> Allowance {
        self.alone.end(&entry.id);
        // This member is in the account, too.
        if account.members.len() > 1 && account.members.iter().any(|member| self.is_replica(&member.name)) {
            self.demands.observe_others(now);
        }
        self.allow(now, entry, entry, account)
    }

    /// Grants of a budget with this account to the POPs here.
    pub(crate) fn divide(&self, entry: &PlanEntry, account: &Account) -> Division {
        divide(&SharedBudget { entry, account, own: None }, &self.name, &self.terms)
    }

    /// Records for operators the new counts of `pop`, and the account of the budget after its charge.
    pub(crate) fn record_use(
        &mut self,
        now: Time,
        pop: &str,
        entry: &PlanEntry,
        new: TokenCounts,
        account: &Account,
    ) {
        let last = LastState { quota: entry.quota, deficit_ns: account.deficit_ns, at: now };
        // The store charges tokens of all workers of a POP to the first report that carries them, which may
        // have gone to another weir-sync.
        let admitted = if self.demands.is_shared(now) { new.admitted } else { account.charged };
        let counts = TokenCounts { admitted, ..new };
        self.top_keys.observe(now, pop, &entry.id, &Use { counts, last, askers: entry.demand.askers });
    }

    /// Records for operators the new counts of a budget that the store did not charge; its state is that of the
    /// region's last grant.
    pub(crate) fn record_offline_use(
        &mut self,
        now: Time,
        pop: &str,
        entry: &PlanEntry,
        counts: TokenCounts,
    ) {
        let last = self.heard.last(&entry.id);
        let last = last.unwrap_or(LastState { quota: entry.quota, deficit_ns: 0, at: now });
        self.top_keys.observe(now, pop, &entry.id, &Use { counts, last, askers: entry.demand.askers });
    }

    /// Records for operators the state of a budget.
    pub(crate) fn record_look(&mut self, now: Time, entry: &PlanEntry, account: &Account) {
        self.top_keys
            .look(&entry.id, LastState { quota: entry.quota, deficit_ns: account.deficit_ns, at: now });
    }

    /// Records for operators a draw on a strict budget.
    pub(crate) fn record_acquired(
        &mut self,
        now: Time,
        pop: &str,
        draw: &AcquireRequest,
        drawn: &AcquireResult,
    ) {
        let last = LastState { quota: draw.quota, deficit_ns: drawn.deficit_ns, at: now };
        // Reports do not contain the requests that a strict rule limited, only the tokens that POPs wanted.
        let wanted = draw.claims.iter().zip(&drawn.leases).filter(|(claim, lease)| {
            claim.ahead > 0 && lease.lease_ms > 0 && draw.refill_policy != RefillPolicy::Queue
        });
        let unmet = |(claim, lease): (&Claim, &Leased)| {
            (claim.spent() + u64::from(claim.ahead)).saturating_sub(lease.charged)
        };
        let unmet = wanted.map(unmet).fold(0, u64::saturating_add);
        let unmet = unmet.min(DEMAND_TIMES * u64::from(draw.quota.burst()));
        // Spent tokens were debited by earlier draws.
        let counts = TokenCounts { asked: drawn.given.saturating_add(unmet), admitted: drawn.given };
        self.top_keys.observe(now, pop, &draw.id, &Use { counts, last, askers: 1 });
    }

    /// True if it is another weir-sync of this region.
    fn is_replica(&self, member: &str) -> bool {
        member != self.member && region_of(member) == self.name
    }

    /// Grant at `now` for an entry of `pop` that the store did not charge. The entry is charged to this
    /// region's `share` (see [`crate::offline`]). Nothing is leased, since nothing can be debited.
    pub fn grant_offline(&mut self, now: Time, pop: &str, whole: &PlanEntry, share: Share) -> Allowance {
        let entry = part(whole, share);
        let account = self.alone.charge(now, &entry, self.heard.last(&entry.id), &self.member, pop);
        self.allow(now, whole, &entry, &account)
    }

    /// Grant at `now` for an entry of `pop` that is not sent to the store, because the POP may not claim it
    /// now. It is computed from this region's `share`; nothing is stored, and no other POP is sent it.
    pub fn grant_uncharged(&self, now: Time, pop: &str, whole: &PlanEntry, share: Share) -> Allowance {
        let entry = part(whole, share);
        let account = self.alone.evaluate(now, &entry, self.heard.last(&entry.id), &self.member, pop);
        divide(&SharedBudget { entry: &entry, account: &account, own: None }, &self.name, &self.terms)
            .allowance()
    }

    /// Allowance for an entry after `account` was charged. For a region that is offline, `entry` has its share
    /// of the quota; other regions know a hot key by `whole`.
    fn allow(&mut self, now: Time, whole: &PlanEntry, entry: &PlanEntry, account: &Account) -> Allowance {
        self.heard
            .record(&entry.id, LastState { quota: entry.quota, deficit_ns: account.deficit_ns, at: now });
        let own = self.floors.charge(now, entry, entry.sharing.floor(&self.name), account);
        let division = divide(&SharedBudget { entry, account, own }, &self.name, &self.terms);
        self.hot.record(whole, &division, now);
        self.demands.record(
            &entry.id,
            account.deficit_ns > entry.quota.fill_ns(),
            division.heat == WatchLevel::Warm,
        );
        division.allowance()
    }

    /// Forgets the budget `id`, which the store has forgotten.
    pub(crate) fn forget(&mut self, id: &BudgetId) {
        self.hot.forget(id);
        self.heard.forget(id);
        self.alone.end(id);
        self.floors.forget(id);
        self.claims.forget(id);
        self.top_keys.forget(id);
    }

    /// Debts of the known budgets at `now`, by rule.
    pub fn owed(&self, now: Time) -> BTreeMap<String, RuleDebts> {
        self.heard.owed(now)
    }

    /// Rule names and grants to push to the sender of `report` beside the keys it reported.
    pub fn pushes(
        &mut self,
        now: Time,
        report: &Report,
        is_repeated: bool,
    ) -> (Vec<String>, Vec<PushedGrant>) {
        let name = |key: &Key| {
            let rule = report.rules.get(usize::from(key.rule))?;
            Some(self.names.get(now, RuleName::new(&rule.name).of(&key.value)))
        };
        let asked: Vec<BudgetId> = report.keys.iter().filter_map(name).collect();
        self.pushes_beside(now, report, is_repeated, asked.iter())
    }

    /// Rule names and grants to push to the sender of `report`, which `asked` for these budgets.
    pub(crate) fn pushes_beside<'a>(
        &mut self,
        now: Time,
        report: &Report,
        is_repeated: bool,
        asked: impl Iterator<Item = &'a BudgetId>,
    ) -> (Vec<String>, Vec<PushedGrant>) {
        let demands = &self.demands;
        self.hot.pushes(now, report, is_repeated, asked, |id| demands.is_asked_of(now, id, &report.pop))
    }

    /// Entries that charge nothing, to read budgets: of the fleet's hot keys and of the keys that rest here,
    /// those whose accounts this region has not seen recently.
    pub fn peeks(&mut self, now: Time, fleet: &[HotKey]) -> Vec<PlanEntry> {
        let unseen = self.hot.to_look_at(now, fleet, self.terms.interval_ns);
        let entry = |HotKey { id, quota, sharing, .. }| {
            let demand = self.demands.current(now, &id);
            PlanEntry { demand, ..PlanEntry::new(id, quota, sharing) }
        };
        unseen.into_iter().map(entry).collect()
    }
}

/// Returns the entry scaled to a region's `share`.
fn part(whole: &PlanEntry, share: Share) -> PlanEntry {
    PlanEntry {
        quota: share.of(whole.quota),
        sharing: share.of_sharing(&whole.sharing, whole.quota),
        ..whole.clone()
    }
}

/// Counts of `key` in `report`.
fn count(report: &Report, key: &Key) -> Count {
    Count {
        epoch: report.epoch(key),
        admitted: key.admitted,
        unconfirmed: key.unconfirmed,
        span_us: u64::from(key.span_ms) * 1_000,
        missing: u64::from(key.missing),
        made_ms: report.made_ms,
    }
}

/// Separate entry for a key that its POP may not claim now.
fn uncharged(id: BudgetId, rule: &BudgetRule, report: &Report, key: &Key, demand: Demand) -> PlanEntry {
    let counts = alloc::vec![count(report, key)];
    let own_milli = demand.milli;
    PlanEntry { demand, own_milli, counts, ..PlanEntry::new(id, rule.quota, rule.sharing.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use weir_protocol::quota::{Period, Quota, Rate};
    use weir_protocol::sharing::Sharing;

    /// A bucket that was made anew is two epochs of one key; two tiers of a rule have its name, and quotas of their
    /// own.
    #[test]
    fn a_report_charges_each_budget_of_each_rule_once() {
        let rule = |count| {
            let quota = Quota::new(Rate::new(count, Period::Second).unwrap(), 100).unwrap();
            BudgetRule { name: "r".into(), quota, sharing: Sharing::of(quota) }
        };
        let key = |rule, value, epoch| Key {
            rule,
            value: vec![value],
            epoch,
            admitted: 1,
            unconfirmed: 1,
            asked: 1,
            asked_recently: 1,
            ..Key::default()
        };
        let keys = vec![key(0, 7, 1), key(0, 8, 1), key(0, 7, 2), key(1, 7, 3)];
        let rules = vec![rule(10), rule(20)];
        let report = Report { pop: "fra1".into(), table: 1, rules, keys, ..Report::default() };
        let mut region = Region::new("fra", GrantSettings::default());
        for s in 1..3 {
            let plan = region.observe(Time::from_nanos(s * 1_000_000_000), &report);
            let counts = plan.entries.iter().map(|entry| (entry.id.value[0], entry.counts.len()));
            assert_eq!(counts.collect::<Vec<_>>(), [(7, 2), (8, 1), (7, 1)]);
            assert_eq!(plan.entries[2].quota, report.rules[1].quota);
        }
    }
}
