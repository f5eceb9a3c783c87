//! A weir-sync without its IO: reports and a store's answers come in, replies and questions to the store go out.
//!
//! [`Hub`] has no clock, no store and no lock. Its driver passes the time as an argument, and sends the hub's
//! questions to the store. Each question is a value of its own type, which the driver hands back with the
//! answer. So an answer cannot be applied to another question, and no question is answered twice.
//!
//! | event | call | question | its answer |
//! |---|---|---|---|
//! | a POP reports | [`Hub::report`] | [`Pending`]: charge, acquire, register | [`Hub::settle`]: the reply |
//! | an interval is over | [`Hub::tick`] | [`Listing`]: the hot keys | [`Hub::listed`] |
//! | others have hot keys | [`Hub::listed`] | [`Look`]: accounts of their budgets | [`Hub::looked`] |
//! | a ban is new, or an interval over | [`Hub::share_bans`] | [`BanListing`]: the banned keys | [`Hub::bans_listed`] |
//!
//! [`Hub::ban`] bans a key for an operator. [`Hub::forget`] resets one, once the store has forgotten its budget. An
//! answer to a question asked before that may be about the forgotten budget, and is discarded.
//!
//! A question that the store does not answer is dropped, except for a report: its POP waits for a reply, and
//! gets one from the region's own share.

mod operators;
mod plan;

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use weir_protocol::messages::{AdmitRatio, Allowance, Reply, Report, Settled};
use weir_protocol::time::Time;

pub use crate::ban::BanListing;
use crate::ban::{BannedKey, Bans};
use crate::budget::{Account, BudgetId, PlanEntry};
use crate::decisions::Decisions;
use crate::divide::GrantSettings;
use crate::escrow::{AcquireRequest, AcquireResult};
use crate::hot::HotKey;
use crate::id::Names;
use crate::offline::{LastState, Share};
use crate::pops::{FleetSize, PopRuleSet, Pops, Sender, Statuses};
use crate::report_limits::{KnownRule, Refusal, ReportLimits, ReporterKind};
use crate::top_keys::TopKeys;
use operators::LiveRules;
pub use operators::{BudgetQuery, BudgetState, Figures};
use plan::{Grants, Plan};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSettings {
    /// Name of this weir-sync in the store: `region/replica`, or only the region if no other weir-sync serves it.
    pub replica: String,
    pub terms: GrantSettings,
    pub pop_ttl_ns: u64,
    /// Expected number of POPs in the fleet, used until the store or a POP reports one; 0 if unknown.
    pub pops_expected: u32,
}

#[derive(Debug)]
pub struct Hub {
    settings: HubSettings,
    pops: Pops,
    fleet: FleetSize,
    names: Names,
    limits: ReportLimits,
    grants: Grants,
    bans: Bans,
    // For operators.
    rules: LiveRules,
    pub decisions: Decisions,
    pub statuses: Statuses,
    pub top_keys: TopKeys,
    /// Warm keys in replies since the current interval began.
    warm_keys: usize,
    store_answered_at: Time,
    /// True if the fleet's size is a guess and the driver was notified of that.
    is_guess_reported: bool,
}

/// A report that waits for the store.
#[derive(Debug)]
#[must_use = "its POP waits for a reply"]
pub struct Pending {
    /// Without the bans that its POP may not announce.
    pub report: Report,
    plan: Plan,
    sender: Sender,
    /// Number of POPs in the store; set if the sender need not be registered again.
    pub registered: Option<u32>,
    /// True if the report has bans that the other regions should receive soon ([`Hub::share_bans`]).
    pub has_bans: bool,
    refusals: Vec<Refusal>,
    asked_at: Time,
}

/// The store's answers to a report. A part of the store may be out of reach.
#[derive(Clone, Debug)]
pub struct StoreReplies<E> {
    pub accounts: Vec<Result<Account, E>>,
    pub acquired: Vec<Result<AcquireResult, E>>,
    /// Number of POPs in the fleet, including the sender.
    pub pops: Result<u32, E>,
}

#[derive(Debug)]
pub struct ReportResult<E> {
    pub pop: String,
    pub reply: Reply,
    pub facts: Facts,
    /// Reason why some of the report's counts are not charged, or `None` if all are.
    pub error: Option<E>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// True if a newer report of the same worker arrived before.
    pub is_stale: bool,
    /// Age of the oldest unconfirmed token at the time of the report, in milliseconds.
    pub unconfirmed_ms: Option<u32>,
    /// Deficit of each charged budget, in bursts; above 1 it is debt.
    pub deficits: Vec<f64>,
    pub tokens: u64,
    /// Number of budgets with an admit ratio below one.
    pub limiting: u64,
    pub refused: Vec<Refusal>,
    /// Number of POPs assumed to be the whole fleet because its size is unknown. Set only when the guess begins.
    pub guess: Option<u32>,
}

