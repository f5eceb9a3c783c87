//! One region's side of the budget loop, without its IO: a report comes in and becomes charges, the
//! store's accounts come back and become grants.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_limiter::quota::Quota;
use weir_limiter::sharing::Sharing;
use weir_limiter::time::Time;
use weir_limiter::wire::{Allowance, Pushed, Report};

use crate::alone::{Alone, Share};
use crate::budget::{Account, BudgetId, Charge, Count, Demand, SourceId};
use crate::demand::{Demands, Said};
use crate::divide::{Shared, Terms, divide, region_of};
use crate::draws::Draws;
use crate::escrow::{Claim, Drawn};
use crate::floors::Floors;
use crate::heard::{Heard, Last, Owed};
use crate::hot::{Heat, HotKey, HotKeys};
use crate::pops::{FleetSize, Pops};
use crate::workers::Workers;

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
    /// The entry as a charge by `pop` in the name of `member`: a region, or `region/replica`.
    pub fn charge<'a>(&'a self, member: &'a str, pop: &'a str) -> Charge<'a> {
        Charge { quota: self.quota, member, demand: self.demand, pop, counts: &self.counts }
    }
}

/// A report's keys as entries: several keys may fall to one budget (a bucket that was made anew).
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// An entry per budget.
    pub entries: Vec<Entry>,
    /// A draw per strict budget.
    pub draws: Draws,
    /// For each key of the report that is of no strict rule, its entry.
    entry_of_key: Vec<usize>,
    /// Workers of the POP that report keys; 0 where this report has none.
    pub workers: u32,
}

/// What a region knows between reports.
#[derive(Debug)]
pub struct Region {
    /// `region` or `region/replica`.
    member: String,
    name: String,
    terms: Terms,
    demands: Demands,
    hot: HotKeys,
    floors: Floors,
    heard: Heard,
    alone: Alone,
    pops: Pops,
    fleet: FleetSize,
    workers: Workers,
}

impl Region {
    /// The region that `member` (`region` or `region/replica`) serves, which has heard nothing yet and
    /// grants by `terms`.
    pub fn new(member: &str, terms: Terms) -> Self {
        Self {
            member: member.into(),
            name: region_of(member).into(),
            terms,
            demands: Demands::default(),
            hot: HotKeys::default(),
            heard: Heard::default(),
            alone: Alone::default(),
            pops: Pops::default(),
            fleet: FleetSize::default(),
            workers: Workers::default(),
            floors: Floors::default(),
        }
    }

    /// Takes in a report at `now`: what is to be charged for it.
    pub fn hear(&mut self, now: Time, report: &Report) -> Plan {
        self.pops.hear(now, &report.pop);
        self.fleet.hear(report.pops);
        let mut plan = Plan::default();
        if !report.keys.is_empty() {
            plan.workers = self.workers.hear(now, &report.pop, report.worker);
        }
        plan.entries.reserve_exact(report.keys.len());
        plan.entry_of_key.reserve_exact(report.keys.len());
        let mut known: BTreeMap<(&[u8], u16), usize> = BTreeMap::new();
        let mut source = SourceId { epoch: 0, pop: report.pop.clone() };
        for key in &report.keys {
            // Checked when the report was read; a key without its rule gets no entry and no grant.
            let Some(rule) = report.rules.get(usize::from(key.rule)) else { continue };
            if rule.sharing.strict {
                let claim = Claim { epoch: report.epoch(key), admitted: key.admitted, ahead: key.ahead };
                let id = BudgetId { rule: rule.name.clone(), value: key.value.clone() };
                let is_calendar = rule.sharing.calendar.is_some();
                let Terms { strict_lease_ns, calendar_lease_ns, .. } = self.terms;
                let lease_ns = if is_calendar { calendar_lease_ns } else { strict_lease_ns };
                plan.draws.add(plan.keys_len(), id, rule, lease_ns / 1_000, claim);
                continue;
            }
            let at = *known.entry((&key.value, key.rule)).or_insert_with(|| {
                let id = BudgetId { rule: rule.name.clone(), value: key.value.clone() };
                let (quota, sharing, demand) = (rule.quota, rule.sharing.clone(), Demand::default());
                plan.entries.push(Entry { id, quota, sharing, demand, own_milli: 0, counts: Vec::new() });
                plan.entries.len() - 1
            });
            let Some(entry) = plan.entries.get_mut(at) else { continue };
            source.epoch = report.epoch(key);
            let span_ns = u64::from(key.span_ms) * 1_000_000;
            let said = Said { asked: key.asked, recently: key.asked_recently, span_ns };
            entry.demand = self.demands.observe(now, &entry.id, &source, &said);
            entry.own_milli = self.demands.of_pop(now, &entry.id, &report.pop);
            entry.counts.push(Count {
                epoch: report.epoch(key),
                admitted: key.admitted,
                unconfirmed: key.unconfirmed,
                span_us: u64::from(key.span_ms) * 1_000,
                missing: u64::from(key.missing),
                made_ms: report.made_ms,
            });
            plan.entry_of_key.push(at);
        }
        plan
    }

    /// What is granted at `now` once the entries are charged: an allowance per entry.
    pub fn grant(&mut self, now: Time, entries: &[Entry], accounts: &[Account]) -> Vec<Allowance> {
        self.alone.end();
        let charged = entries.iter().zip(accounts);
        let grants = charged.map(|(entry, account)| {
            let last = Last { quota: entry.quota, deficit_ns: account.deficit_ns, at: now };
            self.heard.note(&entry.id, last);
            if account.members.iter().any(|member| self.is_replica(&member.name)) {
                self.demands.hear_of_others(now);
            }
            self.grant_one(now, entry, entry.quota, &entry.sharing, account)
        });
        grants.collect()
    }

