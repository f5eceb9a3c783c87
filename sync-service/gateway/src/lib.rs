//! The gateway: a POP within a process, for services that check a request before they serve it.
//!
//! It decides like a proxy's filter, by the same rules and from the same budgets: each worker has an
//! [`Engine`](weir_limiter::engine::Engine), as a proxy's worker does, with the table in this process's memory. Calls
//! that an engine makes to weir-sync are answered by a [`SyncService`] without HTTP.
//!
//! This crate has the decisions and the messages of the APIs. Listeners, tokens and routes are weir-sync's, as are the
//! HTTP API and the gRPC port.
//!
//! ```
//! use weir_gateway::json;
//!
//! let body = serde_json::json!([{"path": "/login", "address": "192.0.2.7"}, {"path": "login", "cost": 0}]);
//! let errors = json::checks(&body).expect_err("a list is checked as a whole");
//! let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
//! assert_eq!(errors[0], "[1].path: expected a path that begins with /, found \"login\"");
//! let checks = json::checks(&body[0]).map_err(|errors| format!("{errors:?}"))?;
//! // `gateway.check_all(checks, None)` decides them, in their order.
//! assert_eq!(checks[0].address, Some([192, 0, 2, 7].into()));
//! # Ok::<(), String>(())
//! ```
//!
//! ```text
//! request.rs      requests to be checked, and descriptors; reply.rs, decisions
//! json.rs         both as JSON
//! limit.rs        caller-defined limits, consumed check by check, and those of descriptors
//! reservations.rs allowed requests whose cost is not known yet
//! worker.rs       an engine under a lock; worker_host.rs, state that workers share
//! calls.rs        calls of an engine, answered in this process; charges and refunds
//! metrics.rs      the metrics, with sums of the workers' counters
//! rls.rs          Envoy's rate limit service over gRPC; rlqs/, its quota service; proto/, their messages
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::sleep;
use weir_budget::escrow::{AcquireRequest, AcquireResult};
use weir_limiter::engine::{Host, OpenRequest, PushedVersions, SyncCall};
use weir_protocol::messages::Report;
use weir_protocol::time::{SECOND_NS, Time};
use weir_rules::RuleSet;
use weir_store::{Each, StoreFuture};

use limit::KeyHasher;
use metrics::{CounterSums, GatewayMetrics};
use request::Patience;
use reservations::{Reservation, Reservations};
use worker::{CheckStep, Worker};
use worker_host::{SharedMemory, WorkerHost};

pub(crate) use reply::RuleQuotaStatus;
pub use reply::{CheckDecision, CheckReply};
pub(crate) use request::CheckPurpose;
pub use request::CheckRequest;
pub use reservations::{SettleError, Settlement};

mod calls;
pub mod json;
pub mod limit;
pub mod metrics;
pub mod proto;
mod reply;
mod request;
mod reservations;
pub mod rlqs;
pub mod rls;
mod worker;
mod worker_host;

/// Pause between attempts to load the rules at startup.
const RULES_PAUSE: Duration = Duration::from_millis(10);
const WORKERS_MAX: usize = 64;

/// Prefix of a gateway's name among the POPs. No report from outside may use it.
pub const GATEWAY_PREFIX: &str = "gateway/";

/// weir-sync in the same process, of which the gateway is a POP.
pub trait SyncService: Send + Sync {
    /// Answers a report of the gateway with an encoded reply.
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Vec<u8>> + Send + '_>>;

    /// Consumes tokens for `pop`, and counts them. Fails if the store does not answer `within` this time.
    fn take<'a>(
        &'a self,
        pop: &'a str,
        acquire: &'a AcquireRequest,
        within: Duration,
    ) -> StoreFuture<'a, AcquireResult>;

    /// Acquires tokens for `pop` from the store.
    fn acquire<'a>(&'a self, pop: &'a str, acquires: &'a [AcquireRequest]) -> Each<'a, AcquireResult>;

    /// Revision that `pop` is to run; 0 if none is known.
    fn revision_of(&self, pop: &str) -> u64;

    /// True if the store has answered that it has no rule set.
    fn has_no_rules(&self) -> bool;

    /// JSON document of a revision, or `None` if it is not kept.
    fn rules(&self, revision: u64) -> StoreFuture<'_, Option<Bytes>>;
}

