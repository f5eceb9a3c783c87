//! A worker: an engine and the requests that it holds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

use tokio::sync::oneshot;
use weir_budget::escrow::{Draw, Kind};
use weir_limiter::edge::{
    Answered, Booking, Call, Decided, Edge, Effect, HostRules, Level, Open, Response, Step, Take, Taken,
};
use weir_rules::RuleSet;
use weir_wire::time::Time;

use super::ask::{Ask, Purpose};
use super::counts::Counts;
use super::site::{Handle, Memory, unix_ns, unpack};
use super::taking;
use super::verdict::{Ruled, Verdict};

/// A worker. Its lock is held during a decision, and never across an await.
pub(super) struct Worker {
    state: Mutex<State>,
    /// Interval between ticks, in milliseconds.
    tick_ms: AtomicU32,
    /// True once it runs a version of the fleet's rules.
    runs_rules: AtomicBool,
    counts: Arc<Counts>,
}

pub(super) struct State {
    edge: Edge,
    site: Handle,
    /// Requests that wait for their turn, by number.
    held: HashMap<u32, oneshot::Sender<()>>,
    numbered: u32,
    /// Names of the rules whose decisions are counted, in their order. Empty before it runs the fleet's rules.
    counted: Vec<String>,
}

/// Next step for a request.
pub(super) enum Next {
    Answer(Verdict),
    /// Wait, then answer with this decision.
    Hold(Verdict, oneshot::Receiver<()>),
    Call(Call),
    /// Consume these tokens from the store.
    Take(Box<Draw>),
}

/// Collector of the headers for a client.
struct Told<'a>(&'a mut Vec<(String, String)>);

impl Response for Told<'_> {
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
    /// Worker with this plugin configuration.
    pub(super) fn new(
        configuration: &[u8],
        memory: &Arc<Memory>,
        counts: &Arc<Counts>,
        now: Time,
    ) -> Result<Self, Vec<String>> {
        let mut site = Handle::new(memory);
        let (mut edge, effects) = Edge::configure(configuration, HOST, &mut site, now)?;
        edge.let_take();
        let state = State { edge, site, held: HashMap::new(), numbered: 0, counted: Vec::new() };
        let worker = Self {
            state: Mutex::new(state),
            tick_ms: AtomicU32::new(250),
            runs_rules: AtomicBool::new(false),
            counts: Arc::clone(counts),
        };
        worker.take_in(&mut worker.state(), effects);
        Ok(worker)
    }

    /// State of the worker; none if it is busy with another decision.
    pub(super) fn free(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Interval between ticks.
    pub(super) fn pace(&self) -> Duration {
        Duration::from_millis(self.tick_ms.load(Ordering::Relaxed).into())
    }

    /// True once it runs a version of the fleet's rules.
    pub(super) fn runs_rules(&self) -> bool {
        self.runs_rules.load(Ordering::Acquire)
    }

    /// Runs the timer and returns the calls to make.
    pub(super) fn tick(&self, now: Time) -> Vec<Call> {
        self.act(|edge, site| edge.tick(site, now))
    }

    /// Ends the worker and returns the calls to make.
    pub(super) fn part(&self, now: Time) -> Vec<Call> {
        self.act(|edge, site| edge.part(site, now))
    }

    /// Applies the answer to a call that no request waits for. Returns the calls to make.
    pub(super) fn answered(&self, number: u64, answer: Answered, now: Time) -> Vec<Call> {
        self.act(|edge, site| edge.answer(number, answer, site, now))
    }

    /// Runs `act` on the engine while no peek is in progress.
    fn act(&self, act: impl FnOnce(&mut Edge, &mut Handle) -> Vec<Effect>) -> Vec<Call> {
        let mut state = self.state();
        let State { edge, site, .. } = &mut *state;
        let memory = Arc::clone(&site.memory);
        let looking = Looking::of(&memory, false);
        let effects = act(edge, site);
        drop(looking);
        self.take_in(&mut state, effects)
    }

    fn take_in(&self, state: &mut State, effects: Vec<Effect>) -> Vec<Call> {
        let mut calls = Vec::new();
        for effect in effects {
            match effect {
                // Its client may have disconnected.
                Effect::Resume(id) => drop(state.held.remove(&id).map(|held| held.send(()))),
                Effect::Call(call) => calls.push(call),
                Effect::SetTimer(ms) => self.tick_ms.store(ms.max(1), Ordering::Relaxed),
                Effect::Log(Level::Error, text) => tracing::error!("gateway: {text}"),
                Effect::Log(Level::Warn, text) => tracing::warn!("gateway: {text}"),
                Effect::Log(Level::Info, text) => tracing::debug!("gateway: {text}"),
                Effect::Flush => self.counts.add(state.edge.counters(), &state.counted),
                Effect::NewRules(mut counted) => {
                    self.counts.add(&mut counted, &state.counted);
                    let names = state.edge.rules().rules().iter().map(|rule| rule.name.clone());
                    state.counted = self.counts.define(names);
                }
                Effect::Running(running) => self.runs_rules.store(running.version > 0, Ordering::Release),
            }
        }
        calls
    }
}

