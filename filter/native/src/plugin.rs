//! One configuration: an engine for each worker, with the requests it holds; an engine that reports for all workers;
//! ticks; and responses that no request waits for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use weir_limiter::counters::Gauge;
use weir_limiter::engine::{
    CallResult, Caller, Effect, Engine, Host as _, LocalReply, OpenRequest, Progress, Proxy, SyncCall, Unread, unpacked,
};
use weir_limiter::table::Sample;
use weir_rules::config::PluginConfig;
use weir_rules::reading::ConfigError;

use crate::abi::{self, ConfigHandle, HeadersStatus, Scheduler, StreamHandle};
use crate::http::HostRequest;
use crate::locked;
use crate::metrics::Metrics;
use crate::process::{Timer, WorkerHandle, now};

pub(crate) struct Plugin {
    /// By Envoy's worker index. With a weir-sync, the last one is the reporter.
    workers: Box<[Mutex<Worker>]>,
    count: usize,
    metrics: Metrics,
    timer: Timer,
    /// The worker and the engine's number of each call in progress, by Envoy's id. Envoy's timeout ends every call.
    calls: Mutex<HashMap<u64, (usize, u64)>>,
    config: Mutex<ConfigHandle>,
    sample: Mutex<Sample>,
}

impl Plugin {
    /// Puts a configuration of the filter `name` into force. Returns all errors, each with its place.
    pub(crate) fn new(config: ConfigHandle, name: &str, bytes: &[u8]) -> Result<Self, Vec<String>> {
        let read = |error: &ConfigError| error.to_string();
        let written = PluginConfig::parse(bytes).map_err(|errors| errors.iter().map(read).collect::<Vec<_>>())?;
        let (has_sync, count) = (written.sync.is_some(), abi::concurrency().max(1) as usize);
        let (mut workers, mut first) = (Vec::new(), Vec::new());
        for number in 0..count + usize::from(has_sync) {
            let (mut worker, mut effects) = Worker::begin(name, &written)?;
            if number == count {
                worker.engine.become_reporter();
            }
            // All workers log the same about the configuration, so only the first one's log is kept.
            effects.retain(|effect| number == 0 || !matches!(effect, Effect::Log(..)));
            workers.push(worker);
            first.push(effects);
        }
        let metrics = Metrics::define(config, has_sync);
        if let Some(counted) = workers.first().map(|worker| metrics.names(worker.engine.rules(), config)) {
            for worker in &mut workers {
                worker.counted.clone_from(&counted);
            }
        }
        let period = |effect: &Effect| if let Effect::SetTimer(period_ms) = effect { Some(*period_ms) } else { None };
        let period_ms = first.iter().flatten().find_map(period).unwrap_or(1_000);
        let timer = Timer::start(period_ms, config.scheduler());
        let plugin = Self {
            workers: workers.into_iter().map(Mutex::new).collect(),
            count,
            metrics,
            timer,
            calls: Mutex::default(),
            config: Mutex::new(config),
            sample: Mutex::default(),
        };
        for (number, effects) in first.into_iter().enumerate() {
            plugin.perform(number, effects, config);
        }
        Ok(plugin)
    }

    pub(crate) fn worker(&self, number: usize) -> Option<&Mutex<Worker>> {
        self.serving().get(number)
    }

    fn serving(&self) -> &[Mutex<Worker>] {
        self.workers.get(..self.count).unwrap_or_default()
    }

    /// Ticks all engines, on the main thread. The reporter is first, so that it sends the POP's greeting.
    pub(crate) fn on_tick(&self, config: ConfigHandle) {
        self.timer.has_ticked();
        if let Some(reporter) = self.workers.get(self.count) {
            if locked(reporter).engine.is_about_to_report() {
                self.gather(reporter);
            }
            let effects = self.act(self.count, |engine, seat| engine.tick(seat, now()));
            self.perform(self.count, effects, config);
        }
        for number in 0..self.count {
            let effects = self.tick(number);
            self.perform(number, effects, config);
        }
    }