    /// Whether it is another weir-sync of this region.
    fn is_replica(&self, member: &str) -> bool {
        region_of(member) == self.name && member != self.member
    }

    /// What is granted at `now` with the store out of reach: the entries are charged to this region's
    /// `share` in the name of `member` (see [`crate::alone`]). An allowance per key of `report`; nothing
    /// is lent in advance, since nothing can be debited.
    pub fn grant_alone(
        &mut self,
        now: Time,
        report: &Report,
        plan: &Plan,
        share: Share,
        member: &str,
    ) -> Vec<Allowance> {
        let grants = plan.entries.iter().map(|whole| {
            let entry = Entry {
                quota: share.of(whole.quota),
                sharing: share.of_sharing(&whole.sharing, whole.quota),
                ..whole.clone()
            };
            let account = self.alone.charge(now, &entry, self.heard.last(&entry.id), member, &report.pop);
            let last = Last { quota: entry.quota, deficit_ns: account.deficit_ns, at: now };
            self.heard.note_depth(&entry.id, last);
            self.grant_one(now, whole, entry.quota, &entry.sharing, &account)
        });
        let grants: Vec<_> = grants.collect();
        plan.of_keys(&grants, &[])
    }

    /// The allowance for an entry, of which there is `quota` to divide as `sharing` says; hot keys keep
    /// the entry's own, by which other regions know them.
    fn grant_one(
        &mut self,
        now: Time,
        entry: &Entry,
        quota: Quota,
        sharing: &Sharing,
        account: &Account,
    ) -> Allowance {
        let percent = sharing.floor(&self.name);
        let own_ns = self.floors.charge(now, &entry.id, quota, percent, account);
        let shared = Shared { quota, sharing, account, own_ns, own_milli: entry.own_milli };
        let divided = |was_hot| divide(&shared, &self.name, was_hot, &self.terms);
        let division = self.hot.divide(&entry.id, entry.quota, &entry.sharing, now, divided);
        self.demands.note(&entry.id, account.deficit_ns > quota.fill_ns(), division.heat == Heat::Warm);
        division.allowance()
    }

    /// The operator expects the fleet to have so many POPs; 0 is nothing said.
    pub fn expect_pops(&mut self, pops: u32) {
        self.fleet.expect(pops);
    }

    /// The store counts so many POPs at `now` that reported within `ttl_ns` nanoseconds.
    pub fn count_pops(&mut self, now: Time, pops: u32, ttl_ns: u64) {
        self.fleet.count(now, pops, ttl_ns);
    }

    /// The POPs that reported here within `ttl_ns` nanoseconds before `now`, as a part of the fleet as last known.
    pub fn share(&mut self, now: Time, ttl_ns: u64) -> Share {
        let here = self.pops(now, ttl_ns);
        self.fleet.known().map_or_else(|| Share::guess(here), |fleet| Share::new(here, fleet))
    }

    /// The POPs that reported here within `ttl_ns` nanoseconds before `now`.
    pub fn pops(&mut self, now: Time, ttl_ns: u64) -> u32 {
        self.pops.live(now, ttl_ns)
    }

    /// What the budgets heard of owe at `now`, rule by rule; while the region is alone, its local ones.
    pub fn owed(&self, now: Time) -> BTreeMap<String, Owed> {
        self.heard.owed(now, |id| self.alone.knows(id), self.alone.iter())
    }

    /// What the sender of `report` is to be told beside what it asked for: rule names, and grants.
    pub fn pushes(&mut self, now: Time, report: &Report) -> (Vec<String>, Vec<Pushed>) {
        let demands = &self.demands;
        self.hot.pushes(report, |id| demands.is_asked_of(now, id, &report.pop), now)
    }

    /// Hot keys that found no room, and those that had to make room for one that mattered more, since the start.
    pub fn hot_dropped(&self) -> u64 {
        self.hot.dropped()
    }

    /// What is noted of what POPs were told; at most [`crate::hot::TOLD_MAX`].
    pub fn told_len(&self) -> usize {
        self.hot.told_len()
    }

    /// The keys that are hot here, for the other regions; [`Region::are_listed`] says that the store has them.
    pub fn hot(&self, now: Time) -> Vec<HotKey> {
        self.hot.to_list(now)
    }

    /// The store has put these keys on the list that regions share.
    pub fn are_listed(&mut self, now: Time, keys: &[HotKey]) {
        self.hot.are_listed(keys, now);
    }

    /// Of the fleet's hot keys and those that rest here, those whose accounts this region has not seen
    /// lately: entries that charge nothing, to look at their budgets.
    pub fn peeks(&mut self, now: Time, fleet: &[HotKey]) -> Vec<Entry> {
        let unseen = self.hot.to_look_at(fleet, self.terms.interval_ns, now);
        let entry = |HotKey { id, quota, sharing, .. }| {
            let demand = self.demands.current(now, &id);
            Entry { id, quota, sharing, demand, own_milli: 0, counts: Vec::new() }
        };
        unseen.into_iter().map(entry).collect()
    }

    /// Budgets heard of lately, and how many of those are in debt.
    pub fn debts(&mut self, now: Time) -> (usize, usize) {
        self.demands.debts(now)
    }
}

impl Plan {
    /// The allowances of entries, and what was drawn, as allowances of the report's keys, in its order.
    /// With the store out of reach nothing was drawn, and strict keys are leased nothing.
    pub fn of_keys(&self, grants: &[Allowance], drawn: &[Drawn]) -> Vec<Allowance> {
        let of_entries = self.entry_of_key.iter().filter_map(|at| grants.get(*at).copied());
        self.draws.among(of_entries.collect(), drawn)
    }

    fn keys_len(&self) -> usize {
        self.entry_of_key.len() + self.draws.keys_len()
    }
}