#[derive(Debug)]
pub struct Tick {
    /// Question to the store: the list of hot keys that regions share.
    pub listing: Listing,
    /// Rule sets of the POPs that reported since the last interval, to be stored.
    pub rule_sets: Vec<PopRuleSet>,
    pub hot_keys: usize,
    /// Number of hot keys since the start that found no room or were replaced by a more important one.
    pub hot_dropped: u64,
    pub warm_keys: usize,
}

#[derive(Debug)]
pub struct Query<T> {
    pub items: Vec<T>,
    asked_at: Time,
}

/// The keys that are hot here, to be added to the list that regions share.
pub type Listing = Query<HotKey>;
/// Budgets to read, because another region lists them or they rest here: charges of nothing, for no POP.
pub type Look = Query<PlanEntry>;

impl Hub {
    pub fn new(settings: HubSettings) -> Self {
        let mut fleet = FleetSize::default();
        fleet.observe(settings.pops_expected);
        Self {
            pops: Pops::new(settings.pop_ttl_ns),
            fleet,
            names: Names::default(),
            limits: ReportLimits::default(),
            grants: Grants::new(&settings.replica, settings.terms),
            bans: Bans::default(),
            rules: LiveRules::default(),
            decisions: Decisions::default(),
            statuses: Statuses::default(),
            top_keys: TopKeys::default(),
            warm_keys: 0,
            store_answered_at: Time::ZERO,
            is_guess_reported: false,
            settings,
        }
    }

    /// Sets the rules of all kept versions; `newest` is the latest. Claims under other rules are refused, or wait.
    pub fn set_rules(&mut self, newest: u64, rules: Vec<KnownRule>) {
        self.limits.set_rules(newest, rules);
    }

    /// Handles a report of `reporter` that arrives at `now`, which is `unix_us` microseconds since 1970.
    pub fn report(&mut self, reporter: ReporterKind, now: Time, unix_us: u64, mut report: Report) -> Pending {
        let sender = self.pops.observe(now, &report);
        self.fleet.observe(report.pops);
        self.rules.observe(now, &report.rules);
        self.limits.check_bans(now, &mut report);
        self.decisions.observe(now, &report, |rule| self.limits.may_have(rule));
        self.statuses.observe(now, unix_us, &report);
        let has_bans = self.bans.observe(now, &report);
        let mut plan = self.plan(reporter, now, unix_us, &report);
        for (key, asked) in report.keys.iter_mut().zip(mem::take(&mut plan.asked)) {
            key.asked_recently = key.asked_recently.min(asked);
        }
        let refusals = self.limits.refusals();
        // A report without keys reads the number of POPs, and shows that the store is in reach.
        let registered = self.pops.registered(now, &report.pop).filter(|_| !plan.is_empty());
        Pending { report, plan, sender, registered, has_bans, refusals, asked_at: now }
    }

    /// Bans the key `id` for `for_ms` milliseconds, whatever its rule, in place of any earlier ban. [`Hub::share_bans`]
    /// should follow soon, to inform the other regions.
    pub fn ban(&mut self, now: Time, id: BudgetId, for_ms: u32) {
        self.bans.order(now, id, for_ms);
    }

    /// Resets the key `id`, after the store has forgotten its budget: clears all state of it here, and lifts its ban.
    /// [`Hub::share_bans`] should follow soon, to inform the other regions.
    pub fn forget(&mut self, now: Time, id: BudgetId) {
        self.forget_here(&id);
        self.bans.reset(now, id);
    }

    /// Clears all state of the key `id` here, except its ban.
    fn forget_here(&mut self, id: &BudgetId) {
        self.grants.forget(id);
        self.limits.forget(id);
        self.top_keys.forget(id);
    }

    /// Rule sets of the POPs that report here, each with the time since its last report in nanoseconds.
    pub fn pops(&mut self, now: Time) -> Vec<(PopRuleSet, u64)> {
        self.pops.all(now)
    }

    /// Sets the bans of operators' overrides, each with its end in milliseconds since 1970; `date_ms` is `now` in that
    /// unit. Keys whose overrides were withdrawn are reset.
    pub fn stand_by(&mut self, now: Time, date_ms: u64, overrides: &[(BudgetId, u64)]) {
        for id in self.bans.stand_by(now, date_ms, overrides) {
            self.forget_here(&id);
        }
    }