    /// Ticks a worker. Its requests since the reporter last gathered are left for the reporter's next report.
    fn tick(&self, number: usize) -> Vec<Effect> {
        let mut reporter = self.workers.get(self.count).map(locked);
        self.act(number, |engine, seat| {
            if let Some(reporter) = reporter.as_mut().filter(|_| engine.is_about_to_report()) {
                reporter.engine.gather(engine, now());
            }
            engine.tick(seat, now())
        })
    }

    fn gather(&self, reporter: &Mutex<Worker>) {
        let reporter = &mut locked(reporter).engine;
        for worker in self.serving() {
            reporter.gather(&mut locked(worker).engine, now());
        }
    }

    pub(crate) fn on_answer(&self, callout: u64, answer: CallResult, config: ConfigHandle) {
        let Some((number, call)) = locked(&self.calls).remove(&callout) else { return };
        self.answered(number, call, answer, config);
    }

    fn answered(&self, number: usize, call: u64, answer: CallResult, config: ConfigHandle) {
        let effects = self.act(number, |engine, seat| engine.answer(call, answer, seat, now()));
        self.perform(number, effects, config);
    }

    /// Runs `act` on an engine, then drops the local cache entries of the workers that the reporter found outdated.
    fn act(&self, number: usize, act: impl FnOnce(&mut Engine, &mut WorkerHandle) -> Vec<Effect>) -> Vec<Effect> {
        let Some(worker) = self.workers.get(number) else { return Vec::new() };
        let (effects, forgotten) = {
            let Worker { engine, seat, .. } = &mut *locked(worker);
            (act(engine, seat), engine.take_forgotten())
        };
        if !forgotten.is_empty() {
            for worker in self.serving() {
                locked(worker).engine.forget_denials(&forgotten);
            }
        }
        effects
    }

    /// Ends the configuration: flushes its metrics, and hands over unreported counts to the remaining workers.
    pub(crate) fn finish(&self) {
        let config = *locked(&self.config);
        if let Some(reporter) = self.workers.get(self.count) {
            self.gather(reporter);
        }
        for worker in &self.workers {
            let mut worker = locked(worker);
            self.flush(&mut worker, config);
            let Worker { engine, seat, .. } = &mut *worker;
            engine.leave(seat);
        }
    }

    fn flush(&self, worker: &mut Worker, config: ConfigHandle) {
        self.metrics.flush(worker.engine.counters(), &worker.counted, config);
        let now = worker.engine.time(now());
        if let Some(step) = worker.engine.connectivity(now) {
            self.metrics.show(Gauge::SyncState, step as u64, config);
        }
        if let Some(places) = locked(&self.sample).look(worker.seat.slots(), now) {
            self.metrics.show(Gauge::EntriesUsed, places, config);
        }
    }

    /// Carries out the effects of a worker's engine. The worker is not locked during a call.
    fn perform(&self, number: usize, effects: Vec<Effect>, config: ConfigHandle) {
        let Some(worker) = self.workers.get(number) else { return };
        for effect in effects {
            match effect {
                // No longer held if its client has disconnected.
                Effect::Resume(id) => {
                    if let Some(held) = locked(worker).held.remove(&id) {
                        held.run();
                    }
                }
                Effect::Call(call) => {
                    let caller = locked(worker).caller.clone();
                    let caller = caller.ok_or_else(|| "there is no sync section".to_owned());
                    match caller.and_then(|caller| config.call(&caller, &call)) {
                        Ok(callout) => drop(locked(&self.calls).insert(callout, (number, call.number))),
                        Err(trouble) => {
                            self.answered(number, call.number, Err(Unread::NotMade(trouble)), config);
                        }
                    }
                }
                Effect::SetTimer(period_ms) => {
                    self.timer.set(period_ms);
                    if !self.timer.ticks() {
                        locked(worker).engine.has_no_timer();
                    }
                }
                Effect::Log(level, text) => abi::log(level, &text),
                Effect::Flush => self.flush(&mut locked(worker), config),
                Effect::NewRules(mut counted) => {
                    let mut worker = locked(worker);
                    self.metrics.flush(&mut counted, &worker.counted, config);
                    worker.counted = self.metrics.names(worker.engine.rules(), config);
                }
                Effect::Running(running) => {
                    self.metrics.show(Gauge::Running, running.version, config);
                    self.metrics.show(Gauge::Refused, running.refused, config);
                }
            }
        }
    }
}

