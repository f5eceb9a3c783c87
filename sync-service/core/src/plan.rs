//! What a report asks of the budgets: charges, draws, and which of its keys gets which answer.

use alloc::vec::Vec;

use weir_wire::messages::{Allowance, Rule, Settled};
use weir_wire::quota::Quota;
use weir_wire::sharing::Sharing;

use crate::budget::{Account, BudgetId, Charge, Count, Demand};
use crate::demand::Counts;
use crate::escrow::{Claim, Draw, Drawn, NO_LEASE};

/// What one report says about one budget.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Which budget.
    pub id: BudgetId,
    /// How large it is.
    pub quota: Quota,
    /// How POPs share it.
    pub sharing: Sharing,
    /// What the region is asked for.
    pub demand: Demand,
    /// What the POP is asked for, in thousandths of a token per second.
    pub own_milli: u64,
    /// What the POP's buckets admitted.
    pub counts: Vec<Count>,
}

impl Entry {
    /// An entry that only looks at a budget.
    pub fn new(id: BudgetId, quota: Quota, sharing: Sharing) -> Self {
        Self { id, quota, sharing, demand: Demand::default(), own_milli: 0, counts: Vec::new() }
    }

    /// Whether a POP reported it; if not, its budget is only looked at.
    pub fn is_reported(&self) -> bool {
        !self.counts.is_empty()
    }

    /// The entry as a charge by `pop` in the name of `member`: a region, or `region/replica`.
    pub fn charge<'a>(&'a self, member: &'a str, pop: &'a str) -> Charge<'a> {
        Charge { quota: self.quota, member, demand: self.demand, pop, counts: &self.counts }
    }
}

/// What a report asks. Several of its keys may be of one budget, if its bucket was made anew.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// An entry per budget.
    pub entries: Vec<Entry>,
    /// A draw per strict budget.
    pub draws: Vec<Draw>,
    /// What is new of each entry.
    pub(crate) news: Vec<Counts>,
    /// How many tokens the POP is believed to have been asked for of each key of the report, in its order.
    pub(crate) asked: Vec<u64>,
    /// An entry for each key that its POP may not claim now: it is not sent to the store, but granted something.
    pub(crate) uncharged: Vec<Entry>,
    /// The budgets of keys that are refused, unless they are strict.
    refused: Vec<BudgetId>,
    /// What each key of the report is answered, in its order.
    answers: Vec<Answer>,
}

/// Where the answer to a key is.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// With an entry. If it is clipped, a part of what it claims has to wait.
    Entry { at: usize, is_clipped: bool },
    /// With a draw, for one of its claims.
    Claim { draw: usize, claim: usize },
    /// With an entry that is not charged.
    Uncharged(usize),
    /// Nowhere: what it claims is refused.
    Refused { is_strict: bool },
}

impl Plan {
    /// An empty plan, with room for so many keys.
    pub(crate) fn with_capacity(keys: usize) -> Self {
        Self {
            entries: Vec::with_capacity(keys),
            news: Vec::with_capacity(keys),
            asked: Vec::with_capacity(keys),
            answers: Vec::with_capacity(keys),
            ..Self::default()
        }
    }

    /// Adds an entry. Its number is how many there were before.
    pub(crate) fn add_entry(&mut self, id: BudgetId, rule: &Rule) {
        // Mostly there is one count.
        let counts = Vec::with_capacity(1);
        self.entries.push(Entry { counts, ..Entry::new(id, rule.quota, rule.sharing.clone()) });
        self.news.push(Counts::default());
    }

    /// Adds a draw, and returns its number.
    pub(crate) fn add_draw(&mut self, id: BudgetId, rule: &Rule, lease_us: u64) -> usize {
        let law = rule.sharing.law;
        self.draws.push(Draw { id, quota: rule.quota, lease_us, law, window: None, claims: Vec::new() });
        self.draws.len() - 1
    }

    /// This is new of entry number `at`.
    pub(crate) fn add_news(&mut self, at: usize, new: Counts) {
        self.news.get_mut(at).into_iter().for_each(|news| news.add(new));
    }

