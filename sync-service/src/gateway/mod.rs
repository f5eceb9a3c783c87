//! The gateway: a point of presence in this process, for services that ask before they serve a request.
//!
//! It decides as a proxy's filter does, by the same rules, with the same budgets: each worker has the
//! [`Edge`](weir_limiter::edge::Edge) that a proxy's worker has, over slots in this process's memory. What an edge would
//! send to a weir-sync is answered here, without HTTP.
//!
//! ```text
//! ask.rs      what is asked, descriptor.rs, as a descriptor; verdict.rs, what is answered
//! json.rs     both as JSON
//! limit.rs    limits that callers name themselves, drawn from the store check by check, limits.rs; per_unit.rs, those of descriptors
//! reservations.rs  what was let through, until its caller says what it cost
//! worker.rs   an edge under a lock; site.rs, what the workers share
//! taking.rs   what requests of strict rules take from the store; booking.rs, what is charged or given back unasked
//! calls.rs    the calls of an edge, answered in this process; patience.rs, for how long; counts.rs, what it counts
//! rls/        Envoy's rate limit service, over gRPC; rlqs/, its service of quotas; proto/, their messages
//! ```

mod ask;
mod booking;
mod calls;
mod counts;
mod descriptor;
pub mod json;
pub mod limit;
mod limits;
mod patience;
mod per_unit;
pub mod proto;
mod reservations;
mod rlqs;
pub mod rls;
mod site;
mod taking;
mod verdict;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::sleep;
use weir_limiter::edge::{Call, Open, RulesWord, Shared as _};
use weir_rules::RuleSet;
use weir_wire::time::{SECOND_NS, Time};

use crate::config::{GATEWAY_PREFIX, Secret};
use crate::report::Exchange;
use counts::Counts;
use limit::Keys;
use patience::Patience;
use reservations::{Reservations, Reserved, Settling};
use site::{Handle, Memory};
use worker::{Next, Worker};

pub use ask::{Ask, Purpose};
pub use descriptor::Descriptor;
pub use per_unit::PerUnit;
pub use reservations::{RESERVED_S_MAX, SettleError, Settlement};
pub use verdict::{Decision, Standing, Verdict};

/// How often to look whether the rules are known at last.
const RULES_PAUSE: Duration = Duration::from_millis(10);
/// The most workers.
const WORKERS_MAX: usize = 64;
/// What the clock reads first, in nanoseconds: 13 days.
const BEGIN_NS: u64 = 1 << 50;

/// How a gateway is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name among the POPs.
    pub pop: String,
    /// How many keys its table tracks.
    pub keys: u32,
    /// What hides the parts of keys; the same at every POP.
    pub key_secret: Option<Secret>,
    /// How long a call, or a request of a strict rule, waits.
    pub timeout: Duration,
    /// Whether a file is watched for rules: then there are some, even if the store has none yet.
    pub has_rules_file: bool,
}

/// A POP in this process.
pub struct Gateway {
    workers: Box<[Worker]>,
    memory: Arc<Memory>,
    /// Where the next request begins to look for a free worker.
    turn: AtomicUsize,
    exchange: Arc<Exchange>,
    /// Its name among the POPs.
    pop: String,
    /// How long a request of a strict rule waits.
    timeout: Duration,
    keys: Keys,
    reservations: Reservations,
    /// Rules are going to be put into the store, if it has none.
    has_rules_file: bool,
    /// Whether the store had no rules when it was first asked, and nobody is going to put any: then none are waited for.
    has_no_rules: AtomicBool,
    /// Whether its first report was answered, or failed.
    has_reported: AtomicBool,
    /// Zero of its clock.
    started: Instant,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

impl Gateway {
    /// A gateway that reports to `exchange`. Fails with every error of its configuration.
    pub fn new(settings: &Settings, exchange: Arc<Exchange>) -> Result<Self, Vec<String>> {
        let started = Instant::now();
        let configuration = configuration(settings).to_string();
        let count = available_parallelism().map_or(1, usize::from).min(WORKERS_MAX);
        let counts = Arc::new(Counts::new(Arc::clone(&exchange.metrics)));
        let memory = Memory::new(settings.keys, u32::try_from(count).unwrap_or(u32::MAX), &counts);
        let worker = |_| Worker::new(configuration.as_bytes(), &memory, &counts, time_since(started));
        let workers = (0..count).map(worker).collect::<Result<Box<[Worker]>, _>>()?;
        let name = settings.pop.strip_prefix(GATEWAY_PREFIX).unwrap_or(&settings.pop);
        Ok(Self {
            reservations: Reservations::new(name, workers.len()),
            workers,
            memory,
            turn: AtomicUsize::new(0),
            exchange,
            pop: settings.pop.clone(),
            timeout: settings.timeout,
            keys: Keys::hidden_by(settings.key_secret.as_ref()),
            has_rules_file: settings.has_rules_file,
            has_no_rules: AtomicBool::new(false),
            has_reported: AtomicBool::new(false),
            started,
        })
    }