pub(crate) struct Worker {
    pub(crate) engine: Engine,
    pub(crate) seat: WorkerHandle,
    /// Names under which the rules are counted, by rule index.
    counted: Vec<String>,
    held: HashMap<u32, Scheduler>,
    numbered: u32,
    /// `None` if no weir-sync is configured.
    caller: Option<Arc<Caller>>,
}

/// The decision. Its reply is sent after the worker is unlocked: the request may end meanwhile, and lock the worker.
pub(crate) type Decided = (HeadersStatus, Option<OwnedReply>);

struct Undecided<'a> {
    stream: StreamHandle,
    caller: Option<&'a Caller>,
    call: &'a mut Option<(u64, u64)>,
    reply: Option<OwnedReply>,
}

impl Proxy for Undecided<'_> {
    fn set_filter_state(&mut self, name: &str, value: &str) {
        self.stream.set_filter_state(name, value);
    }

    fn call(&mut self, call: &SyncCall) -> Result<(), String> {
        let caller = self.caller.ok_or("there is no sync section")?;
        *self.call = Some((self.stream.call(caller, call)?, call.number));
        Ok(())
    }

    fn answer(&mut self, answer: &LocalReply<'_>) -> bool {
        self.reply = Some(OwnedReply::of(answer));
        true
    }
}

pub(crate) struct OwnedReply {
    status: u16,
    /// Details, headers and body, one after another.
    bytes: Vec<u8>,
    headers_at: usize,
    body_at: usize,
}

impl Worker {
    /// Creates a worker of the filter `name` with its first effects. Returns all errors, each with its place.
    fn begin(name: &str, config: &PluginConfig) -> Result<(Self, Vec<Effect>), Vec<String>> {
        let mut seat = WorkerHandle::new(name);
        let (engine, effects) = Engine::begin(config.clone(), &mut seat, now())?;
        let caller = engine.sync().map(Caller::new).map(Arc::new);
        let worker = Self { engine, seat, counted: Vec::new(), held: HashMap::new(), numbered: 0, caller };
        Ok((worker, effects))
    }

    pub(crate) fn open(&mut self) -> OpenRequest {
        self.numbered = self.numbered.wrapping_add(1);
        OpenRequest::new(self.numbered)
    }

    /// Decides a request whose headers have arrived, or that has waited for the call in `answered`. `None` if it does
    /// not wait for that call. Sets `call` if it waits for another.
    pub(crate) fn decide(
        &mut self,
        (open, call): (&mut OpenRequest, &mut Option<(u64, u64)>),
        mut request: HostRequest,
        answered: Option<(u64, CallResult)>,
    ) -> Option<Decided> {
        let stream = request.stream;
        let Self { engine, seat, caller, held, .. } = self;
        let mut proxy = Undecided { stream, caller: caller.as_deref(), call, reply: None };
        let status = match engine.drive(open, answered, &mut request, (seat, now()), &mut proxy)? {
            Progress::Continues => HeadersStatus::Continue,
            Progress::Answered => HeadersStatus::Stop,
            Progress::Waits => HeadersStatus::Hold,
            Progress::Held => {
                held.insert(open.id(), stream.scheduler());
                HeadersStatus::Hold
            }
        };
        Some((status, proxy.reply))
    }

    pub(crate) fn end(&mut self, open: &mut OpenRequest) {
        self.held.remove(&open.id());
        self.engine.end(open, &mut self.seat, now());
    }
}

impl OwnedReply {
    fn of(answer: &LocalReply<'_>) -> Self {
        let bytes = [answer.details.as_bytes(), answer.headers, answer.body.as_bytes()].concat();
        let headers_at = answer.details.len();
        let body_at = headers_at + answer.headers.len();
        Self { status: answer.status, bytes, headers_at, body_at }
    }

    pub(crate) fn send(&self, stream: StreamHandle) {
        let (rest, body) = self.bytes.split_at_checked(self.body_at).unwrap_or_default();
        let (details, headers) = rest.split_at_checked(self.headers_at).unwrap_or_default();
        stream.respond(self.status, details, unpacked(headers), body);
    }
}
