//! A weir-sync without its IO: reports and a store's answers come in, replies and questions to the store go out.
//!
//! [`Hub`] knows no clock, no store and no lock. Its driver says what time it is, and asks the store what the hub wants
//! to know. Each question is a value of its own type, which the driver hands back with the answer. So an answer cannot
//! go to another question, and no question is answered twice.
//!
//! | what happens | call | the question | its answer |
//! |---|---|---|---|
//! | a POP reports | [`Hub::report`] | [`Pending`]: charge, draw, register | [`Hub::settle`], which gives the reply |
//! | an interval is over | [`Hub::tick`] | [`Listing`]: which keys are hot | [`Hub::listed`] |
//! | others have hot keys | [`Hub::listed`] | [`Look`]: how their budgets stand | [`Hub::looked`] |
//! | a ban is new, or an interval over | [`Hub::share_bans`] | [`BanListing`]: what is banned | [`Hub::bans_listed`] |
//!
//! An operator bans a key with [`Hub::ban`], and resets it with [`Hub::forget`], after the store has forgotten its budget.
//! So what the store was asked before that, and answers later, may be of the budget that is gone, and is not passed on.
//!
//! A question that the store does not answer is dropped, except for a report: its POP waits, and is answered out of the
//! region's own share.

mod keys;

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use weir_wire::law::Law;
use weir_wire::messages::{AdmitRatio, Allowance, Reply, Report, Settled};
use weir_wire::time::Time;

use crate::alone::Share;
use crate::ban::{BannedKey, Bans};
use crate::budget::{Account, BudgetId};
use crate::claims::{KnownRule, Refusal, Speaker};
use crate::decisions::Decisions;
use crate::divide::Terms;
use crate::escrow::{Draw, Drawn};
use crate::figures::{Figures, Rules};
use crate::hot::HotKey;
use crate::plan::{Entry, Plan};
use crate::pops::{FleetSize, PopNote, Pops, Sender};
use crate::region::Region;
use crate::statuses::Statuses;

/// Which weir-sync this is, and its terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its name in the store: `region/replica`, or only the region if no other weir-sync serves it.
    pub member: String,
    /// The terms of every grant.
    pub terms: Terms,
    /// How long a POP that says nothing counts as alive, in nanoseconds.
    pub pop_ttl_ns: u64,
    /// How many POPs the fleet is expected to have, until the store or a POP says; 0 if that is not known.
    pub pops_expected: u32,
}

/// The state machine of a weir-sync.
#[derive(Debug)]
pub struct Hub {
    settings: Settings,
    region: Region,
    pops: Pops,
    fleet: FleetSize,
    bans: Bans,
    rules: Rules,
    decisions: Decisions,
    statuses: Statuses,
    /// Warm keys that were answered since the last interval began.
    warm_keys: usize,
    store_answered_at: Time,
    /// Whether the size of the fleet is a guess, and the driver was told so.
    is_guess_told: bool,
}

/// A report that waits for the store.
#[derive(Debug)]
#[must_use = "its POP waits for a reply"]
pub struct Pending {
    report: Report,
    plan: Plan,
    sender: Sender,
    /// How many POPs the store has, if it need not be told of the sender.
    registered: Option<u32>,
    has_bans: bool,
    refusals: Vec<Refusal>,
    asked_at: Time,
}

/// What the store made of a report. A part of it may be out of reach.
#[derive(Clone, Debug)]
pub struct Answers<E> {
    /// An account for each of [`Pending::entries`].
    pub accounts: Vec<Result<Account, E>>,
    /// What each of [`Pending::draws`] gave.
    pub drawn: Vec<Result<Drawn, E>>,
    /// POPs of the fleet, the sender among them.
    pub pops: Result<u32, E>,
}

/// What became of a report.
#[derive(Debug)]
pub struct Outcome<E> {
    /// The POP that reported.
    pub pop: String,
    /// What to answer.
    pub reply: Reply,
    /// What there is to count.
    pub facts: Facts,
    /// Why some of the report's counts are not charged, if they are not.
    pub error: Option<E>,
}

/// What a report and its reply were, for metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// A newer report of the same worker was here before.
    pub is_stale: bool,
    /// How long before the report the oldest unconfirmed token was admitted, in milliseconds.
    pub unconfirmed_ms: Option<u32>,
    /// How far each charged budget is from full, in bursts; beyond 1 is debt.
    pub deficits: Vec<f64>,
    /// Tokens that were charged or drawn.
    pub tokens: u64,
    /// Budgets with an admit ratio below one.
    pub limiting: u64,
    /// What the report claimed and was refused, by reason.
    pub refused: Vec<Refusal>,
    /// The POPs that are taken for the whole fleet, because its size is not known. Said only when the guess begins.
    pub guess: Option<u32>,
}

