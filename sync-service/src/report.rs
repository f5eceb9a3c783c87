//! IO around the [`Hub`]: passes it reports, the time and the store's answers, and counts the results.
//!
//! If the store cannot be reached for a key, the grant in the reply comes from the region's own share (see
//! [`weir_budget::offline`]), and the report's counts are not confirmed. The next report that reaches the budget
//! charges them, with the tokens admitted in the meantime.
//!
//! The hub's lock is held only briefly, and never across an await.

mod turns;
mod views;

use std::pin::Pin;
use std::slice;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::timeout;
use weir_budget::budget::BudgetId;
use weir_budget::escrow::{AcquireRequest, AcquireResult};
use weir_budget::hub::{Figures, Hub, HubSettings, Listing, Pending, ReportResult, StoreReplies};
use weir_budget::pops::PopRuleSet;
use weir_budget::report_limits::ReporterKind;
use weir_gateway::SyncService;
use weir_protocol::messages::{Message, Report};
use weir_protocol::time::Time;
use weir_store::fleet::Seen;
use weir_store::{ChargeBatch, Each, Store, StoreError, StoreFuture, unix_us};

use crate::audit::AuditLog;
use crate::audit::observer::Observer;
use crate::lock;
use crate::metrics::{Metrics, StoreErrorKind, gauge};
use crate::refusals::RefusedClaims;
use crate::rules::RuleSets;
use crate::rules::follow::FleetState;

pub(crate) struct ReportHandler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) rules: Arc<RuleSets>,
    pub(crate) audit_log: Arc<AuditLog>,
    pub(crate) observer: Arc<Observer>,
    hub: Mutex<Hub>,
    refused: RefusedClaims,
    shown: views::RateMetrics,
    /// Name of this weir-sync in the store.
    pub(crate) replica: String,
    /// Notified when there are bans that the other regions do not have yet.
    pub(crate) new_bans: Notify,
    /// True if this weir-sync's last shared text of top keys is not empty.
    has_shared_keys: AtomicBool,
    /// Held while bans are shared, so that an older answer or a repeated listing does not undo a later command.
    sharing: tokio::sync::Mutex<()>,
    started: Instant,
}

