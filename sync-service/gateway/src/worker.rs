//! A worker: an engine and the requests that it holds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use tokio::sync::oneshot;
use weir_budget::escrow::{AcquireRequest, ClaimKind};
use weir_limiter::engine::{
    Booking, Consume, Effect, Engine, LogLevel, OpenRequest, RequestDecision, RequestStep, SyncCall, UpstreamResponse,
    unpacked,
};
use weir_protocol::time::Time;
use weir_rules::RuleSet;
use weir_store::lock;

use super::limit;
use super::metrics::CounterSums;
use super::reply::{CheckReply, DecisionDetails};
use super::request::{CheckPurpose, CheckRequest};
use super::worker_host::{SharedMemory, WorkerHost, unix_ns};

/// A worker. Its lock is held during a decision, and never across an await.
pub(super) struct Worker {
    state: Mutex<WorkerState>,
    tick_ms: AtomicU32,
    /// True once it runs a version of the fleet's rules.
    runs_rules: AtomicBool,
    counts: Arc<CounterSums>,
}

pub(super) struct WorkerState {
    engine: Engine,
    host: WorkerHost,
    /// Requests that wait for their turn, by number.
    pub(super) held: HashMap<u32, oneshot::Sender<()>>,
    numbered: u32,
    /// Names of the rules whose decisions are counted, in their order. Empty before it runs the fleet's rules.
    counted: Vec<String>,
}

pub(super) enum CheckStep {
    Answer(CheckReply),
    /// Wait, then answer with this decision.
    Hold(CheckReply, oneshot::Receiver<()>),
    Call(SyncCall),
    Take(Box<AcquireRequest>),
}

struct ReplyHeaders<'a>(&'a mut Vec<(String, String)>);

impl UpstreamResponse for ReplyHeaders<'_> {
    fn status(&mut self) -> u16 {
        0
    }

    fn header(&mut self, _name: &str) -> Option<Vec<u8>> {
        None
    }

    fn add(&mut self, name: &str, value: &str) {
        self.0.push((name.into(), value.into()));
    }
}

impl Worker {
    pub(super) fn new(
        configuration: &[u8],
        memory: &Arc<SharedMemory>,
        counts: &Arc<CounterSums>,
        now: Time,
    ) -> Result<Self, Vec<String>> {
        let mut host = WorkerHost::new(memory);
        let (mut engine, effects) = Engine::configure(configuration, &mut host, now)?;
        engine.let_take();
        let state = WorkerState { engine, host, held: HashMap::new(), numbered: 0, counted: Vec::new() };
        let worker = Self {
            state: Mutex::new(state),
            tick_ms: AtomicU32::new(250),
            runs_rules: AtomicBool::new(false),
            counts: Arc::clone(counts),
        };
        worker.take_in(&mut worker.state(), effects);
        Ok(worker)
    }

    /// State of the worker, or `None` if it is busy with another decision.
    pub(super) fn free(&self) -> Option<MutexGuard<'_, WorkerState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, WorkerState> {
        lock(&self.state)
    }

    pub(super) fn pace(&self) -> Duration {
        Duration::from_millis(self.tick_ms.load(Ordering::Relaxed).into())
    }

    pub(super) fn runs_rules(&self) -> bool {
        self.runs_rules.load(Ordering::Acquire)
    }

    /// Runs `act` on the engine while no peek is in progress. Returns the calls to make.
    pub(super) fn act(&self, act: impl FnOnce(&mut Engine, &mut WorkerHost) -> Vec<Effect>) -> Vec<SyncCall> {
        let mut state = self.state();
        let WorkerState { engine, host, .. } = &mut *state;
        let memory = Arc::clone(&host.memory);
        let looking = memory.look(false);
        let effects = act(engine, host);
        drop(looking);
        self.take_in(&mut state, effects)
    }

    fn take_in(&self, state: &mut WorkerState, effects: Vec<Effect>) -> Vec<SyncCall> {
        let mut calls = Vec::new();
        for effect in effects {
            match effect {
                // Its client may have disconnected.
                Effect::Resume(id) => drop(state.held.remove(&id).map(|held| held.send(()))),
                Effect::Call(call) => calls.push(call),
                Effect::SetTimer(ms) => self.tick_ms.store(ms.max(1), Ordering::Relaxed),
                Effect::Log(LogLevel::Error, text) => tracing::error!("gateway: {text}"),
                Effect::Log(LogLevel::Warn, text) => tracing::warn!("gateway: {text}"),
                Effect::Log(LogLevel::Info, text) => tracing::debug!("gateway: {text}"),
                Effect::Flush => self.counts.add(state.engine.counters(), &state.counted),
                Effect::NewRules(mut counted) => {
                    self.counts.add(&mut counted, &state.counted);
                    let names = state.engine.rules().rules().iter().map(|rule| rule.name.clone());
                    state.counted = self.counts.define(names);
                }
                Effect::Running(running) => self.runs_rules.store(running.version > 0, Ordering::Release),
            }
        }
        calls
    }
}

impl WorkerState {
    pub(super) fn open(&mut self) -> OpenRequest {
        self.numbered = self.numbered.wrapping_add(1);
        OpenRequest::new(self.numbered)
    }