/// Settings of a gateway.
#[derive(Clone)]
pub struct GatewaySettings {
    /// Name among the POPs.
    pub pop: String,
    /// Number of keys that the table can hold.
    pub keys: u32,
    /// Secret that hides parts of keys; the same at every POP.
    pub key_secret: Option<String>,
    /// Time limit of a call, and of a request that waits for a strict rule.
    pub timeout: Duration,
    /// True if a rules file is watched: then rules will exist even if the store has none yet.
    pub has_rules_file: bool,
}

/// POP within this process.
pub struct Gateway {
    workers: Box<[Worker]>,
    memory: Arc<SharedMemory>,
    /// Worker at which the search for a free one begins next.
    turn: AtomicUsize,
    sync: Arc<dyn SyncService>,
    settings: GatewaySettings,
    keys: KeyHasher,
    reservations: Reservations,
    /// True if the store had no rules at first and no file will supply any. The gateway is then ready without rules.
    has_no_rules: AtomicBool,
    /// True once the first report was answered or has failed.
    has_reported: AtomicBool,
    started: Instant,
}

impl Gateway {
    /// Gateway that reports to `sync`. Fails with all errors of its configuration.
    pub fn new(
        settings: GatewaySettings,
        sync: Arc<dyn SyncService>,
        metrics: GatewayMetrics,
    ) -> Result<Self, Vec<String>> {
        let started = Instant::now();
        let configuration = configuration(&settings).to_string();
        let count = available_parallelism().map_or(1, usize::from).min(WORKERS_MAX);
        let counts = Arc::new(CounterSums::new(metrics));
        let memory = SharedMemory::new(settings.keys, u32::try_from(count).unwrap_or(u32::MAX), &counts);
        let worker = |_| Worker::new(configuration.as_bytes(), &memory, &counts, time_since(started));
        let workers = (0..count).map(worker).collect::<Result<Box<[Worker]>, _>>()?;
        let name = settings.pop.strip_prefix(GATEWAY_PREFIX).unwrap_or(&settings.pop);
        Ok(Self {
            reservations: Reservations::new(name, workers.len()),
            workers,
            memory,
            turn: AtomicUsize::new(0),
            sync,
            keys: KeyHasher::hidden_by(settings.key_secret.as_deref()),
            settings,
            has_no_rules: AtomicBool::new(false),
            has_reported: AtomicBool::new(false),
            started,
        })
    }

    /// Decides a request. Waits only for tokens of a strict rule, or for its turn in a leaky bucket.
    pub async fn check(&self, ask: CheckRequest) -> CheckReply {
        self.check_with(ask, None, &mut Patience::endless()).await
    }

    /// Decides requests in their order. A store that does not answer delays the whole list by at most twice the
    /// time limit of one request. Reservations count for `asker`, if several callers share them.
    pub async fn check_all(&self, asks: Vec<CheckRequest>, asker: Option<&str>) -> Vec<CheckReply> {
        let mut patience = Patience(2 * self.settings.timeout);
        let mut replies = Vec::with_capacity(asks.len());
        for ask in asks {
            replies.push(self.check_with(ask, asker, &mut patience).await);
        }
        replies
    }

    async fn check_with(&self, mut ask: CheckRequest, asker: Option<&str>, patience: &mut Patience) -> CheckReply {
        match ask.purpose {
            CheckPurpose::Charge => return Box::pin(self.charge(&mut ask, patience)).await,
            CheckPurpose::Refund => return Box::pin(self.refund(&mut ask, patience)).await,
            CheckPurpose::Take | CheckPurpose::Peek => {}
        }
        let reply = self.check_as_is(&mut ask, asker, patience).await;
        if reply.decision == CheckDecision::Limit && ask.hits > 1 {
            return Box::pin(self.with_figures(reply, &ask, patience)).await;
        }
        reply
    }