/// gRPC responses are not prepared here: each API formats its own.
const HOST: HostRules = HostRules { answers_grpc: false, has_heirs: false, hears_decisions: true };

impl State {
    /// Begins a request.
    pub(super) fn open(&mut self) -> Open {
        self.numbered = self.numbered.wrapping_add(1);
        Open::new(self.numbered)
    }

    /// Decides a request.
    pub(super) fn ask(&mut self, open: &mut Open, ask: &mut Ask, now: Time) -> Next {
        let memory = Arc::clone(&self.site.memory);
        let _looking = self.turn_to(ask, &memory);
        let step = Owned::of(self.edge.request(open, ask, &mut self.site, now));
        self.next(step, open, ask, now)
    }

    /// Continues a request with the answer to a call. None if it does not wait for this call.
    pub(super) fn ask_again(
        &mut self,
        open: &mut Open,
        answer: (u64, Answered),
        ask: &mut Ask,
        now: Time,
    ) -> Option<Next> {
        let memory = Arc::clone(&self.site.memory);
        let _looking = self.turn_to(ask, &memory);
        let step = Owned::of(self.edge.answer_request(open, answer, ask, &mut self.site, now)?);
        Some(self.next(step, open, ask, now))
    }

    /// Continues a request with the tokens from the store. `taken` is none if the store is out of reach. None
    /// if the request does not wait for them.
    pub(super) fn taken(
        &mut self,
        open: &mut Open,
        taken: Option<Taken>,
        ask: &mut Ask,
        now: Time,
    ) -> Option<Next> {
        let memory = Arc::clone(&self.site.memory);
        let _looking = self.turn_to(ask, &memory);
        let step = Owned::of(self.edge.taken(open, taken, ask, &mut self.site, now)?);
        Some(self.next(step, open, ask, now))
    }

    /// Books `ask` locally. Returns the exchanges for budgets of strict rules. Fails with the name of a rule
    /// that cannot refund.
    pub(super) fn book(
        &mut self,
        booking: Booking,
        kind: Kind,
        ask: &mut Ask,
        now: Time,
    ) -> Result<Vec<Draw>, String> {
        let memory = Arc::clone(&self.site.memory);
        let _looking = Looking::of(&memory, false);
        let booked = self.edge.book(booking, ask, &mut self.site, now);
        let rules = self.edge.rules();
        let name = |rule| rules.rules().get(usize::from(rule)).map(|rule| rule.name.clone());
        let takes = booked.map_err(|rule| name(rule).unwrap_or_default())?;
        Ok(takes.iter().filter_map(|take| taking::draw(kind, take, rules)).collect())
    }

    /// Removes local refusals that a refund of `ask` at any worker has made obsolete.
    pub(super) fn given_back(&mut self, ask: &mut Ask, now: Time) {
        self.edge.given_back(ask, &mut self.site, now);
    }