    /// Decides a request. It waits only for a strict rule's tokens, or for its turn in a leaky bucket.
    pub async fn check(&self, ask: Ask) -> Verdict {
        self.check_with(ask, None, &mut Patience::endless()).await
    }

    /// The same of a request that takes, for a caller that does not look at what is left.
    async fn check_alone(&self, mut ask: Ask) -> Verdict {
        self.decide(&mut ask, &mut Patience::endless()).await.0
    }

    /// Decides requests in their order. A store that does not answer holds all of them up for no longer than two. What they
    /// reserve counts for `asker`, if several share the reservations.
    pub async fn check_all(&self, asks: Vec<Ask>, asker: Option<&str>) -> Vec<Verdict> {
        let mut patience = Patience::of(2 * self.timeout);
        let mut verdicts = Vec::with_capacity(asks.len());
        for ask in asks {
            verdicts.push(self.check_with(ask, asker, &mut patience).await);
        }
        verdicts
    }

    async fn check_with(&self, mut ask: Ask, asker: Option<&str>, patience: &mut Patience) -> Verdict {
        match ask.purpose {
            Purpose::Charge => return Box::pin(self.charge(&mut ask, patience)).await,
            Purpose::Refund => return Box::pin(self.refund(&mut ask, patience)).await,
            Purpose::Take | Purpose::Peek => {}
        }
        let verdict = self.check_as_is(&mut ask, asker, patience).await;
        if verdict.decision == Decision::Limit && ask.hits > 1 {
            return Box::pin(self.with_figures(verdict, &ask, patience)).await;
        }
        verdict
    }

    async fn check_as_is(&self, ask: &mut Ask, asker: Option<&str>, patience: &mut Patience) -> Verdict {
        let Some(reserve_s) = ask.reserve_s else { return self.decide(ask, patience).await.0 };
        let room = match self.reservations.room(asker) {
            Ok(room) => room,
            Err(full) => return Verdict::without_room(&full),
        };
        let (mut verdict, worker, open) = self.decide(ask, patience).await;
        if verdict.decision == Decision::Allow {
            let expires_at = self.now() + u64::from(reserve_s) * SECOND_NS;
            let reserved = Reserved { worker, open, hits: ask.hits, asker: None };
            verdict.reservation = Some(self.reservations.keep(room, reserved, expires_at));
        }
        verdict
    }

    /// Charges what a request cost whose check reserved an estimate; what it did not cost comes back. What it cost beyond is
    /// debt when this is done, unless the store is out of reach: then it is once that is not.
    pub async fn settle(&self, settlement: &Settlement) -> Result<(), SettleError> {
        let settling = self.reservations.settle(&settlement.reservation, settlement.cost, self.now())?;
        if let Settling::First(reserved) = settling {
            self.settle_reserved(*reserved, settlement.cost).await;
        }
        Ok(())
    }

    /// Decides a request; also returns the number of the worker that did, and what is left to do for it.
    async fn decide(&self, ask: &mut Ask, patience: &mut Patience) -> (Verdict, usize, Open) {
        let (mut waiting, mut next) = self.begin(ask);
        loop {
            match next {
                Next::Answer(verdict) => {
                    waiting.is_over = true;
                    let open = std::mem::replace(&mut waiting.open, Open::new(0));
                    return (verdict, waiting.number, open);
                }
                Next::Hold(verdict, turn) => {
                    // An error would say that its worker has gone.
                    let _ = turn.await;
                    next = Next::Answer(verdict);
                }
                Next::Take(draw) => {
                    let taken = self.take(&draw, patience).await;
                    let again = waiting.worker.state().taken(&mut waiting.open, taken, ask, self.now());
                    next = again.unwrap_or_else(|| Next::Answer(Verdict::without_rules()));
                }
                Next::Call(call) => {
                    // Boxed, since most requests make no call, and this is much larger than all the rest.
                    let answer = Box::pin(self.call(&call, patience)).await;
                    let mut state = waiting.worker.state();
                    let again = state.ask_again(&mut waiting.open, (call.number, answer), ask, self.now());
                    next = again.unwrap_or_else(|| Next::Answer(Verdict::without_rules()));
                }
            }
        }
    }

    /// Decides a request in a worker that is free, or in the next one.
    fn begin(&self, ask: &mut Ask) -> (Waiting<'_>, Next) {
        let (count, first) = (self.workers.len(), self.turn.fetch_add(1, Ordering::Relaxed));
        let mut in_turn = (0..count).map(|n| first.wrapping_add(n) % count);
        let free = in_turn.find_map(|number| Some((number, self.workers[number].free()?)));
        let (number, mut state) =
            free.unwrap_or_else(|| (first % count, self.workers[first % count].state()));
        let worker = &self.workers[number];
        let mut open = state.open();
        let next = if self.is_ready_at(worker) {
            state.ask(&mut open, ask, self.now())
        } else {
            Next::Answer(Verdict::without_rules())
        };
        (Waiting { gateway: self, worker, number, open, is_over: false }, next)
    }