    async fn check_as_is(&self, ask: &mut CheckRequest, asker: Option<&str>, patience: &mut Patience) -> CheckReply {
        let Some(reserve_s) = ask.reserve_s else { return self.decide(ask, patience).await.0 };
        let room = match self.reservations.room(asker) {
            Ok(room) => room,
            Err(body) => return CheckReply { body, ..CheckReply::without_rules() },
        };
        let (mut reply, worker, open) = self.decide(ask, patience).await;
        if reply.decision == CheckDecision::Allow {
            let expires_at = self.now() + u64::from(reserve_s) * SECOND_NS;
            let reserved = Reservation { worker, open, hits: ask.hits, asker: None };
            reply.reservation = Some(self.reservations.keep(room, reserved, expires_at));
        }
        reply
    }

    /// Charges the actual cost of a request whose check reserved an estimate, and refunds the rest. Any excess
    /// over the estimate is debt when this returns, or, if the store is out of reach, once it is back.
    pub async fn settle(&self, settlement: &Settlement) -> Result<(), SettleError> {
        let settling = self.reservations.settle(&settlement.reservation, settlement.cost, self.now())?;
        if let Some(reserved) = settling {
            self.settle_reserved(*reserved, settlement.cost).await;
        }
        Ok(())
    }

    /// Decides a request. Also returns the number of the worker that decided it, and the state needed to finish it.
    async fn decide(&self, ask: &mut CheckRequest, patience: &mut Patience) -> (CheckReply, usize, OpenRequest) {
        let (mut waiting, mut next) = self.begin(ask);
        loop {
            match next {
                CheckStep::Answer(reply) => {
                    waiting.is_over = true;
                    let open = std::mem::replace(&mut waiting.open, OpenRequest::new(0));
                    return (reply, waiting.number, open);
                }
                CheckStep::Hold(reply, turn) => {
                    // An error would mean that its worker has ended.
                    let _ = turn.await;
                    next = CheckStep::Answer(reply);
                }
                CheckStep::Take(acquire) => {
                    let taken = self.take(&acquire, patience).await;
                    let (mut state, now) = (waiting.worker.state(), self.now());
                    next = state.step(&mut waiting.open, ask, now, |engine, open, ask, host| {
                        engine.taken(open, taken, ask, host, now)
                    });
                }
                CheckStep::Call(call) => {
                    // Boxed, because most requests make no call and this future is much larger than the rest.
                    let answer = Box::pin(self.call(&call, patience)).await;
                    let (mut state, now) = (waiting.worker.state(), self.now());
                    next = state.step(&mut waiting.open, ask, now, |engine, open, ask, host| {
                        engine.answer_request(open, (call.number, answer), ask, host, now)
                    });
                }
            }
        }
    }

    /// Begins a decision in a free worker; if none is free, waits for the next one.
    fn begin(&self, ask: &mut CheckRequest) -> (Waiting<'_>, CheckStep) {
        let (count, first) = (self.workers.len(), self.turn.fetch_add(1, Ordering::Relaxed));
        let mut in_turn = (0..count).map(|n| first.wrapping_add(n) % count);
        let free = in_turn.find_map(|number| Some((number, self.workers[number].free()?)));
        let (number, mut state) = free.unwrap_or_else(|| (first % count, self.workers[first % count].state()));
        let worker = &self.workers[number];
        let mut open = state.open();
        let next = if self.is_ready_at(worker) {
            let now = self.now();
            state.step(&mut open, ask, now, |engine, open, ask, host| Some(engine.request(open, ask, host, now)))
        } else {
            CheckStep::Answer(CheckReply::without_rules())
        };
        (Waiting { gateway: self, worker, number, open, is_over: false }, next)
    }

    /// True if the gateway decides by the fleet's rules, or the fleet has none.
    pub fn is_ready(&self) -> bool {
        self.workers.iter().all(|worker| self.is_ready_at(worker))
    }

    fn is_ready_at(&self, worker: &Worker) -> bool {
        let knows_rules = worker.runs_rules() || self.has_no_rules.load(Ordering::Acquire);
        knows_rules && self.has_reported.load(Ordering::Acquire)
    }

    /// Loads the rules, then ticks until the task is aborted.
    pub async fn run(self: Arc<Self>) {
        self.fetch_rules().await;
        self.report_first().await;
        let mut ticking = JoinSet::new();
        for index in 0..self.workers.len() {
            ticking.spawn(Arc::clone(&self).tick(index));
        }
        while ticking.join_next().await.is_some() {}
    }