    /// Sets the engine's mode for `ask`. The result is a lock that must be held until the step is taken.
    fn turn_to<'a>(&mut self, ask: &Ask, memory: &'a Memory) -> Looking<'a> {
        let is_peek = ask.purpose == Purpose::Peek;
        let looking = Looking::of(memory, is_peek);
        self.edge.only_asks(is_peek);
        self.edge.books(ask.purpose == Purpose::Charge);
        self.edge.reserves(ask.reserve_s.is_some());
        looking
    }

    /// Tokens of strict rules that the request of `open` cost beyond those it acquired, with the numbers that
    /// `settle` expects.
    pub(super) fn beyond(&self, open: &Open, costs: (u32, u32)) -> Vec<(usize, Draw)> {
        let rules = self.edge.rules();
        let draw = |(number, take): (usize, Take)| Some((number, taking::draw(Kind::Charge, &take, rules)?));
        self.edge.beyond(open, costs.0, costs.1).into_iter().filter_map(draw).collect()
    }

    /// Settles the request of `open`. `costs` is its actual cost and the number of requests that its check
    /// stood for; `booked` lists the excess that is charged already.
    pub(super) fn settle(&mut self, open: &mut Open, costs: (u32, u32), booked: &[usize], now: Time) {
        let memory = Arc::clone(&self.site.memory);
        let _looking = Looking::of(&memory, false);
        self.edge.settle(open, costs, booked, &mut self.site, now);
    }

    /// The rules that it runs.
    pub(super) fn rules(&self) -> &RuleSet {
        self.edge.rules()
    }

    /// Number of requests that wait for their turn.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Cancels a request that was not decided yet.
    pub(super) fn give_up(&mut self, open: &mut Open, now: Time) {
        self.held.remove(&open.id());
        let memory = Arc::clone(&self.site.memory);
        let _looking = Looking::of(&memory, false);
        self.edge.end(open, &mut self.site, now);
    }

    fn next(&mut self, step: Owned, open: &mut Open, ask: &Ask, now: Time) -> Next {
        let ruled = self.site.ruled.take();
        let taken = ruled.as_ref().is_some_and(Ruled::has_taken);
        if ask.purpose == Purpose::Peek && taken {
            self.edge.take_back(open, &mut self.site, now);
        } else if ask.purpose == Purpose::Charge {
            // The request is finished.
            self.edge.settle(open, (ask.hits, ask.hits), &[], &mut self.site, now);
        } else if ask.reserve_s.is_none() {
            // Nobody will settle the actual cost.
            self.edge.keep_estimates(open, &mut self.site, now);
        }
        let verdict = ruled.map(|ruled| ruled.verdict(self.edge.rules(), unix_ns()));
        let mut verdict = verdict.unwrap_or_else(Verdict::allowed);
        let is_held = match step {
            Owned::Call(call) => return Next::Call(call),
            Owned::Take(take) => {
                let draw = taking::draw(Kind::Take, &take, self.edge.rules());
                return draw.map_or_else(
                    || Next::Answer(Verdict::without_rules()),
                    |draw| Next::Take(Box::new(draw)),
                );
            }
            Owned::Answer { status, headers, body } => {
                return Next::Answer(Verdict { status, headers, body, ..verdict });
            }
            Owned::Hold => true,
            Owned::Continue => false,
        };
        self.edge.tell(open, &mut Told(&mut verdict.headers), &mut self.site);
        if !is_held {
            return Next::Answer(verdict);
        }
        let (resume, turn) = oneshot::channel();
        self.held.insert(open.id(), resume);
        Next::Hold(verdict, turn)
    }
}

/// Lock that hides the tokens which a peek briefly consumes from the other workers.
enum Looking<'a> {
    Alone { _guard: RwLockWriteGuard<'a, ()> },
    Together { _guard: RwLockReadGuard<'a, ()> },
}

impl<'a> Looking<'a> {
    fn of(memory: &'a Memory, is_peek: bool) -> Self {
        let looking = &memory.looking;
        if is_peek {
            Self::Alone { _guard: looking.write().unwrap_or_else(PoisonError::into_inner) }
        } else {
            Self::Together { _guard: looking.read().unwrap_or_else(PoisonError::into_inner) }
        }
    }
}

/// A step that does not borrow from its engine.
enum Owned {
    Continue,
    Hold,
    Call(Call),
    Take(Box<Take>),
    Answer { status: u16, headers: Vec<(String, String)>, body: String },
}

impl Owned {
    fn of(decided: Decided<'_>) -> Self {
        match decided.step {
            Step::Continue => Self::Continue,
            Step::Hold => Self::Hold,
            Step::Call(call) => Self::Call(call),
            Step::Take(take) => Self::Take(take),
            Step::Answer(answer) => Self::Answer {
                status: answer.status,
                headers: unpack(answer.headers),
                body: answer.body.into(),
            },
        }
    }
}