    /// Whether it decides by the fleet's rules, or there are none.
    pub fn is_ready(&self) -> bool {
        self.workers.iter().all(|worker| self.is_ready_at(worker))
    }

    fn is_ready_at(&self, worker: &Worker) -> bool {
        let knows_rules = worker.runs_rules() || self.has_no_rules.load(Ordering::Acquire);
        knows_rules && self.has_reported.load(Ordering::Acquire)
    }

    /// Fetches the rules, and ticks until it is aborted.
    pub async fn run(self: Arc<Self>) {
        self.fetch_rules().await;
        self.report_first().await;
        let mut ticking = JoinSet::new();
        for index in 0..self.workers.len() {
            ticking.spawn(Arc::clone(&self).tick(index));
        }
        while ticking.join_next().await.is_some() {}
    }

    /// What nobody has settled in time costs its estimate.
    fn end_expired(&self, now: Time) {
        for Reserved { worker, mut open, .. } in self.reservations.expired(now) {
            if let Some(worker) = self.workers.get(worker) {
                worker.state().give_up(&mut open, now);
            }
        }
    }

    /// Reports what was not reported yet. Called when no more requests come.
    pub async fn part(&self) {
        let parting = self.workers.iter().map(|worker| self.carry_out(worker, worker.part(self.now())));
        join_all(parting).await;
    }

    /// Puts the rules in force, and is heard of: before that, rules that ask the fleet would decide on their own.
    async fn report_first(&self) {
        let tick = |worker| self.carry_out(worker, worker.tick(self.now()));
        let Some((first, others)) = self.workers.split_first() else { return };
        // What one has heard, the others know.
        tick(first).await;
        join_all(others.iter().map(tick)).await;
        self.has_reported.store(true, Ordering::Release);
    }

    /// Puts the current rule set before the workers, so that it is in force from the first request on.
    async fn fetch_rules(&self) {
        let rules = &self.exchange.rules;
        loop {
            match rules.edition_of(&self.pop) {
                0 if rules.is_missing() && !self.has_rules_file => {
                    return self.has_no_rules.store(true, Ordering::Release);
                }
                0 => {}
                version => {
                    if let Ok(Some(held)) = rules.get(version).await {
                        let mut site = Handle::new(&self.memory);
                        site.set_rules(version, &held.document);
                        site.set_rules_word(RulesWord { version, refused: 0 });
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
            for call in worker.tick(self.now()) {
                let this = Arc::clone(&self);
                calls.spawn(async move { this.carry_out(&this.workers[index], vec![call]).await });
            }
        }
    }

    /// Makes calls that no request waits for, and those that their answers lead to.
    async fn carry_out(&self, worker: &Worker, mut calls: Vec<Call>) {
        while let Some(call) = calls.pop() {
            let answer = self.call(&call, &mut Patience::endless()).await;
            calls.extend(worker.answered(call.number, answer, self.now()));
        }
    }

    /// Says something of the rules in force.
    fn with_rules<T>(&self, say: impl FnOnce(&RuleSet) -> Option<T>) -> Option<T> {
        self.workers.first().and_then(|worker| say(worker.state().rules()))
    }

    fn now(&self) -> Time {
        time_since(self.started)
    }
}

/// A request that is being decided. If its client leaves before that, it is given up.
struct Waiting<'a> {
    gateway: &'a Gateway,
    worker: &'a Worker,
    /// The worker's number.
    number: usize,
    open: Open,
    is_over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.worker.state().give_up(&mut self.open, self.gateway.now());
        }
    }
}

/// The clock of a gateway, from long after zero on, so that it can be seen to step back behind where it began.
fn time_since(started: Instant) -> Time {
    let now = Instant::now();
    let ns = |since: Duration| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX / 2);
    Time::from_nanos(match now.checked_duration_since(started) {
        Some(since) => BEGIN_NS.saturating_add(ns(since)),
        None => BEGIN_NS.saturating_sub(ns(started.duration_since(now))),
    })
}

/// The plugin configuration of its workers: no rules of its own, but those of the fleet.
fn configuration(settings: &Settings) -> serde_json::Value {
    let mut sync = serde_json::json!({
        "cluster": "in this process",
        "pop": settings.pop,
        "timeout_ms": u64::try_from(settings.timeout.as_millis()).unwrap_or(u64::MAX),
    });
    if let Some(secret) = &settings.key_secret {
        sync["key_secret"] = secret.expose().into();
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
