//! The keys of a report: the charges and acquires that it asks the store for, and the grants that follow from the
//! store's accounts.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_protocol::messages::{Allowance, BudgetRule, Key, Report, Settled};
use weir_protocol::time::Time;

use super::Hub;
use crate::budget::{Account, BudgetId, Count, Demand, PlanEntry, SourceId};
use crate::demand::{DemandReport, Demands, TokenCounts};
use crate::divide::{Division, GrantSettings, WatchLevel, divide, region_of};
use crate::escrow::{AcquireRequest, AcquireResult, Claim, NO_LEASE};
use crate::floors::Floors;
use crate::hot::{HotKey, HotKeys};
use crate::id::{Hashed, RuleName};
use crate::offline::{LastState, OfflineBudgets, RuleDebts, Share, UnfilledBudgets};
use crate::report_limits::{Passed, RefusedClaimReason, ReporterKind, demand_milli_max};

/// Charges and acquires that a report asks for, and the one that answers each of its keys. Several keys may belong to
/// one budget, if the POP's bucket was recreated.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) entries: Vec<PlanEntry>,
    pub(super) acquires: Vec<AcquireRequest>,
    pub(super) news: Vec<TokenCounts>,
    /// For each key of the report, in order, the accepted part of the POP's new demand, in tokens.
    pub(super) asked: Vec<u64>,
    /// Entries of the keys that the POP may not claim now. They are not sent to the store, but get a grant.
    pub(super) uncharged: Vec<PlanEntry>,
    /// Budgets of refused keys, except strict ones.
    refused: Vec<BudgetId>,
    /// Source of the answer to each key of the report, in order.
    answers: Vec<Answer>,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    /// An entry of the plan. If it is clipped, a part of the claim has to wait.
    Entry {
        at: usize,
        is_clipped: bool,
    },
    Claim {
        acquire: usize,
        claim: usize,
    },
    Uncharged(usize),
    /// The claim is refused.
    Refused {
        is_strict: bool,
    },
}

impl Plan {
    fn with_capacity(keys: usize) -> Self {
        Self {
            entries: Vec::with_capacity(keys),
            news: Vec::with_capacity(keys),
            asked: Vec::with_capacity(keys),
            answers: Vec::with_capacity(keys),
            ..Self::default()
        }
    }

    fn add_entry(&mut self, id: BudgetId, rule: &BudgetRule) {
        // There is usually one count.
        let counts = Vec::with_capacity(1);
        self.entries.push(PlanEntry { counts, ..PlanEntry::new(id, rule.quota, rule.sharing.clone()) });
        self.news.push(TokenCounts::default());
    }

    /// Only windows of months need `unix_us`, microseconds since 1970.
    fn add_acquire(&mut self, id: BudgetId, rule: &BudgetRule, lease_us: u64, unix_us: u64) -> usize {
        let (quota, refill_policy, claims) = (rule.quota, rule.sharing.refill_policy, Vec::new());
        let window = refill_policy.windows().map(|calendar| calendar.window(unix_us));
        self.acquires.push(AcquireRequest { id, quota, lease_us, refill_policy, window, claims });
        self.acquires.len() - 1
    }

    /// Records that entry `at` answers the next key, and returns it. If `is_clipped`, only a part of the key's claim
    /// was accepted. `asked` is the key's new demand.
    fn next_entry(&mut self, at: usize, is_clipped: bool, asked: u64) -> Option<&mut PlanEntry> {
        self.answer(Answer::Entry { at, is_clipped }, asked);
        self.entries.get_mut(at)
    }

    /// Answers the next key with the result of `claim` in acquire number `at`.
    fn next_claim(&mut self, at: usize, claim: Claim) {
        let Some(acquire) = self.acquires.get_mut(at) else { return };
        let answer = Answer::Claim { acquire: at, claim: acquire.claims.len() };
        acquire.claims.push(claim);
        // Reports carry no demand for strict rules.
        self.answer(answer, 0);
    }

    fn next_uncharged(&mut self, entry: PlanEntry) {
        self.answer(Answer::Uncharged(self.uncharged.len()), 0);
        self.uncharged.push(entry);
    }

    /// Refuses the next key. The POP then limits by its own bucket alone, or gets no tokens if the rule is strict.
    fn refuse_next(&mut self, is_strict: bool, id: BudgetId) {
        self.answer(Answer::Refused { is_strict }, 0);
        if !is_strict {
            self.refused.push(id);
        }
    }

    fn answer(&mut self, answer: Answer, asked: u64) {
        self.answers.push(answer);
        self.asked.push(asked);
    }

    pub(super) fn asked(&self) -> impl Iterator<Item = &BudgetId> {
        self.entries.iter().chain(&self.uncharged).map(|entry| &entry.id).chain(&self.refused)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.acquires.is_empty()
    }

