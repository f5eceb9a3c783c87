//! The exchange: a report comes in, its counts are charged, an allowance per key goes out.
//!
//! With the store out of reach the allowances come out of the region's own share (see
//! [`weir_budget::alone`]), and nothing is confirmed: what is admitted meanwhile is charged by the next
//! report that reaches the store.
//!
//! Locks are held for a moment each, never two at once and never while something is awaited.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use weir_budget::alone::Share;
use weir_budget::budget::Account;
use weir_budget::divide::Terms;
use weir_budget::escrow::Drawn;
use weir_budget::region::{Entry, Plan, Region};
use weir_limiter::time::Time;
use weir_limiter::wire::{AdmitRatio, Allowance, Message, Reply, Report, WireError};

use crate::boxed::Boxes;
use crate::figures::Figures;
use crate::fleet::{Seen, Workers};
use crate::metrics::{Kind, Metrics, Outcome};
use crate::rules::RuleSets;
use crate::sequences::Sequences;
use crate::store::{Batch, Store, StoreError};

/// Who a weir-sync is, and how it grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The region whose POPs report here; it may have other weir-syncs too.
    pub region: String,
    /// Tells it from the region's others.
    pub replica: String,
    /// What every grant goes by.
    pub terms: Terms,
    /// How long a POP that says nothing counts as alive.
    pub pop_ttl: Duration,
    /// How many POPs the fleet is expected to have, until the store or a POP says; 0 if that is not known.
    pub pops_expected: u32,
}

impl Place {
    /// Its name in the store; what comes before the slash is the region's.
    pub fn member(&self) -> String {
        format!("{}/{}", self.region, self.replica)
    }
}

/// What the store made of a report.
struct Settled {
    accounts: Vec<Account>,
    drawn: Vec<Drawn>,
}

/// Answers reports.
pub struct Exchange {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    figures: Figures,
    /// The rule set that POPs are told to run.
    pub rules: Arc<RuleSets>,
    place: Place,
    member: String,
    state: Mutex<Region>,
    sequences: Mutex<Sequences>,
    boxed: Boxes,
    workers: Mutex<Workers>,
    /// Whether it was logged that nobody knows how many POPs there are, and nobody has said it since.
    is_guess_told: AtomicBool,
    /// Zero of the clock that demand is measured by.
    started: Instant,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("member", &self.member).finish_non_exhaustive()
    }
}