impl ReportHandler {
    /// Handler that charges `store`, makes grants by `settings`, and records changes in the audit log of `observer`.
    pub(crate) fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>, settings: HubSettings, observer: Observer) -> Self {
        let audit_log = Arc::clone(&observer.audit_log);
        let shown = [metrics.rule_set_version.clone(), metrics.canary_revision.clone()];
        let region = settings.replica.split('/').next().unwrap_or_default();
        Self {
            rules: Arc::new(RuleSets::new(Arc::clone(&store), region, shown, Arc::clone(&audit_log))),
            observer: Arc::new(observer),
            audit_log,
            store,
            metrics,
            replica: settings.replica.clone(),
            hub: Mutex::new(Hub::new(settings)),
            refused: RefusedClaims::default(),
            shown: views::RateMetrics::default(),
            new_bans: Notify::new(),
            has_shared_keys: AtomicBool::new(false),
            sharing: tokio::sync::Mutex::default(),
            started: Instant::now(),
        }
    }

    pub(crate) async fn answer(&self, reporter: ReporterKind, report: Report) -> Vec<u8> {
        self.rules.observe_version(report.running.version).await;
        self.update_known_rules();
        let (known, pending) = {
            // One lock for both calls: other reports wait for it, and moving its data between processors is slow.
            let mut hub = lock(&self.hub);
            (hub.known_rules(&report), hub.report(reporter, self.now(), unix_us(), report))
        };
        self.observer.observe(&pending.report, &known);
        if pending.has_bans {
            self.new_bans.notify_one();
        }
        let asked_at = Instant::now();
        let answers = self.ask(&pending).await;
        let took = asked_at.elapsed();
        let revision = self.rules.revision_of(&pending.report.pop);
        let outcome = lock(&self.hub).settle(self.now(), revision, pending, answers);
        self.observe(&outcome, took);
        outcome.reply.encode()
    }

    fn update_known_rules(&self) {
        if let Some((newest, rules)) = self.rules.news() {
            lock(&self.hub).set_rules(newest, rules);
        }
    }

    /// Sends all requests of a report to the store concurrently. Over Redis this is one round trip, or two for a
    /// request that needs a turn as well as tokens.
    async fn ask(&self, pending: &Pending) -> StoreReplies<StoreError> {
        let batch = ChargeBatch { replica: &self.replica, pop: &pending.report.pop, entries: pending.entries() };
        let register = async {
            match pending.registered {
                Some(pops) => Ok(pops),
                None => self.store.register(&pending.report.pop).await,
            }
        };
        let (accounts, acquired, pops) = tokio::join!(
            self.store.charge(&batch),
            turns::acquire(&*self.store, &pending.report.pop, pending.acquires()),
            register
        );
        StoreReplies { accounts, acquired, pops }
    }

    /// Exchanges data with the other regions: hot keys, the current rule set, and the versions that POPs run.
    pub(crate) async fn listen(&self) -> Result<(), StoreError> {
        let tick = lock(&self.hub).tick(self.now());
        let metrics = &self.metrics;
        metrics.warm_keys.set(gauge(tick.warm_keys));
        metrics.hot_keys_here.set(gauge(tick.hot_keys));
        let known = metrics.hot_keys_dropped.get();
        metrics.hot_keys_dropped.inc_by(tick.hot_dropped.saturating_sub(known));
        let (hot, rules, recorded) = tokio::join!(
            self.list_hot(tick.listing),
            self.rules.listen(),
            self.store.store_pop_records(&self.replica, &tick.rule_sets)
        );
        if let Some((now_ms, banned)) = self.rules.banned().await {
            lock(&self.hub).stand_by(self.now(), now_ms, &banned);
        }
        hot.and(rules).and(recorded)
    }

    /// Publishes the keys that are hot here, and reads the budgets of those that are hot elsewhere.
    async fn list_hot(&self, listing: Listing) -> Result<(), StoreError> {
        let fleet = self.store.hot(&listing.items).await?;
        let look = lock(&self.hub).listed(self.now(), listing, &fleet);
        if let Some(look) = look {
            let batch = ChargeBatch { replica: &self.replica, pop: "", entries: &look.items };
            let accounts = self.store.charge(&batch).await;
            lock(&self.hub).looked(self.now(), look, accounts);
        }
        self.metrics.hot_keys.set(gauge(fleet.iter().filter(|key| !key.rests).count()));
        Ok(())
    }

    /// All POPs, and the revision that each should run. Without the store, only the POPs that report here.
    pub(crate) async fn fleet(&self) -> Result<FleetState, StoreError> {
        match self.fleet_of_store().await {
            Err(error) if error.is_out_of_reach() => Ok(self.rules.fleet_offline(self.pops_here(), error)),
            fleet => fleet,
        }
    }

    async fn fleet_of_store(&self) -> Result<FleetState, StoreError> {
        let (current, seen) = tokio::join!(self.store.current(), self.store.fleet());
        let (current, pops) = (current?, seen?);
        let canary = if current.canary > 0 { self.rules.canary().await? } else { None };
        let (version, revision) = (current.version.unwrap_or_default(), current.revision());
        Ok(FleetState { version, revision, canary: canary.zip(current.canary_revision()), pops, offline: None })
    }

    pub(crate) fn pops_here(&self) -> Vec<Seen> {
        let (region, replica) = self.replica.split_once('/').unwrap_or((&self.replica, ""));
        let seen = |(rule_set, silent_ns): (PopRuleSet, u64)| Seen {
            pop: rule_set.pop,
            region: region.to_owned(),
            replica: replica.to_owned(),
            version: rule_set.version,
            refused: rule_set.refused,
            age_us: silent_ns / 1_000,
        };
        lock(&self.hub).pops(self.now()).into_iter().map(seen).collect()
    }

    /// Latest revision that a POP reporting here runs, if the store has lost the rule set.
    pub(crate) fn lost_revision(&self) -> Option<u64> {
        let runs = self.pops_here().iter().map(|pop| pop.version).max();
        runs.filter(|revision| *revision > 0 && self.rules.revision() == 0 && self.rules.is_missing())
    }

    /// Note for an operator if a change that was made does not survive a restart, or has not reached the store yet.
    pub(crate) fn note(&self, offline: Option<&StoreError>) -> Option<String> {
        let region = self.replica.split('/').next().unwrap_or_default();
        match offline {
            Some(error) => Some(format!(
                "{error}: the POPs that report to {} get it, and the store once it answers. Make it at the other \
                 weir-syncs of {region}, and of other regions, too",
                self.replica
            )),
            None if !self.store.is_lasting() => {
                Some("the store is memory: a restart of weir-sync forgets this (set store)".into())
            }
            None => None,
        }
    }

    pub(crate) fn figures(&self) -> Figures {
        lock(&self.hub).figures(self.now())
    }

    /// Shares new bans with the other regions, and reads theirs.
    pub(crate) async fn share_bans(&self) -> Result<(), StoreError> {
        let _sharing = self.sharing.lock().await;
        let mine = lock(&self.hub).share_bans(self.now());
        let fleet = self.store.bans(&mine.items).await?;
        lock(&self.hub).bans_listed(self.now(), mine, &fleet);
        Ok(())
    }

    /// Bans these keys at all POPs for `for_ms`, regardless of their rules and of earlier overrides. On return, the
    /// other regions have the ban or receive it within one interval.
    pub(crate) async fn ban_keys(&self, ids: &[BudgetId], for_ms: u32) -> Result<(), StoreError> {
        for id in ids {
            lock(&self.hub).ban(self.now(), id.clone(), for_ms);
        }
        self.share_bans().await
    }

    /// Lifts the bans of these keys, like [`Self::forget_keys`]. Without the store, lifts them at the POPs that report
    /// here, and at the others once the store answers.
    pub(crate) async fn unban_keys(&self, ids: &[BudgetId]) -> Result<(), StoreError> {
        match self.forget_keys(ids).await {
            Err(error) if error.is_out_of_reach() => {
                for id in ids {
                    lock(&self.hub).forget(self.now(), id.clone());
                }
                Ok(())
            }
            done => done,
        }
    }

    /// Resets these keys at all POPs: their budgets are full, and they are not banned. On return, the other regions
    /// have the reset or receive it within one interval. After an error, it may be incomplete, and can be repeated.
    pub(crate) async fn forget_keys(&self, ids: &[BudgetId]) -> Result<(), StoreError> {
        self.update_known_rules();
        for id in ids {
            let refill_policies = lock(&self.hub).refill_policies(&id.rule);
            self.store.forget(id, &refill_policies).await?;
            // Only after the store's reset: earlier answers may concern the old budget.
            lock(&self.hub).forget(self.now(), id.clone());
        }
        self.share_bans().await
    }

    /// Succeeds if the store is in reach and, if acquires wait for replicas, those of at least one master confirm.
    pub(crate) async fn ready(&self) -> Result<(), StoreError> {
        let result = self.store.ping().await;
        self.metrics.store_up.set(i64::from(result.is_ok()));
        let masters = self.store.masters();
        let (mut alone, mut reason) = (0, None);
        for why in masters.iter().filter_map(|master| master.confirms.as_ref().err()) {
            // Nothing has been sent to a master that is still connecting.
            alone += usize::from(*why != StoreError::Connecting);
            reason = Some(why);
        }
        self.metrics.store_masters_unreplicated.set(gauge(alone));
        result?;
        // As with masters that are out of reach, weir-sync is ready for the keys of the other masters.
        let is_any_good = masters.iter().any(|master| master.confirms.is_ok());
        reason.filter(|_| !is_any_good).cloned().map_or(Ok(()), Err)
    }

    pub(crate) async fn refresh_metrics(&self) {
        // The metric `store_up` shows an error.
        let _ = self.ready().await;
        let (jumps, known) = (self.store.clock_jumps(), &self.metrics.store_clock_jumps);
        known.inc_by(jumps.saturating_sub(known.get()));
        views::show(&self.figures(), &self.metrics);
        let decided = lock(&self.hub).decisions.news();
        self.shown.add(decided, &self.metrics);
    }

    fn observe(&self, outcome: &ReportResult<StoreError>, took: Duration) {
        let ReportResult { pop, reply, facts, error } = outcome;
        let metrics = &self.metrics;
        self.refused.record(pop, &facts.refused, metrics);
        metrics.store_latency.observe(took.as_secs_f64());
        metrics.reports_stale.inc_by(u64::from(facts.is_stale));
        match error {
            None => {
                metrics.count_report("answered");
                if let Some(span_ms) = facts.unconfirmed_ms {
                    let lag = Duration::from_millis(u64::from(span_ms)) + took;
                    metrics.lag.observe(lag.as_secs_f64());
                }
            }
            Some(error) => {
                tracing::debug!(%error, pop, "a report was not charged");
                metrics.store_errors.get_or_create(&StoreErrorKind { kind: error.kind() }).inc();
                metrics.count_report("partial");
                metrics.reports_offline.inc();
            }
        }
        metrics.keys_charged.inc_by(facts.deficits.len() as u64);
        metrics.tokens_charged.inc_by(facts.tokens);
        metrics.grants_limiting.inc_by(facts.limiting);
        facts.deficits.iter().for_each(|deficit| metrics.deficit.observe(*deficit));
        metrics.grants.inc_by(reply.grants.len() as u64);
        metrics.pushed.inc_by(reply.pushed.len() as u64);
        if let Some(pops_here) = facts.guess {
            tracing::warn!(
                pops_here,
                "the store has not answered yet, and no POP knows how many POPs the fleet has, so the POPs that \
                 report here share the whole of each quota; set pops_expected"
            );
        }
    }

    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl SyncService for ReportHandler {
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Vec<u8>> + Send + '_>> {
        Box::pin(self.answer(ReporterKind::Gateway, report))
    }

    fn take<'a>(
        &'a self,
        pop: &'a str,
        acquire: &'a AcquireRequest,
        within: Duration,
    ) -> StoreFuture<'a, AcquireResult> {
        Box::pin(async move {
            let acquired = timeout(within, self.store.acquire(pop, slice::from_ref(acquire))).await;
            let acquired = acquired.map_or_else(
                |_| Err(StoreError::Slow(within.as_millis())),
                |mut acquired| acquired.pop().unwrap_or(Err(StoreError::Invalid("no answer to an acquire"))),
            );
            let _ = match &acquired {
                Ok(acquired) => self.metrics.tokens_charged.inc_by(acquired.given),
                Err(error) => self.metrics.store_errors.get_or_create(&StoreErrorKind { kind: error.kind() }).inc(),
            };
            acquired
        })
    }

    fn acquire<'a>(&'a self, pop: &'a str, acquires: &'a [AcquireRequest]) -> Each<'a, AcquireResult> {
        self.store.acquire(pop, acquires)
    }

    fn revision_of(&self, pop: &str) -> u64 {
        self.rules.revision_of(pop)
    }

    fn has_no_rules(&self) -> bool {
        self.rules.is_missing()
    }

    fn rules(&self, revision: u64) -> StoreFuture<'_, Option<Bytes>> {
        Box::pin(async move { Ok(self.rules.get(revision).await?.map(|held| held.document)) })
    }
}
