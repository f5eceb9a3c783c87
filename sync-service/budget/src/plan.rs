//! Plan of a report: its charges and acquires, and which of them answers which key.

use alloc::vec::Vec;

use weir_protocol::messages::{Allowance, BudgetRule, Settled};
use weir_protocol::quota::Quota;
use weir_protocol::sharing::Sharing;

use crate::budget::{Account, BudgetId, Charge, Count, Demand};
use crate::demand::TokenCounts;
use crate::escrow::{AcquireRequest, AcquireResult, Claim, NO_LEASE};

/// A report's charge to one budget.
#[derive(Clone, Debug)]
pub struct PlanEntry {
    /// The budget's name.
    pub id: BudgetId,
    /// Its quota.
    pub quota: Quota,
    /// Its sharing among POPs.
    pub sharing: Sharing,
    /// Demand of the region.
    pub demand: Demand,
    /// Demand of the POP, in thousandths of a token per second.
    pub own_milli: u64,
    /// Counts of the POP's buckets.
    pub counts: Vec<Count>,
}

impl PlanEntry {
    /// Creates an entry that only reads a budget.
    pub fn new(id: BudgetId, quota: Quota, sharing: Sharing) -> Self {
        Self { id, quota, sharing, demand: Demand::default(), own_milli: 0, counts: Vec::new() }
    }

    /// True if a POP reported it; otherwise its budget is only read.
    pub fn is_reported(&self) -> bool {
        !self.counts.is_empty()
    }

    /// The entry as a charge by `pop` in the name of `replica`: a region, or `region/replica`.
    pub fn charge<'a>(&'a self, replica: &'a str, pop: &'a str) -> Charge<'a> {
        Charge { quota: self.quota, replica, demand: self.demand, pop, counts: &self.counts }
    }
}

/// Plan of a report. Several of its keys may belong to one budget, if its bucket was recreated.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// One entry per budget.
    pub entries: Vec<PlanEntry>,
    /// One acquire per strict budget.
    pub acquires: Vec<AcquireRequest>,
    /// New counts of each entry.
    pub(crate) news: Vec<TokenCounts>,
    /// For each key of the report, in order, the POP's new demand in tokens, as far as it is accepted.
    pub(crate) asked: Vec<u64>,
    /// An entry for each key that its POP may not claim now. It is not sent to the store, but gets a grant.
    pub(crate) uncharged: Vec<PlanEntry>,
    /// Budgets of refused keys, except strict ones.
    refused: Vec<BudgetId>,
    /// Source of the answer to each key of the report, in order.
    answers: Vec<Answer>,
}

/// Source of the answer to a key.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// An entry. If it is clipped, a part of the claim has to wait.
    Entry { at: usize, is_clipped: bool },
    /// One of the claims of an acquire.
    Claim { acquire: usize, claim: usize },
    /// An entry that is not charged.
    Uncharged(usize),
    /// None: the claim is refused.
    Refused { is_strict: bool },
}

impl Plan {
    /// Creates an empty plan with room for `keys` keys.
    pub(crate) fn with_capacity(keys: usize) -> Self {
        Self {
            entries: Vec::with_capacity(keys),
            news: Vec::with_capacity(keys),
            asked: Vec::with_capacity(keys),
            answers: Vec::with_capacity(keys),
            ..Self::default()
        }
    }

    /// Adds an entry. Its number is the previous number of entries.
    pub(crate) fn add_entry(&mut self, id: BudgetId, rule: &BudgetRule) {
        // There is usually one count.
        let counts = Vec::with_capacity(1);
        self.entries.push(PlanEntry { counts, ..PlanEntry::new(id, rule.quota, rule.sharing.clone()) });
        self.news.push(TokenCounts::default());
    }