/// What an interval brings.
#[derive(Debug)]
pub struct Tick {
    /// To be put on the list that regions share.
    pub listing: Listing,
    /// To be noted in the store: what those POPs run that were heard since the last interval.
    pub notes: Vec<PopNote>,
    /// Keys that are hot here.
    pub hot_keys: usize,
    /// Hot keys that found no room, or had to make room for one that mattered more, since the start.
    pub hot_dropped: u64,
    /// Warm keys that were answered in the interval that is over.
    pub warm_keys: usize,
}

/// Something to ask of the store, about each of these items.
#[derive(Debug)]
pub struct Query<T> {
    items: Vec<T>,
    asked_at: Time,
}

/// The keys that are hot here, to be put on the list that regions share.
pub type Listing = Query<HotKey>;
/// Budgets to look at, because another region names them or because they rest here. Charged for no POP, these take
/// nothing, but their accounts tell how the budgets stand.
pub type Look = Query<Entry>;
/// What was banned here, to be put on the list that regions share.
pub type BanListing = Query<BannedKey>;

impl Hub {
    /// A weir-sync that has heard nothing yet.
    pub fn new(settings: Settings) -> Self {
        let mut fleet = FleetSize::default();
        fleet.hear(settings.pops_expected);
        Self {
            region: Region::new(&settings.member, settings.terms),
            pops: Pops::new(settings.pop_ttl_ns),
            fleet,
            bans: Bans::default(),
            rules: Rules::default(),
            decisions: Decisions::default(),
            statuses: Statuses::default(),
            warm_keys: 0,
            store_answered_at: Time::ZERO,
            is_guess_told: false,
            settings,
        }
    }

    /// The fleet has these rules, of all versions of the rule set that are kept, the newest being `newest`; claims of others
    /// are refused from now on, or wait if they are of a newer one.
    pub fn know_rules(&mut self, newest: u64, rules: Vec<KnownRule>) {
        self.region.claims.know_rules(newest, rules);
    }

    /// A POP's report arrives at `now`, which is `unix_us` microseconds since 1970.
    pub fn report(&mut self, now: Time, unix_us: u64, report: Report) -> Pending {
        self.report_of(Speaker::Pop, now, unix_us, report)
    }

    /// A report of `speaker` arrives at `now`, which is `unix_us` microseconds since 1970.
    pub fn report_of(&mut self, speaker: Speaker, now: Time, unix_us: u64, mut report: Report) -> Pending {
        let sender = self.pops.hear(now, &report);
        self.fleet.hear(report.pops);
        self.rules.hear(now, &report.rules);
        self.region.claims.check_bans(now, &mut report);
        let claims = &self.region.claims;
        self.decisions.hear(now, &report, |rule| claims.may_have(rule));
        self.statuses.hear(now, unix_us, &report);
        let has_bans = self.bans.hear(now, &report);
        let mut plan = self.region.hear_from(speaker, now, &report);
        plan.date(unix_us);
        for (key, asked) in report.keys.iter_mut().zip(mem::take(&mut plan.asked)) {
            key.asked_recently = key.asked_recently.min(asked);
        }
        let refusals = self.region.claims.refusals();
        // A report of no key asks whether the store is there, and how many POPs it has.
        let registered = self.pops.registered(now, &report.pop).filter(|_| !plan.is_empty());
        Pending { report, plan, sender, registered, has_bans, refusals, asked_at: now }
    }

    /// An operator bans the key `id` for so long, whatever its rule; this replaces what was known of it, a longer ban, too. The
    /// other regions are to hear of it soon ([`Hub::share_bans`]).
    pub fn ban(&mut self, now: Time, id: BudgetId, for_ms: u32) {
        self.bans.order(now, id, for_ms);
    }

    /// An operator resets the key `id`, whose budget the store has forgotten: nothing of it is known from now on, and POPs
    /// are told to forget it, and that it is not banned. The other regions are to hear of it soon ([`Hub::share_bans`]).
    pub fn forget(&mut self, now: Time, id: BudgetId) {
        self.region.forget(&id);
        self.bans.reset(now, id);
    }

    /// The POPs that report here: what each runs, and for how long it has been silent, in nanoseconds.
    pub fn pops(&mut self, now: Time) -> Vec<(PopNote, u64)> {
        self.pops.all(now)
    }