impl Exchange {
    /// Charges `store` and grants as `place` says.
    pub fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>, place: Place) -> Self {
        Self {
            rules: Arc::new(RuleSets::new(Arc::clone(&store), metrics.rule_set.clone())),
            store,
            metrics,
            figures: Figures::default(),
            state: Mutex::new(region(&place)),
            member: place.member(),
            sequences: Mutex::default(),
            boxed: Boxes::default(),
            workers: Mutex::default(),
            is_guess_told: AtomicBool::new(false),
            started: Instant::now(),
            place,
        }
    }

    /// The reply to the report in `body`. Fails where `body` is no report.
    pub async fn answer(&self, body: &[u8]) -> Result<Vec<u8>, WireError> {
        let report = Report::decode(body).inspect_err(|_| self.count("malformed"))?;
        let now = self.now();
        if !lock(&self.sequences).is_fresh(now, &report.pop, report.worker, report.sequence) {
            self.metrics.reports_stale.inc();
        }
        lock(&self.workers).hear(now, &report);
        self.figures.hear(now, &report.rules);
        self.boxed.hear(now, &report);
        let mut plan = lock(&self.state).hear(now, &report);
        plan.draws.date(unix_us());
        let settled = self.settle(&report, &mut plan).await.ok();
        Ok(self.reply(&report, &plan, settled.as_ref()).encode())
    }

    /// Hears from the other regions, and tells them: which keys are hot, which rule set is current, which the POPs
    /// run.
    pub async fn listen(&self) -> Result<(), StoreError> {
        let (hot, rules, noted) = tokio::join!(self.listen_hot(), self.rules.listen(), self.note_pops());
        hot.and(rules).and(noted)
    }

    /// Every POP of the fleet, and the version of the rule set that is current; 0 if there is none.
    pub async fn fleet(&self) -> Result<(u64, Vec<Seen>), StoreError> {
        let (version, seen) = tokio::join!(self.store.rules_version(), self.store.fleet());
        Ok((version?.unwrap_or_default(), seen?))
    }

    async fn note_pops(&self) -> Result<(), StoreError> {
        let news = lock(&self.workers).news(self.now());
        self.store.note_pops(&self.member, &news).await
    }

    /// Hears which keys are hot in other regions, and looks at the budgets of those that this region
    /// has not seen lately, so that its POPs are told with their next reply.
    async fn listen_hot(&self) -> Result<(), StoreError> {
        self.figures.interval_over(&self.metrics.region);
        let (mine, dropped) = {
            let state = lock(&self.state);
            (state.hot(self.now()), state.hot_dropped())
        };
        self.metrics.region.hot_keys_here.set(gauge(mine.iter().filter(|key| !key.rests).count()));
        let known = self.metrics.region.hot_keys_dropped.get();
        self.metrics.region.hot_keys_dropped.inc_by(dropped.saturating_sub(known));
        let fleet = self.store.hot(&mine).await?;
        self.figures.store_answered(self.now());
        let entries = {
            let mut state = lock(&self.state);
            state.are_listed(self.now(), &mine);
            state.peeks(self.now(), &fleet)
        };
        if !entries.is_empty() {
            let batch = Batch { member: &self.member, pop: "", entries };
            let accounts = self.store.charge(&batch).await?;
            lock(&self.state).grant(self.now(), &batch.entries, &accounts);
        }
        self.metrics.region.hot_keys.set(gauge(fleet.iter().filter(|key| !key.rests).count()));
        Ok(())
    }

    /// Waits until a POP has boxed a key that the store has not heard of.
    pub async fn boxed_news(&self) {
        self.boxed.news().await;
    }

    /// Tells the other regions of keys that were boxed here, and hears of theirs.
    pub async fn share_boxed(&self) -> Result<(), StoreError> {
        self.boxed.share(&*self.store, || self.now()).await
    }

    /// Whether the store is in reach; an error says why not.
    pub async fn ready(&self) -> Result<(), StoreError> {
        let result = self.store.ping().await;
        self.metrics.store_up.set(i64::from(result.is_ok()));
        result
    }

    /// Brings the metrics that are not counted as they happen up to date.
    pub async fn refresh_metrics(&self) {
        // An error shows in the metric itself.
        let _ = self.ready().await;
        let now = self.now();
        let ((budgets, in_debt), owed, here, share) = {
            let mut state = lock(&self.state);
            (
                state.debts(now),
                state.owed(now),
                state.pops(now, self.pop_ttl_ns()),
                self.share(&mut state, now),
            )
        };
        let pops = share.fleet();
        self.metrics.budgets.set(gauge(budgets));
        self.metrics.budgets_in_debt.set(gauge(in_debt));
        let region = &self.metrics.region;
        region.pops_here.set(i64::from(here));
        region.pops.set(i64::from(pops));
        region.pops_known.set(i64::from(!share.is_guess()));
        self.figures.show(now, region, &owed, pops, &self.place.terms);
    }

    /// Charges and draws what `plan` says; an error where the store is out of reach.
    async fn settle(&self, report: &Report, plan: &mut Plan) -> Result<Settled, StoreError> {
        let entries = std::mem::take(&mut plan.entries);
        let batch = Batch { member: &self.member, pop: &report.pop, entries };
        let asked_at = Instant::now();
        // All at once: over Redis they share one round trip.
        let (accounts, drawn, pops) = tokio::join!(
            self.store.charge(&batch),
            self.store.draw(&report.pop, plan.draws.list()),
            self.store.register(&report.pop)
        );
        let took = asked_at.elapsed();
        plan.entries = batch.entries;
        self.metrics.store_latency.observe(took.as_secs_f64());
        if let Ok(pops) = pops {
            lock(&self.state).count_pops(self.now(), pops, self.pop_ttl_ns());
        }
        // Charged is charged; only where there was nothing else to do does the other word count. What was
        // charged or drawn while something else failed is found again by the next report.
        let result = match pops {
            Err(error) if plan.entries.is_empty() && plan.draws.list().is_empty() => Err(error),
            _ => accounts.and_then(|accounts| drawn.map(|drawn| Settled { accounts, drawn })),
        };
        match &result {
            Ok(_) => {
                self.count("answered");
                self.figures.store_answered(self.now());
                self.observe_lag(report, took);
            }
            Err(error) => {
                tracing::debug!(%error, pop = report.pop, "a report was not settled");
                self.metrics.store_errors.get_or_create(&Kind { kind: error.kind() }).inc();
                self.count("unsettled");
                self.metrics.region.reports_alone.inc();
            }
        }
        result
    }

    /// What to answer once the plan is settled; if it is not, the store is out of reach.
    fn reply(&self, report: &Report, plan: &Plan, settled: Option<&Settled>) -> Reply {
        let now = self.now();
        let mut state = lock(&self.state);
        let share = self.share(&mut state, now);
        let (grants, of_keys) = match settled {
            Some(settled) => {
                let grants = state.grant(now, &plan.entries, &settled.accounts);
                let of_keys = plan.of_keys(&grants, &settled.drawn);
                (grants, of_keys)
            }
            None => (Vec::new(), state.grant_alone(now, report, plan, share, &self.member)),
        };
        let (mut rules, pushed) = state.pushes(now, report);
        drop(state);
        self.tell_of_guess(share);
        let boxed = self.boxed.tell(now, report, &mut rules);
        if let Some(settled) = settled {
            self.observe(plan, &settled.accounts, &grants);
            self.metrics.tokens_charged.inc_by(settled.drawn.iter().map(|drawn| drawn.given).sum());
        }
        self.figures.answered(&of_keys);
        self.metrics.grants.inc_by(of_keys.len() as u64);
        self.metrics.pushed.inc_by(pushed.len() as u64);
        Reply {
            sequence: report.sequence,
            pops: share.fleet(),
            is_guess: share.is_guess(),
            settled: settled.is_some(),
            grants: of_keys,
            rule_set: self.rules.version(),
            rules,
            pushed,
            workers: plan.workers,
            boxed,
        }
    }

    /// The POPs that report here, as a part of the fleet as last known.
    fn share(&self, state: &mut Region, now: Time) -> Share {
        state.share(now, self.pop_ttl_ns())
    }

    fn pop_ttl_ns(&self) -> u64 {
        u64::try_from(self.place.pop_ttl.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Says once that nobody knows how many POPs there are, each time that it is so.
    fn tell_of_guess(&self, share: Share) {
        let was_told = self.is_guess_told.swap(share.is_guess(), Ordering::Relaxed);
        if share.is_guess() && !was_told {
            tracing::warn!(
                pops_here = share.fleet(),
                "the store has not answered yet, and no POP knows how many POPs the fleet has: those that report here \
                 get the whole of each quota; set pops_expected"
            );
        }
    }

    fn observe(&self, plan: &Plan, accounts: &[Account], allowances: &[Allowance]) {
        for ((entry, account), allowance) in plan.entries.iter().zip(accounts).zip(allowances) {
            self.metrics.keys_charged.inc();
            self.metrics.tokens_charged.inc_by(account.charged);
            if allowance.grant().is_some_and(|grant| grant.ratio < AdmitRatio::ONE) {
                self.metrics.grants_limiting.inc();
            }
            self.metrics.deficit.observe(deficit(entry, account));
        }
    }

    /// Observes how long the oldest count of `report` that nobody has confirmed was on its way.
    fn observe_lag(&self, report: &Report, took: Duration) {
        let uncharged = report.keys.iter().filter(|key| key.unconfirmed > 0);
        if let Some(span_ms) = uncharged.map(|key| key.span_ms).max() {
            let lag = Duration::from_millis(u64::from(span_ms)) + took;
            self.metrics.region.lag.observe(lag.as_secs_f64());
        }
    }

    fn count(&self, outcome: &'static str) {
        self.metrics.reports.get_or_create(&Outcome { outcome }).inc();
    }

    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A region that has heard nothing yet.
fn region(place: &Place) -> Region {
    let mut region = Region::new(&place.member(), place.terms);
    region.expect_pops(place.pops_expected);
    region
}

/// The wall clock, in microseconds since 1970.
fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Nothing that runs under these locks panics; should it, what they guard is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a budget lacks of being full, in bursts; beyond 1 is debt.
#[allow(clippy::cast_precision_loss, reason = "a metric")]
fn deficit(entry: &Entry, account: &Account) -> f64 {
    account.deficit_ns as f64 / entry.quota.fill_ns() as f64
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
