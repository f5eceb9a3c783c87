//! The exchange: a report comes in, its counts are charged, a grant per key goes out.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use weir_budget::budget::Account;
use weir_budget::divide::Terms;
use weir_budget::region::{Entry, Plan, Region};
use weir_limiter::time::Time;
use weir_limiter::wire::{AdmitRatio, Allowance, Message, Reply, Report, WireError};

use crate::metrics::{Kind, Metrics, Outcome};
use crate::sequences::Sequences;
use crate::store::{Batch, Store, StoreError};

/// Answers reports.
pub struct Exchange {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    region: String,
    state: Mutex<Region>,
    sequences: Mutex<Sequences>,
    /// Live POPs, as last heard from the store.
    pops: AtomicU32,
    /// Zero of the clock that demand is measured by.
    started: Instant,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("region", &self.region).finish_non_exhaustive()
    }
}

impl Exchange {
    /// Charges `store` in the name of `region` and grants by `terms`.
    pub fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>, region: String, terms: Terms) -> Self {
        Self {
            store,
            metrics,
            state: Mutex::new(Region::new(&region, terms)),
            region,
            sequences: Mutex::default(),
            pops: AtomicU32::new(1),
            started: Instant::now(),
        }
    }

    /// The reply to the report in `body`. With the store out of reach it holds no grants, which
    /// confirms nothing and changes nothing. Fails where `body` is no report.
    pub async fn answer(&self, body: &[u8]) -> Result<Vec<u8>, WireError> {
        let report = Report::decode(body).inspect_err(|_| self.count("malformed"))?;
        let now = self.now();
        if !lock(&self.sequences).is_fresh(now, &report.pop, report.worker, report.sequence) {
            self.metrics.reports_stale.inc();
        }
        let plan = lock(&self.state).hear(now, &report);
        let (settled, grants) = match self.settle(&report, &plan).await {
            Ok(accounts) => (true, self.grants(&plan, &accounts)),
            Err(error) => {
                tracing::debug!(%error, pop = report.pop, "a report was not settled");
                (false, Vec::new())
            }
        };
        let (rules, pushed) = lock(&self.state).pushes(self.now(), &report);
        let pops = self.pops.load(Ordering::Relaxed);
        self.metrics.pushed.inc_by(pushed.len() as u64);
        let reply = Reply { sequence: report.sequence, pops, settled, grants, rules, pushed };
        Ok(reply.encode())
    }

    /// Hears which keys are hot in other regions, and looks at the budgets of those that this region
    /// has not seen lately, so that its POPs are told with their next reply.
    pub async fn listen(&self) -> Result<(), StoreError> {
        let mine = lock(&self.state).hot(self.now());
        let fleet = self.store.hot(&mine).await?;
        let entries = lock(&self.state).peeks(self.now(), &fleet);
        if !entries.is_empty() {
            let batch = Batch { member: &self.region, pop: "", entries };
            let accounts = self.store.charge(&batch).await?;
            lock(&self.state).grant(self.now(), &batch.entries, &accounts);
        }
        self.metrics.hot_keys.set(i64::try_from(fleet.len()).unwrap_or(i64::MAX));
        Ok(())
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
        let (budgets, in_debt, debt_milli) = lock(&self.state).debts(self.now());
        self.metrics.budgets.set(i64::try_from(budgets).unwrap_or(i64::MAX));
        self.metrics.budgets_in_debt.set(i64::try_from(in_debt).unwrap_or(i64::MAX));
        self.metrics.debt.set(thousandths(debt_milli));
        self.metrics.pops.set(i64::from(self.pops.load(Ordering::Relaxed)));
    }

    async fn settle(&self, report: &Report, plan: &Plan) -> Result<Vec<Account>, StoreError> {
        let batch = Batch { member: &self.region, pop: &report.pop, entries: plan.entries.clone() };
        let asked_at = Instant::now();
        // Both at once: over Redis they share one round trip.
        let (accounts, pops) = tokio::join!(self.store.charge(&batch), self.store.register(&report.pop));
        self.metrics.store_latency.observe(asked_at.elapsed().as_secs_f64());
        if let Ok(pops) = pops {
            self.pops.store(pops.max(1), Ordering::Relaxed);
        }
        let result = accounts.and_then(|accounts| pops.map(|_| accounts));
        match &result {
            Ok(_) => self.count("answered"),
            Err(error) => {
                self.metrics.store_errors.get_or_create(&Kind { kind: error.kind() }).inc();
                self.count("unsettled");
            }
        }
        result
    }

    fn grants(&self, plan: &Plan, accounts: &[Account]) -> Vec<Allowance> {
        let grants = lock(&self.state).grant(self.now(), &plan.entries, accounts);
        for ((entry, account), grant) in plan.entries.iter().zip(accounts).zip(&grants) {
            self.observe(entry, account, grant);
        }
        let of_keys = plan.of_keys(&grants);
        self.metrics.grants.inc_by(of_keys.len() as u64);
        of_keys
    }

    fn observe(&self, entry: &Entry, account: &Account, allowance: &Allowance) {
        self.metrics.keys_charged.inc();
        self.metrics.tokens_charged.inc_by(account.charged);
        if allowance.grant().is_some_and(|grant| grant.ratio < AdmitRatio::ONE) {
            self.metrics.grants_limiting.inc();
        }
        #[allow(clippy::cast_precision_loss, reason = "a metric")]
        self.metrics.level.observe(1.0 - account.deficit_ns as f64 / entry.quota.fill_ns() as f64);
    }

    fn count(&self, outcome: &'static str) {
        self.metrics.reports.get_or_create(&Outcome { outcome }).inc();
    }

    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Nothing that runs under these locks panics; should it, what they guard is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[allow(clippy::cast_precision_loss, reason = "a metric")]
fn thousandths(milli: u64) -> f64 {
    milli as f64 / 1_000.0
}