    /// Applies the store's answers to `pending`, and returns the reply. A key without an account is granted
    /// from the region's own share. `rule_set` is the version that POPs should run, 0 for none.
    pub fn settle<E: Clone>(
        &mut self,
        now: Time,
        rule_set: u64,
        pending: Pending,
        answers: StoreReplies<E>,
    ) -> ReportResult<E> {
        let Pending { report, plan, sender, registered, refusals, asked_at, .. } = pending;
        if let Some(pops) = answers.pops.as_ref().ok().filter(|_| registered.is_none()) {
            self.fleet.count(now, *pops, self.settings.pop_ttl_ns);
            self.pops.register(now, &report.pop, *pops);
        }
        let share = self.share(now);
        let guess = self.record_guess(share);
        let mut facts = Facts { refused: refusals, ..Facts::of(&report, sender, guess) };
        let error = answers.error(&plan);
        let StoreReplies { mut accounts, acquired, .. } = answers;
        share.limit_fan_outs(accounts.iter_mut().flatten());
        if error.is_none() || accounts.iter().any(Result::is_ok) || acquired.iter().any(Result::is_ok) {
            self.store_answered_at = now;
        }
        for (acquire, _) in plan.acquires.iter().zip(&acquired).filter(|(_, acquired)| acquired.is_err()) {
            self.limits.take_back_costs(&report.pop, acquire);
        }
        let charged = plan.entries.iter().zip(&accounts).filter(|(_, account)| account.is_ok());
        self.limits.settle(&report.pop, charged.map(|(entry, _)| entry));
        let grant = |(entry, account): (&PlanEntry, &Result<Account, E>)| match account {
            Ok(account) => {
                if self.bans.is_forgotten_since(&entry.id, asked_at) {
                    return Allowance::Warm;
                }
                self.grants.of_account(now, entry, account)
            }
            Err(_) => self.grants.offline(now, &report.pop, entry, share),
        };
        let allowances: Vec<Allowance> = plan.entries.iter().zip(&accounts).map(grant).collect();
        facts.charge(&plan.entries, &accounts, &acquired, &allowances);
        self.record_uses(now, asked_at, &report.pop, &plan, &accounts, &acquired);
        let uncharged = plan.uncharged.iter().map(|entry| self.grants.uncharged(now, &report.pop, entry, share));
        let grants = plan.of_keys(&allowances, &uncharged.collect::<Vec<_>>(), &acquired);
        // A report without keys asks the store only to register its POP.
        let settled =
            if plan.is_empty() && error.is_some() { Settled::None } else { plan.settled(&accounts, &acquired) };
        self.warm_keys += grants.iter().filter(|allowance| matches!(allowance, Allowance::Warm)).count();
        let is_repeated = self.pops.answer(&report);
        let Grants { hot, demands, .. } = &mut self.grants;
        let is_asked = |id: &BudgetId| demands.has_demand(now, id, &report.pop);
        let (mut rules, pushed) = hot.pushes(now, &report, is_repeated, plan.asked(), is_asked);
        let bans = self.bans.push(now, &report, is_repeated, &mut rules);
        let reply = Reply {
            sequence: report.sequence,
            pops: share.fleet(),
            is_guess: share.is_guess(),
            settled,
            grants,
            rule_set,
            rules,
            pushed,
            bans,
            workers: sender.busy,
        };
        ReportResult { pop: report.pop, reply, facts, error }
    }

    pub fn tick(&mut self, now: Time) -> Tick {
        let hot = self.grants.hot.to_list(now);
        Tick {
            rule_sets: self.pops.news(now),
            hot_keys: hot.iter().filter(|key| !key.rests).count(),
            hot_dropped: self.grants.hot.dropped,
            warm_keys: mem::take(&mut self.warm_keys),
            listing: Query { items: hot, asked_at: now },
        }
    }

    /// Applies the store's answer to `listing`, the list that regions share. Returns the budgets to read, if any.
    pub fn listed(&mut self, now: Time, listing: Listing, fleet: &[HotKey]) -> Option<Look> {
        let Query { items: mine, .. } = listing;
        self.store_answered_at = now;
        self.grants.hot.are_listed(now, &mine);
        let items = self.grants.peeks(now, fleet);
        (!items.is_empty()).then_some(Query { items, asked_at: now })
    }