    /// These are the bans that operators' orders ask for, each with its end in milliseconds since 1970, which are `date_ms` at `now`:
    /// POPs are told of what is missing, and to forget the keys whose orders were taken back.
    pub fn stand_by(&mut self, now: Time, date_ms: u64, orders: &[(BudgetId, u64)]) {
        for id in self.bans.stand_by(now, date_ms, orders) {
            self.region.forget(&id);
        }
    }

    /// Until when `id` is banned at all POPs, as far as is known here.
    pub fn banned_until(&self, id: &BudgetId) -> Option<Time> {
        self.bans.banned_until(id)
    }

    /// The laws by which POPs' strict rules of this name are known to refill.
    pub fn laws(&self, rule: &str) -> Vec<Law> {
        self.rules.law(rule).into_iter().chain(self.region.claims.laws(rule)).collect()
    }

    /// The store has answered what `pending` asks, or has failed. Each key without an account goes on as if the store were
    /// gone. POPs are told to run version `rule_set`, 0 for none.
    pub fn settle<E: Clone>(
        &mut self,
        now: Time,
        rule_set: u64,
        pending: Pending,
        answers: Answers<E>,
    ) -> Outcome<E> {
        let Pending { report, plan, sender, registered, refusals, asked_at, .. } = pending;
        if let Some(pops) = answers.pops.as_ref().ok().filter(|_| registered.is_none()) {
            self.fleet.count(now, *pops, self.settings.pop_ttl_ns);
            self.pops.register(now, &report.pop, *pops);
        }
        let share = self.share(now);
        let guess = self.note_guess(share);
        let mut facts = Facts { refused: refusals, ..Facts::of(&report, sender, guess) };
        let error = answers.error(&plan);
        let Answers { accounts, drawn, .. } = answers;
        if error.is_none() || accounts.iter().any(Result::is_ok) || drawn.iter().any(Result::is_ok) {
            self.store_answered_at = now;
        }
        for (draw, _) in plan.draws.iter().zip(&drawn).filter(|(_, drawn)| drawn.is_err()) {
            self.region.claims.take_back_costs(&report.pop, draw);
        }
        let charged = plan.entries.iter().zip(&accounts).filter(|(_, account)| account.is_ok());
        self.region.claims.settle(&report.pop, charged.map(|(entry, _)| entry));
        let grant = |(entry, account): (&Entry, &Result<Account, E>)| match account {
            Ok(account) => {
                if self.bans.is_forgotten_since(&entry.id, asked_at) {
                    return Allowance::Warm;
                }
                self.region.grant_one(now, entry, account)
            }
            Err(_) => self.region.grant_alone(now, &report.pop, entry, share),
        };
        let allowances: Vec<Allowance> = plan.entries.iter().zip(&accounts).map(grant).collect();
        facts.charge(&plan.entries, &accounts, &drawn, &allowances);
        self.note_uses(now, asked_at, &report.pop, &plan, &accounts, &drawn);
        let uncharged =
            plan.uncharged.iter().map(|entry| self.region.grant_uncharged(now, &report.pop, entry, share));
        let grants = plan.of_keys(&allowances, &uncharged.collect::<Vec<_>>(), &drawn);
        // A report without keys asks the store for no more than to note its POP.
        let settled =
            if plan.is_empty() && error.is_some() { Settled::None } else { plan.settled(&accounts, &drawn) };
        self.warm_keys += grants.iter().filter(|allowance| matches!(allowance, Allowance::Warm)).count();
        let is_repeated = self.pops.answer(&report);
        let (mut rules, pushed) = self.region.pushes_beside(now, &report, is_repeated, plan.asked());
        let bans = self.bans.tell(now, &report, is_repeated, &mut rules);
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
        Outcome { pop: report.pop, reply, facts, error }
    }

    /// An interval is over.
    pub fn tick(&mut self, now: Time) -> Tick {
        let hot = self.region.hot.to_list(now);
        Tick {
            notes: self.pops.news(now),
            hot_keys: hot.iter().filter(|key| !key.rests).count(),
            hot_dropped: self.region.hot.dropped(),
            warm_keys: mem::take(&mut self.warm_keys),
            listing: Query { items: hot, asked_at: now },
        }
    }

    /// The store has put `listing` on the list that regions share, which is `fleet` now. Returns what to look at.
    pub fn listed(&mut self, now: Time, listing: Listing, fleet: &[HotKey]) -> Option<Look> {
        let Query { items: mine, .. } = listing;
        self.store_answered_at = now;
        self.region.hot.are_listed(now, &mine);
        let items = self.region.peeks(now, fleet);
        (!items.is_empty()).then_some(Query { items, asked_at: now })
    }