    /// The next key is answered with entry number `at`, which is returned. If it `is_clipped`, it is charged in part and
    /// not confirmed.
    pub(crate) fn next_entry(&mut self, at: usize, is_clipped: bool) -> Option<&mut Entry> {
        self.answers.push(Answer::Entry { at, is_clipped });
        self.entries.get_mut(at)
    }

    /// The next key is answered with what draw number `at` gives to `claim`.
    pub(crate) fn next_claim(&mut self, at: usize, claim: Claim) {
        let Some(draw) = self.draws.get_mut(at) else { return };
        self.answers.push(Answer::Claim { draw: at, claim: draw.claims.len() });
        draw.claims.push(claim);
    }

    /// The next key is answered with `entry`, which is not charged.
    pub(crate) fn next_uncharged(&mut self, entry: Entry) {
        self.answers.push(Answer::Uncharged(self.uncharged.len()));
        self.uncharged.push(entry);
    }

    /// The next key is refused: nothing is charged for it, granted or confirmed. Its POP keeps to its own bucket, or
    /// has no token if the rule is strict.
    pub(crate) fn refuse_next(&mut self, is_strict: bool, id: BudgetId) {
        self.answers.push(Answer::Refused { is_strict });
        if !is_strict {
            self.refused.push(id);
        }
    }

    /// The budgets of all keys that are not strict.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &BudgetId> {
        self.entries.iter().chain(&self.uncharged).map(|entry| &entry.id).chain(&self.refused)
    }

    /// The numbers of the report's keys that are refused.
    pub fn refused(&self) -> impl Iterator<Item = usize> {
        let answers = self.answers.iter().enumerate();
        answers.filter(|(_, answer)| matches!(answer, Answer::Refused { .. })).map(|(at, _)| at)
    }

    /// Looks up the windows of quotas that have months at `unix_us` microseconds since 1970. Before that they have none, and
    /// nothing is drawn on them. All other windows the store finds by itself.
    pub fn date(&mut self, unix_us: u64) {
        for draw in &mut self.draws {
            draw.window = draw.law.windows().map(|calendar| calendar.window(unix_us));
        }
    }

    /// Whether there is nothing to charge or draw.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.draws.is_empty()
    }

    /// Which keys of the report are charged in full: those whose entry has an account, or whose draw was made.
    pub fn settled<E>(&self, accounts: &[Result<Account, E>], drawn: &[Result<Drawn, E>]) -> Settled {
        let is_charged = |answer: &Answer| match *answer {
            Answer::Entry { at, is_clipped } => !is_clipped && accounts.get(at).is_some_and(Result::is_ok),
            Answer::Claim { draw, .. } => drawn.get(draw).is_some_and(Result::is_ok),
            Answer::Uncharged(_) | Answer::Refused { .. } => false,
        };
        Settled::of(self.answers.iter().map(is_charged))
    }

    /// Turns the allowances of entries, charged and `uncharged`, and what was drawn into allowances of the report's keys,
    /// in its order. Where nothing was drawn, as the store is out of reach, strict keys are leased nothing.
    pub fn of_keys<E>(
        &self,
        grants: &[Allowance],
        uncharged: &[Allowance],
        drawn: &[Result<Drawn, E>],
    ) -> Vec<Allowance> {
        let allowance = |answer: &Answer| match *answer {
            Answer::Entry { at, .. } => grants.get(at).copied(),
            Answer::Claim { draw, claim } => {
                let drawn = drawn.get(draw).and_then(|drawn| drawn.as_ref().ok());
                let lease = drawn.and_then(|drawn| drawn.leases.get(claim));
                Some(Allowance::Leased(*lease.unwrap_or(&NO_LEASE)))
            }
            Answer::Uncharged(at) => uncharged.get(at).copied(),
            Answer::Refused { is_strict: true } => Some(Allowance::Leased(NO_LEASE)),
            Answer::Refused { is_strict: false } => Some(Allowance::Warm),
        };
        self.answers.iter().filter_map(allowance).collect()
    }
}