    /// Adds an acquire, and returns its number.
    pub(crate) fn add_acquire(&mut self, id: BudgetId, rule: &BudgetRule, lease_us: u64) -> usize {
        let (quota, refill_policy) = (rule.quota, rule.sharing.refill_policy);
        let (window, claims) = (None, Vec::new());
        self.acquires.push(AcquireRequest { id, quota, lease_us, refill_policy, window, claims });
        self.acquires.len() - 1
    }

    /// Adds new counts to entry number `at`.
    pub(crate) fn add_news(&mut self, at: usize, new: TokenCounts) {
        self.news.get_mut(at).into_iter().for_each(|news| news.add(new));
    }

    /// Answers the next key with entry number `at`, and returns that. If it `is_clipped`, it is charged in part
    /// and not confirmed.
    /// `asked` is the POP's new demand.
    pub(crate) fn next_entry(&mut self, at: usize, is_clipped: bool, asked: u64) -> Option<&mut PlanEntry> {
        self.answer(Answer::Entry { at, is_clipped }, asked);
        self.entries.get_mut(at)
    }

    /// Answers the next key with the result of `claim` in acquire number `at`.
    pub(crate) fn next_claim(&mut self, at: usize, claim: Claim) {
        let Some(acquire) = self.acquires.get_mut(at) else { return };
        let answer = Answer::Claim { acquire: at, claim: acquire.claims.len() };
        acquire.claims.push(claim);
        // Reports carry no demand for strict rules.
        self.answer(answer, 0);
    }

    /// Answers the next key with `entry`, which is not charged.
    pub(crate) fn next_uncharged(&mut self, entry: PlanEntry) {
        self.answer(Answer::Uncharged(self.uncharged.len()), 0);
        self.uncharged.push(entry);
    }

    /// Refuses the next key: nothing is charged for it, granted or confirmed. Its POP keeps to its own bucket,
    /// or has no token if the rule is strict.
    pub(crate) fn refuse_next(&mut self, is_strict: bool, id: BudgetId) {
        self.answer(Answer::Refused { is_strict }, 0);
        if !is_strict {
            self.refused.push(id);
        }
    }

    fn answer(&mut self, answer: Answer, asked: u64) {
        self.answers.push(answer);
        self.asked.push(asked);
    }

    /// Budgets of all keys that are not strict.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &BudgetId> {
        self.entries.iter().chain(&self.uncharged).map(|entry| &entry.id).chain(&self.refused)
    }

    /// Indexes of the report's keys that are refused.
    pub fn refused(&self) -> impl Iterator<Item = usize> {
        let answers = self.answers.iter().enumerate();
        answers.filter(|(_, answer)| matches!(answer, Answer::Refused { .. })).map(|(at, _)| at)
    }

    /// Computes the windows of the acquires at `unix_us` microseconds since 1970. Windows of months need this, or
    /// nothing is acquired from them; the store computes all others itself.
    pub fn date(&mut self, unix_us: u64) {
        for acquire in &mut self.acquires {
            acquire.window = acquire.refill_policy.windows().map(|calendar| calendar.window(unix_us));
        }
    }

    /// True if there is nothing to charge or acquire.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.acquires.is_empty()
    }

    /// Keys of the report that are charged in full: those whose entry has an account, or whose acquire succeeded.
    pub fn settled<E>(&self, accounts: &[Result<Account, E>], acquired: &[Result<AcquireResult, E>]) -> Settled {
        let is_charged = |answer: &Answer| match *answer {
            Answer::Entry { at, is_clipped } => !is_clipped && accounts.get(at).is_some_and(Result::is_ok),
            Answer::Claim { acquire, .. } => acquired.get(acquire).is_some_and(Result::is_ok),
            Answer::Uncharged(_) | Answer::Refused { .. } => false,
        };
        Settled::of(self.answers.iter().map(is_charged))
    }

    /// Maps the allowances of entries, charged and `uncharged`, and the results of acquires to the report's keys,
    /// in order. A strict key whose acquire failed, because the store is out of reach, is leased nothing.
    pub fn of_keys<E>(
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
