//! What operators ask a weir-sync of keys: which are busy, and how one stands.

use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::law::Law;
use weir_wire::messages::Report;
use weir_wire::quota::Quota;
use weir_wire::sharing::Sharing;
use weir_wire::time::Time;

use super::Hub;
use crate::budget::{Account, BudgetId};
use crate::busy::fleet::{BusyKey, Said};
use crate::busy::standing::{Question, Standing, level_milli};
use crate::decisions::{Decided, RuleRates};
use crate::escrow::{Draw, Drawn, LEASE_US_MIN};
use crate::plan::{Entry, Plan};
use crate::statuses::PopStatus;

impl Hub {
    /// Notes for operators what became of a report of `pop`, as far as the store said when it was asked at `asked_at`.
    pub(super) fn note_uses<E>(
        &mut self,
        now: Time,
        asked_at: Time,
        pop: &str,
        plan: &Plan,
        accounts: &[Result<Account, E>],
        drawn: &[Result<Drawn, E>],
    ) {
        let is_known = |id: &BudgetId| !self.bans.is_forgotten_since(id, asked_at);
        for ((entry, new), account) in plan.entries.iter().zip(&plan.news).zip(accounts) {
            match account {
                Ok(account) if is_known(&entry.id) => self.region.note_use(now, pop, entry, *new, account),
                Ok(_) => {}
                Err(_) => self.region.note_use_alone(now, pop, entry, *new),
            }
        }
        for (draw, drawn) in plan.draws.iter().zip(drawn) {
            if let Some(drawn) = drawn.as_ref().ok().filter(|_| is_known(&draw.id)) {
                self.region.note_draw(now, pop, draw, drawn);
            }
        }
    }

    /// The busiest keys that were heard of here: up to `most` that are limited, and half as many that are admitted and that
    /// owe most.
    pub fn busy(&self, now: Time, most: usize) -> Said {
        self.region.busy.said(now, most)
    }

    /// What is known here of the key `id`, if it is busy.
    pub fn busy_key(&self, now: Time, id: &BudgetId) -> Option<BusyKey> {
        self.region.busy.get(now, id)
    }

    /// What each rule decides, as far as POPs say it here.
    pub fn rates(&self, now: Time) -> Vec<RuleRates> {
        self.decisions.rates(now)
    }

    /// How the POPs are that report here, as they say: at most so many.
    pub fn statuses(&self, now: Time, most: usize) -> Vec<PopStatus> {
        self.statuses.said(now, most)
    }

    /// What was decided since the last call, rule by rule, as far as POPs say it here.
    pub fn decided(&mut self) -> Vec<(String, Decided)> {
        self.decisions.news()
    }

    /// For how long `id` is banned, if it is, in milliseconds.
    pub fn banned_ms(&self, now: Time, id: &BudgetId) -> Option<u32> {
        self.bans.banned_ms(now, id)
    }

    /// What to ask the store of the key `id` at `now`, which is `unix_us` microseconds since 1970. None if no POP has reported
    /// its rule of late, and no rule set that is kept has it.
    pub fn question(&self, now: Time, unix_us: u64, id: &BudgetId) -> Option<Question> {
        let (quota, sharing) = self.terms_of(&id.rule)?;
        if !sharing.strict {
            let demand = self.region.demands.current(now, id);
            return Some(Question::Shared(Entry { demand, ..Entry::new(id.clone(), quota, sharing) }));
        }
        let (id, law, claims) = (id.clone(), sharing.law, Vec::new());
        let window = law.windows().map(|calendar| calendar.window(unix_us));
        Some(Question::Strict(Draw { id, quota, lease_us: LEASE_US_MIN, law, window, claims }))
    }

    /// Which rules of `report` the fleet may run: those of the rule sets that are kept, or all while none is known.
    pub fn known_rules(&self, report: &Report) -> Vec<bool> {
        report.rules.iter().map(|rule| self.region.claims.has(rule)).collect()
    }

    /// Whether POPs have reported keys of the rule of late.
    pub fn is_reported(&self, rule: &str) -> bool {
        self.rules.get(rule).is_some()
    }

    /// What the store said to `entry`.
    pub fn shared_standing(&self, entry: &Entry, account: &Account) -> Standing {
        let division = self.region.divide(entry, account);
        Standing {
            quota: entry.quota,
            law: Law::Steady,
            level_milli: level_milli(entry.quota, account.deficit_ns),
            deficit_ns: account.deficit_ns,
            spread: account.spread,
            outstanding: 0,
            division: Some(division),
        }
    }

    /// The quota of a rule, and how POPs share it: as they reported it last, or as the newest rule set has it.
    fn terms_of(&self, rule: &str) -> Option<(Quota, Sharing)> {
        let known = || self.region.claims.known(rule).map(|rule| (rule.quota, rule.sharing.clone()));
        self.rules.get(rule).or_else(known)
    }
}