    /// Ends reservations that were not settled in time. They cost their estimate.
    fn end_expired(&self, now: Time) {
        for Reservation { worker, mut open, .. } in self.reservations.expired(now) {
            if let Some(worker) = self.workers.get(worker) {
                worker.state().give_up(&mut open, now);
            }
        }
    }

    /// Reports everything that is not reported yet. Called when no more requests arrive.
    pub async fn report_rest(&self) {
        let rest = |worker: &Worker| worker.act(|engine, host| engine.report_all(host, self.now()));
        let reports = self.workers.iter().map(|worker| self.carry_out(worker, rest(worker)));
        join_all(reports).await;
    }

    /// Applies the rules and sends the first report; before that, shared budgets would be unknown.
    async fn report_first(&self) {
        let tick = |worker: &Worker| worker.act(|engine, host| engine.tick(host, self.now()));
        let Some((first, others)) = self.workers.split_first() else { return };
        // The workers share what the first reply contains.
        self.carry_out(first, tick(first)).await;
        join_all(others.iter().map(|worker| self.carry_out(worker, tick(worker)))).await;
        self.has_reported.store(true, Ordering::Release);
    }

    /// Provides the current rule set to the workers, so that it applies from the first request.
    async fn fetch_rules(&self) {
        loop {
            match self.sync.revision_of(&self.settings.pop) {
                0 if self.sync.has_no_rules() && !self.settings.has_rules_file => {
                    return self.has_no_rules.store(true, Ordering::Release);
                }
                0 => {}
                version => {
                    if let Ok(Some(document)) = self.sync.rules(version).await {
                        let host: &mut dyn Host = &mut WorkerHost::new(&self.memory);
                        host.set_rules(version, &document);
                        host.set_pushed_versions(PushedVersions { version, refused: 0 });
                        return;
                    }
                }
            }
            sleep(RULES_PAUSE).await;
        }
    }

    async fn tick(self: Arc<Self>, index: usize) {
        let Some(worker) = self.workers.get(index) else { return };
        let mut calls = JoinSet::new();
        loop {
            sleep(worker.pace()).await;
            if index == 0 {
                self.end_expired(self.now());
            }
            while calls.try_join_next().is_some() {}
            for call in worker.act(|engine, host| engine.tick(host, self.now())) {
                let this = Arc::clone(&self);
                calls.spawn(async move { this.carry_out(&this.workers[index], vec![call]).await });
            }
        }
    }

    /// Makes calls that no request waits for, and the calls that their answers lead to.
    async fn carry_out(&self, worker: &Worker, mut calls: Vec<SyncCall>) {
        while let Some(call) = calls.pop() {
            let answer = self.call(&call, &mut Patience::endless()).await;
            calls.extend(worker.act(|engine, host| engine.answer(call.number, answer, host, self.now())));
        }
    }

    fn with_rules<T>(&self, read: impl FnOnce(&RuleSet) -> Option<T>) -> Option<T> {
        self.workers.first().and_then(|worker| read(worker.state().rules()))
    }

    fn now(&self) -> Time {
        time_since(self.started)
    }
}

/// Request while it is being decided. It is cancelled if its client disconnects.
struct Waiting<'a> {
    gateway: &'a Gateway,
    worker: &'a Worker,
    number: usize,
    open: OpenRequest,
    is_over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.worker.state().give_up(&mut self.open, self.gateway.now());
        }
    }
}

fn time_since(started: Instant) -> Time {
    let now = Instant::now();
    Time::of_own_clock(now.saturating_duration_since(started), started.saturating_duration_since(now))
}

/// Plugin configuration of the workers: no rules of its own, only those of the fleet.
fn configuration(settings: &GatewaySettings) -> serde_json::Value {
    let mut sync = serde_json::json!({
        "cluster": "in this process",
        "pop": settings.pop,
        "timeout_ms": u64::try_from(settings.timeout.as_millis()).unwrap_or(u64::MAX),
    });
    if let Some(secret) = &settings.key_secret {
        sync["key_secret"] = secret.as_str().into();
    }
    serde_json::json!({
        "rules": [{"name": "none", "key": ["all"], "rate": "1/s"}],
        "enforce": false,
        "table": {"addresses": settings.keys},
        "sync": sync,
    })
}

#[cfg(test)]
mod tests;