    /// Keys of the report that are charged in full: those whose entry has an account, or whose acquire succeeded.
    pub(super) fn settled<E>(&self, accounts: &[Result<Account, E>], acquired: &[Result<AcquireResult, E>]) -> Settled {
        let is_charged = |answer: &Answer| match *answer {
            Answer::Entry { at, is_clipped } => !is_clipped && accounts.get(at).is_some_and(Result::is_ok),
            Answer::Claim { acquire, .. } => acquired.get(acquire).is_some_and(Result::is_ok),
            Answer::Uncharged(_) | Answer::Refused { .. } => false,
        };
        Settled::of(self.answers.iter().map(is_charged))
    }

    /// Maps the allowances of entries and the results of acquires to the report's keys, in order.
    pub(super) fn of_keys<E>(
        &self,
        grants: &[Allowance],
        uncharged: &[Allowance],
        acquired: &[Result<AcquireResult, E>],
    ) -> Vec<Allowance> {
        let allowance = |answer: &Answer| match *answer {
            Answer::Entry { at, .. } => grants.get(at).copied(),
            Answer::Claim { acquire, claim } => {
                let acquired = acquired.get(acquire).and_then(|acquired| acquired.as_ref().ok());
                let lease = acquired.and_then(|acquired| acquired.leases.get(claim));
                Some(Allowance::Leased(*lease.unwrap_or(&NO_LEASE)))
            }
            Answer::Uncharged(at) => uncharged.get(at).copied(),
            Answer::Refused { is_strict: true } => Some(Allowance::Leased(NO_LEASE)),
            Answer::Refused { is_strict: false } => Some(Allowance::Warm),
        };
        self.answers.iter().filter_map(allowance).collect()
    }
}

impl Hub {
    /// Records the keys of a report of `reporter` at `now`. Returns the charges and acquires that it asks for.
    pub(super) fn plan<'a>(&mut self, reporter: ReporterKind, now: Time, unix_us: u64, report: &'a Report) -> Plan {
        let Self { names, limits, grants, .. } = self;
        let mut plan = Plan::with_capacity(report.keys.len());
        let mut visit = limits.visit(now, reporter, report);
        let mut acquired: Hashed<(&[u8], u16), usize> = Hashed::new();
        let mut source = SourceId { epoch: 0, pop: report.pop.clone() };
        let of_rule = |rule: &'a BudgetRule| (rule, RuleName::new(&rule.name), demand_milli_max(rule.quota));
        let rules: Vec<_> = report.rules.iter().map(of_rule).collect();
        for (place, key) in report.keys.iter().enumerate() {
            // Decoding the report has checked the index.
            let Some(&(rule, name, most_milli)) = rules.get(usize::from(key.rule)) else { continue };
            let doubt = visit.doubt(rule, key);
            let id = names.get(now, name.of(&key.value));
            if doubt.is_some() && (rule.sharing.strict || doubt == Some(RefusedClaimReason::Rule)) {
                plan.refuse_next(rule.sharing.strict, id);
                continue;
            }
            if rule.sharing.strict {
                let claim = visit.cost(&id, rule, key, claim(report, place, key));
                let (terms, is_window) = (&grants.terms, rule.sharing.refill_policy.is_window());
                let lease_ns = if is_window { terms.calendar_lease_ns } else { terms.strict_lease_ns };
                let acquired = acquired.entry((&key.value, key.rule));
                let at = *acquired.or_insert_with(|| plan.add_acquire(id, rule, lease_ns / 1_000, unix_us));
                plan.next_claim(at, claim);
                continue;
            }
            source.epoch = report.epoch(key);
            let span_ns = u64::from(key.span_ms) * 1_000_000;
            let (asked, recently) = (key.asked, key.asked_recently);
            let demand = DemandReport { asked, recently, admitted: 0, span_ns, most_milli };
            let next = plan.entries.len();
            let passed = if doubt.is_none() { visit.take(&id, rule, source.epoch, key, next) } else { None };
            let Some((at, passed, asked)) = passed else {
                plan.next_uncharged(uncharged(id, rule, report, key, demand.alone()));
                continue;
            };
            if at == next {
                plan.add_entry(id, rule);
            }
            let Some(entry) = plan.next_entry(at, passed.is_clipped, asked) else { continue };
            let demand = DemandReport { admitted: passed.admitted, ..demand };
            let update = grants.demands.observe(now, &entry.id, &source, &demand);
            (entry.demand, entry.own_milli) = (update.demand, update.own_milli);
            if entry.sharing.floor(&grants.region) > 0 {
                grants.floors.observe(now, &entry.id, &source, passed.admitted, span_ns);
            }
            let Passed { admitted, unconfirmed, .. } = passed;
            entry.counts.push(Count { admitted, unconfirmed, ..count(report, key) });
            let new = TokenCounts { asked: update.new.asked.min(asked), ..update.new };
            plan.news.get_mut(at).into_iter().for_each(|news| news.add(new));
        }
        plan
    }
}