    /// Begins or continues a request by `act`. The request is denied if the engine does not wait for it.
    pub(super) fn step(
        &mut self,
        open: &mut OpenRequest,
        ask: &mut CheckRequest,
        now: Time,
        act: impl for<'e> FnOnce(
            &'e mut Engine,
            &mut OpenRequest,
            &mut CheckRequest,
            &mut WorkerHost,
        ) -> Option<RequestDecision<'e>>,
    ) -> CheckStep {
        let (memory, is_peek) = (Arc::clone(&self.host.memory), ask.purpose == CheckPurpose::Peek);
        let _looking = memory.look(is_peek);
        self.engine.only_asks(is_peek);
        self.engine.books(ask.purpose == CheckPurpose::Charge);
        self.engine.reserves(ask.reserve_s.is_some());
        let step = act(&mut self.engine, open, ask, &mut self.host).map(Owned::of);
        step.map_or_else(|| CheckStep::Answer(CheckReply::without_rules()), |step| self.next(step, open, ask, now))
    }

    /// Books `ask` locally; returns the exchanges for strict rules. Fails with the name of a rule that cannot refund.
    pub(super) fn book(
        &mut self,
        booking: Booking,
        kind: ClaimKind,
        ask: &mut CheckRequest,
        now: Time,
    ) -> Result<Vec<AcquireRequest>, String> {
        let memory = Arc::clone(&self.host.memory);
        let _looking = memory.look(false);
        let booked = self.engine.book(booking, ask, &mut self.host, now);
        let rules = self.engine.rules();
        let name = |rule| rules.rules().get(usize::from(rule)).map(|rule| rule.name.clone());
        let takes = booked.map_err(|rule| name(rule).unwrap_or_default())?;
        Ok(takes.iter().filter_map(|take| limit::rule_acquire(kind, take, rules)).collect())
    }

    /// Removes local refusals that a refund of `ask` at any worker has made obsolete.
    pub(super) fn given_back(&mut self, ask: &mut CheckRequest, now: Time) {
        self.engine.given_back(ask, &mut self.host, now);
    }

    /// Tokens of strict rules that the request cost beyond those it acquired, with the numbers that `settle` expects.
    pub(super) fn beyond(&self, open: &OpenRequest, costs: (u32, u32)) -> Vec<(usize, AcquireRequest)> {
        let rules = self.engine.rules();
        let acquire =
            |(number, take): (usize, Consume)| Some((number, limit::rule_acquire(ClaimKind::Charge, &take, rules)?));
        self.engine.beyond(open, costs.0, costs.1).into_iter().filter_map(acquire).collect()
    }

    /// Settles the request of `open`. `costs` is its actual cost and the number of requests that its check
    /// stood for; `booked` lists the excess that is charged already.
    pub(super) fn settle(&mut self, open: &mut OpenRequest, costs: (u32, u32), booked: &[usize], now: Time) {
        let memory = Arc::clone(&self.host.memory);
        let _looking = memory.look(false);
        self.engine.settle(open, costs, booked, &mut self.host, now);
    }

    pub(super) fn rules(&self) -> &RuleSet {
        self.engine.rules()
    }

    /// Cancels a request that was not decided yet.
    pub(super) fn give_up(&mut self, open: &mut OpenRequest, now: Time) {
        self.held.remove(&open.id());
        let memory = Arc::clone(&self.host.memory);
        let _looking = memory.look(false);
        self.engine.end(open, &mut self.host, now);
    }

    fn next(&mut self, step: Owned, open: &mut OpenRequest, ask: &CheckRequest, now: Time) -> CheckStep {
        let ruled = self.host.ruled.take();
        let taken = ruled.as_ref().is_some_and(DecisionDetails::has_taken);
        if ask.purpose == CheckPurpose::Peek && taken {
            self.engine.take_back(open, &mut self.host, now);
        } else if ask.purpose == CheckPurpose::Charge {
            // The request is finished.
            self.engine.settle(open, (ask.hits, ask.hits), &[], &mut self.host, now);
        } else if ask.reserve_s.is_none() {
            // Nobody will settle the actual cost.
            self.engine.keep_estimates(open, &mut self.host, now);
        }
        let reply = ruled.map(|ruled| ruled.reply(self.engine.rules(), unix_ns()));
        let mut reply = reply.unwrap_or_else(CheckReply::allowed);
        let is_held = match step {
            Owned::Call(call) => return CheckStep::Call(call),
            Owned::Take(take) => {
                let acquire = limit::rule_acquire(ClaimKind::Take, &take, self.engine.rules());
                return acquire.map_or_else(
                    || CheckStep::Answer(CheckReply::without_rules()),
                    |acquire| CheckStep::Take(Box::new(acquire)),
                );
            }
            Owned::Answer { status, headers, body } => {
                return CheckStep::Answer(CheckReply { status, headers, body, ..reply });
            }
            Owned::Hold => true,
            Owned::Continue => false,
        };
        self.engine.add_headers(open, &mut ReplyHeaders(&mut reply.headers), &mut self.host);
        if !is_held {
            return CheckStep::Answer(reply);
        }
        let (resume, turn) = oneshot::channel();
        self.held.insert(open.id(), resume);
        CheckStep::Hold(reply, turn)
    }
}

/// A step that does not borrow from its engine.
enum Owned {
    Continue,
    Hold,
    Call(SyncCall),
    Take(Box<Consume>),
    Answer { status: u16, headers: Vec<(String, String)>, body: String },
}

impl Owned {
    fn of(decided: RequestDecision<'_>) -> Self {
        match decided.step {
            RequestStep::Continue => Self::Continue,
            RequestStep::Hold => Self::Hold,
            RequestStep::Call(call) => Self::Call(call),
            RequestStep::Take(take) => Self::Take(take),
            RequestStep::Answer(answer) => {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let headers = unpacked(answer.headers).map(|(name, value)| (text(name), text(value))).collect();
                Self::Answer { status: answer.status, headers, body: answer.body.into() }
            }
        }
    }
}