    /// The store has said how the budgets of `look` stand, as far as they are in reach: POPs are told with their next
    /// replies.
    pub fn looked<E>(&mut self, now: Time, look: Look, accounts: &[Result<Account, E>]) {
        let Query { items, asked_at } = look;
        for (entry, account) in items.iter().zip(accounts) {
            if let Ok(account) = account
                && !self.bans.is_forgotten_since(&entry.id, asked_at)
            {
                self.region.grant_one(now, entry, account);
                self.region.note_look(now, entry, account);
            }
        }
    }

    /// The bans that other regions have to hear of. If the store fails, the next call returns them again.
    pub fn share_bans(&mut self, now: Time) -> BanListing {
        Query { items: self.bans.to_share(now), asked_at: now }
    }

    /// The store has put `listing` on the list of bans that regions share, which is `fleet` now.
    pub fn bans_listed(&mut self, now: Time, listing: BanListing, fleet: &[BannedKey]) {
        let Query { items: mine, .. } = listing;
        for id in self.bans.merge(now, &mine, fleet) {
            self.region.forget(&id);
        }
    }

    /// How things stand.
    pub fn figures(&mut self, now: Time) -> Figures {
        let (budgets, in_debt) = self.region.demands.debts(now);
        let share = self.share(now);
        Figures {
            budgets,
            in_debt,
            rules: self.rules.figures(now, self.region.owed(now), share.fleet(), &self.settings.terms),
            pops_here: self.pops.live(now),
            share,
            store_silence_ns: now.nanos_since(self.store_answered_at),
        }
    }

    /// The POPs that report here, as a part of the fleet as last known.
    fn share(&mut self, now: Time) -> Share {
        let here = self.pops.live(now);
        self.fleet.known().map_or_else(|| Share::guess(here), |fleet| Share::new(here, fleet))
    }

    /// The size of the fleet, if it is a guess by now and was none before.
    fn note_guess(&mut self, share: Share) -> Option<u32> {
        let was_told = mem::replace(&mut self.is_guess_told, share.is_guess());
        (share.is_guess() && !was_told).then_some(share.fleet())
    }
}

impl Pending {
    /// The POP that reports: it is to be registered as alive, unless it is [registered](Self::registered).
    pub fn pop(&self) -> &str {
        &self.report.pop
    }

    /// The report itself, without the bans that its POP may not announce.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// How many POPs the store has counted, if it was told of this one a moment ago: then that is the answer.
    pub fn registered(&self) -> Option<u32> {
        self.registered
    }

    /// What is to be charged.
    pub fn entries(&self) -> &[Entry] {
        &self.plan.entries
    }

    /// What is to be drawn.
    pub fn draws(&self) -> &[Draw] {
        &self.plan.draws
    }

    /// Whether the report brings bans that the other regions are to hear of soon ([`Hub::share_bans`]).
    pub fn has_bans(&self) -> bool {
        self.has_bans
    }
}

impl<E: Clone> Answers<E> {
    /// Nothing but `error`, for what `pending` asks.
    pub fn failed(pending: &Pending, error: E) -> Self {
        Self {
            accounts: pending.entries().iter().map(|_| Err(error.clone())).collect(),
            drawn: pending.draws().iter().map(|_| Err(error.clone())).collect(),
            pops: Err(error),
        }
    }

    /// Why not all was charged or drawn, if so. Whether the POP was registered only matters if there was nothing else to
    /// do.
    fn error(&self, plan: &Plan) -> Option<E> {
        let pops = self.pops.as_ref().err().filter(|_| plan.is_empty());
        let failed = self.accounts.iter().filter_map(|account| account.as_ref().err());
        failed.chain(self.drawn.iter().filter_map(|drawn| drawn.as_ref().err())).chain(pops).next().cloned()
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
        entries: &[Entry],
        accounts: &[Result<Account, E>],
        drawn: &[Result<Drawn, E>],
        granted: &[Allowance],
    ) {
        let charged =
            entries.iter().zip(accounts).filter_map(|(entry, account)| Some((entry, account.as_ref().ok()?)));
        self.deficits.reserve(entries.len());
        for (entry, account) in charged {
            self.deficits.push(account.deficit_ns as f64 / entry.quota.fill_ns() as f64);
            self.tokens = self.tokens.saturating_add(account.charged);
        }
        let given = drawn.iter().flatten().map(|drawn| drawn.given);
        self.tokens = given.fold(self.tokens, u64::saturating_add);
        let is_limiting =
            |allowance: &&Allowance| allowance.grant().is_some_and(|grant| grant.ratio < AdmitRatio::ONE);
        self.limiting = granted.iter().filter(is_limiting).count() as u64;
    }
}

impl<T> Query<T> {
    /// What the store is asked about.
    pub fn items(&self) -> &[T] {
        &self.items
    }
}