    /// Applies the accounts of those budgets that could be read. POPs are sent grants for them with their next replies.
    pub fn looked<E>(&mut self, now: Time, look: Look, mut accounts: Vec<Result<Account, E>>) {
        let Query { items, asked_at } = look;
        self.share(now).limit_fan_outs(accounts.iter_mut().flatten());
        for (entry, account) in items.iter().zip(&accounts) {
            if let Ok(account) = account
                && !self.bans.is_forgotten_since(&entry.id, asked_at)
            {
                self.grants.of_account(now, entry, account);
                self.top_keys.look(&entry.id, LastState::of(entry, account, now));
            }
        }
    }

    /// Returns the bans to send to the other regions. If the store fails, the next call returns them again.
    pub fn share_bans(&mut self, now: Time) -> BanListing {
        self.bans.to_share(now)
    }

    #[allow(clippy::needless_pass_by_value, reason = "no question is answered twice")]
    pub fn bans_listed(&mut self, now: Time, listing: BanListing, fleet: &[BannedKey]) {
        for id in self.bans.merge(now, &listing, fleet) {
            self.forget_here(&id);
        }
    }

    pub fn figures(&mut self, now: Time) -> Figures {
        let (budgets, in_debt) = self.grants.demands.debts(now);
        let share = self.share(now);
        Figures {
            budgets,
            in_debt,
            rules: self.rules.figures(now, self.grants.owed(now), share.fleet(), &self.settings.terms),
            pops_here: self.pops.live(now),
            share,
            store_silence_ns: now.nanos_since(self.store_answered_at),
        }
    }

    fn share(&mut self, now: Time) -> Share {
        let here = self.pops.live(now);
        self.fleet.known().map_or_else(|| Share::guess(here), |fleet| Share::new(here, fleet))
    }

    /// Returns the size of the fleet if it has become a guess since the last call.
    fn record_guess(&mut self, share: Share) -> Option<u32> {
        let was_reported = mem::replace(&mut self.is_guess_reported, share.is_guess());
        (share.is_guess() && !was_reported).then_some(share.fleet())
    }
}

impl Pending {
    pub fn entries(&self) -> &[PlanEntry] {
        &self.plan.entries
    }

    pub fn acquires(&self) -> &[AcquireRequest] {
        &self.plan.acquires
    }
}

impl<E: Clone> StoreReplies<E> {
    pub fn failed(pending: &Pending, error: E) -> Self {
        Self {
            accounts: pending.entries().iter().map(|_| Err(error.clone())).collect(),
            acquired: pending.acquires().iter().map(|_| Err(error.clone())).collect(),
            pops: Err(error),
        }
    }

    /// First error of a charge or acquire. A failed registration matters only if there was nothing else to do.
    fn error(&self, plan: &Plan) -> Option<E> {
        let pops = self.pops.as_ref().err().filter(|_| plan.is_empty());
        let failed = self.accounts.iter().filter_map(|account| account.as_ref().err());
        failed.chain(self.acquired.iter().filter_map(|acquired| acquired.as_ref().err())).chain(pops).next().cloned()
    }
}

impl Facts {
    fn of(report: &Report, sender: Sender, guess: Option<u32>) -> Self {
        let unconfirmed = report.keys.iter().filter(|key| key.unconfirmed > 0);
        let unconfirmed_ms = unconfirmed.map(|key| key.span_ms).max();
        Self { is_stale: sender.is_stale, unconfirmed_ms, guess, ..Self::default() }
    }

    #[allow(clippy::cast_precision_loss, reason = "to look at")]
    fn charge<E>(
        &mut self,
        entries: &[PlanEntry],
        accounts: &[Result<Account, E>],
        acquired: &[Result<AcquireResult, E>],
        granted: &[Allowance],
    ) {
        let charged = entries.iter().zip(accounts).filter_map(|(entry, account)| Some((entry, account.as_ref().ok()?)));
        self.deficits.reserve(entries.len());
        for (entry, account) in charged {
            self.deficits.push(account.deficit_ns as f64 / entry.quota.fill_ns() as f64);
            self.tokens = self.tokens.saturating_add(account.charged);
        }
        let given = acquired.iter().flatten().map(|acquired| acquired.given);
        self.tokens = given.fold(self.tokens, u64::saturating_add);
        let is_limiting = |allowance: &&Allowance| allowance.grant().is_some_and(|grant| grant.ratio < AdmitRatio::ONE);
        self.limiting = granted.iter().filter(is_limiting).count() as u64;
    }
}