fn claim(report: &Report, place: usize, key: &Key) -> Claim {
    let held_us = report.held_ms(place).map(|ms| u64::from(ms) * 1_000);
    Claim { held_us, ..Claim::of(report.epoch(key), key.admitted, key.ahead) }
}

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

fn uncharged(id: BudgetId, rule: &BudgetRule, report: &Report, key: &Key, demand: Demand) -> PlanEntry {
    let counts = alloc::vec![count(report, key)];
    let own_milli = demand.milli;
    PlanEntry { demand, own_milli, counts, ..PlanEntry::new(id, rule.quota, rule.sharing.clone()) }
}

/// State of a region's keys between reports.
#[derive(Debug)]
pub(super) struct Grants {
    replica: String,
    pub(super) region: String,
    pub(super) terms: GrantSettings,
    pub(super) demands: Demands,
    pub(super) hot: HotKeys,
    pub(super) floors: Floors,
    pub(super) unfilled: UnfilledBudgets,
    offline: OfflineBudgets,
}

impl Grants {
    pub(super) fn new(replica: &str, terms: GrantSettings) -> Self {
        Self {
            replica: replica.into(),
            region: region_of(replica).into(),
            terms,
            demands: Demands::default(),
            hot: HotKeys::default(),
            floors: Floors::default(),
            unfilled: UnfilledBudgets::default(),
            offline: OfflineBudgets::default(),
        }
    }

    pub(super) fn of_account(&mut self, now: Time, entry: &PlanEntry, account: &Account) -> Allowance {
        self.offline.end(&entry.id);
        // This replica is in the account, too.
        let is_another = |name: &str| *name != *self.replica && region_of(name) == self.region;
        if account.replicas.len() > 1 && account.replicas.iter().any(|replica| is_another(&replica.name)) {
            self.demands.observe_others(now);
        }
        self.allow(now, entry, entry, account)
    }

    /// Grant at `now` for an entry that the store did not charge (see [`crate::offline`]).
    pub(super) fn offline(&mut self, now: Time, pop: &str, whole: &PlanEntry, share: Share) -> Allowance {
        let entry = part(whole, share);
        let last = self.unfilled.last(&entry.id);
        let account = self.offline.charge(now, &entry, last, &self.replica, pop);
        self.allow(now, whole, &entry, &account)
    }

    /// Grant at `now` for an entry that its POP may not claim now, from this region's `share`. Nothing of it is stored.
    pub(super) fn uncharged(&self, now: Time, pop: &str, whole: &PlanEntry, share: Share) -> Allowance {
        let entry = part(whole, share);
        let last = self.unfilled.last(&entry.id);
        self.divide(&entry, &OfflineBudgets::evaluate(now, &entry, last, &self.replica, pop)).allowance()
    }

    pub(super) fn divide(&self, entry: &PlanEntry, account: &Account) -> Division {
        divide(entry, account, None, &self.region, &self.terms)
    }

    /// Allowance for an entry after `account` was charged. For a region that is offline, `entry` has the region's share
    /// of the quota, and `whole` is listed for other regions if it is hot.
    fn allow(&mut self, now: Time, whole: &PlanEntry, entry: &PlanEntry, account: &Account) -> Allowance {
        self.unfilled.record(&entry.id, LastState::of(entry, account, now));
        let own = self.floors.charge(now, entry, entry.sharing.floor(&self.region), account);
        let division = divide(entry, account, own, &self.region, &self.terms);
        self.hot.record(whole, &division, now);
        let is_in_debt = account.deficit_ns > entry.quota.fill_ns();
        self.demands.record(&entry.id, is_in_debt, division.watch_level == WatchLevel::Warm);
        division.allowance()
    }

    pub(super) fn forget(&mut self, id: &BudgetId) {
        self.hot.forget(id);
        self.unfilled.forget(id);
        self.offline.end(id);
        self.floors.forget(id);
    }

    pub(super) fn owed(&self, now: Time) -> BTreeMap<String, RuleDebts> {
        self.unfilled.owed(now)
    }

    /// Entries that charge nothing, to read the budgets of the fleet's hot keys and of the keys that rest here, if this
    /// region has no recent account of them.
    pub(super) fn peeks(&mut self, now: Time, fleet: &[HotKey]) -> Vec<PlanEntry> {
        let unseen = self.hot.to_look_at(now, fleet, self.terms.interval_ns);
        let entry = |HotKey { id, quota, sharing, .. }| {
            let demand = self.demands.current(now, &id);
            PlanEntry { demand, ..PlanEntry::new(id, quota, sharing) }
        };
        unseen.into_iter().map(entry).collect()
    }
}

fn part(whole: &PlanEntry, share: Share) -> PlanEntry {
    let (quota, sharing) = (share.of(whole.quota), share.of_sharing(&whole.sharing, whole.quota));
    PlanEntry { quota, sharing, ..whole.clone() }
}
