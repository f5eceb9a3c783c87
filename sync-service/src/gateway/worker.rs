//! One worker: an edge, and the requests that it holds.

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

/// A worker; its lock is held for a decision, and never while something is awaited.
pub(super) struct Worker {
    state: Mutex<State>,
    /// How often it ticks, in milliseconds.
    tick_ms: AtomicU32,
    /// Whether it runs the fleet's rules, of whichever version.
    runs_rules: AtomicBool,
    counts: Arc<Counts>,
}

pub(super) struct State {
    edge: Edge,
    site: Handle,
    /// Requests that wait for their turns, by their numbers.
    held: HashMap<u32, oneshot::Sender<()>>,
    numbered: u32,
    /// The rules whose decisions are counted, in their order; none before it runs the fleet's.
    counted: Vec<String>,
}

/// What is next for a request.
pub(super) enum Next {
    Answer(Verdict),
    /// The verdict is for when its turn has come.
    Hold(Verdict, oneshot::Receiver<()>),
    Call(Call),
    /// Have the store give this.
    Take(Box<Draw>),
}

/// Collects what a client is told.
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
    /// A worker with this plugin configuration.
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

    /// Its state, if no other request is being decided by it.
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

    /// How often it ticks.
    pub(super) fn pace(&self) -> Duration {
        Duration::from_millis(self.tick_ms.load(Ordering::Relaxed).into())
    }

    /// Whether it runs the fleet's rules, of whichever version.
    pub(super) fn runs_rules(&self) -> bool {
        self.runs_rules.load(Ordering::Acquire)
    }

    /// Its timer has fired; returns the calls to make.
    pub(super) fn tick(&self, now: Time) -> Vec<Call> {
        self.act(|edge, site| edge.tick(site, now))
    }

    /// It ends; returns the calls to make.
    pub(super) fn part(&self, now: Time) -> Vec<Call> {
        self.act(|edge, site| edge.part(site, now))
    }

    /// A call that no request waits for is answered; returns the calls to make.
    pub(super) fn answered(&self, number: u64, answer: Answered, now: Time) -> Vec<Call> {
        self.act(|edge, site| edge.answer(number, answer, site, now))
    }

    /// Has the edge `act` while no request only asks.
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
                // Its client may have left.
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

/// No answer is for a gRPC client here: a door says in its own way what is to be told.
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

    /// Decides a request that has waited for a call. None if it does not wait for this one.
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

    /// Decides a request that has waited for what it takes; none if the store is out of reach. None if it does not wait.
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

    /// Books `ask`. Returns what the budgets of strict rules are to be asked for, or a rule that cannot give back.
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

    /// What `ask` gives back was given back, at any worker.
    pub(super) fn given_back(&mut self, ask: &mut Ask, now: Time) {
        self.edge.given_back(ask, &mut self.site, now);
    }

    /// Tells the edge what `ask` is asked for, and whether it reserves. What is returned is held until its step is taken.
    fn turn_to<'a>(&mut self, ask: &Ask, memory: &'a Memory) -> Looking<'a> {
        let is_peek = ask.purpose == Purpose::Peek;
        let looking = Looking::of(memory, is_peek);
        self.edge.only_asks(is_peek);
        self.edge.books(ask.purpose == Purpose::Charge);
        self.edge.reserves(ask.reserve_s.is_some());
        looking
    }

    /// What the request of `open` cost beyond what it drew, under strict rules: to be booked, by the numbers for `settle`.
    pub(super) fn beyond(&self, open: &Open, costs: (u32, u32)) -> Vec<(usize, Draw)> {
        let rules = self.edge.rules();
        let draw = |(number, take): (usize, Take)| Some((number, taking::draw(Kind::Charge, &take, rules)?));
        self.edge.beyond(open, costs.0, costs.1).into_iter().filter_map(draw).collect()
    }

    /// The request of `open` cost the first of `costs`, of as many requests as the second says; some of it is `booked`.
    pub(super) fn settle(&mut self, open: &mut Open, costs: (u32, u32), booked: &[usize], now: Time) {
        let memory = Arc::clone(&self.site.memory);
        let _looking = Looking::of(&memory, false);
        self.edge.settle(open, costs, booked, &mut self.site, now);
    }

    /// The rules that it runs.
    pub(super) fn rules(&self) -> &RuleSet {
        self.edge.rules()
    }

    /// How many requests wait for their turns.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// The request was given up before it was decided.
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
            // It is over.
            self.edge.settle(open, (ask.hits, ask.hits), &[], &mut self.site, now);
        } else if ask.reserve_s.is_none() {
            // Nobody is going to say what it cost.
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

/// Keeps what a peek takes, for a moment, from the eyes of the other workers.
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

/// A step that borrows nothing of its edge.
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
