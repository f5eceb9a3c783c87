//! One configuration in one worker: the root context, the engine with its host state, and requests.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use weir_limiter::counters::Gauge;
use weir_limiter::engine::{
    CallResult, Caller, Effect, Engine, Host as _, LocalReply, LogLevel, OpenRequest, Progress, Proxy, SyncCall, Unread,
};
use weir_limiter::table::Sample;
use weir_protocol::time::Time;
use weir_rules::config::CONFIG_BYTES_MAX;

use crate::host::{self, Action, HostBuffer};
use crate::http::{self, HostRequest, HostResponse};
use crate::metrics::Metrics;
use crate::shared::ProcessState;

pub(crate) struct Plugin {
    context: u32,
    /// Decides requests; `None` before the first valid configuration.
    pub(crate) worker: Option<Rc<RefCell<Worker>>>,
}

impl Plugin {
    pub(crate) fn new(context: u32) -> Self {
        Self { context, worker: None }
    }

    /// Runs `act` on the worker; `None` if it is missing or borrowed.
    fn with_worker<T>(&self, act: impl FnOnce(&mut Worker) -> T) -> Option<T> {
        Some(act(&mut *self.worker.as_ref()?.try_borrow_mut().ok()?))
    }

    /// Puts a configuration into force; false if it is refused.
    pub(crate) fn on_configure(&mut self, size: usize) -> bool {
        // One byte more than allowed, which is then refused. A larger configuration must not fill the memory.
        let size = size.min(CONFIG_BYTES_MAX + 1);
        let bytes = host::buffer(HostBuffer::PluginConfiguration, size)
            .map_err(|status| vec![format!("the host gave no plugin configuration: status {}", status.0)]);
        let errors = match bytes.and_then(|bytes| Worker::configure(&bytes)) {
            Ok((worker, effects)) => {
                self.worker = Some(Rc::new(RefCell::new(worker)));
                // A new engine numbers its calls from the start.
                http::forget_calls(self.context);
                self.perform(effects);
                return true;
            }
            Err(errors) => errors,
        };
        for error in errors {
            host::log(LogLevel::Error, &error);
        }
        host::log(
            LogLevel::Error,
            "the configuration is refused: correct the places above; keeping the previous configuration",
        );
        false
    }

    pub(crate) fn on_tick(&mut self) {
        let effects = self.with_worker(|worker| {
            let now = worker.clock.now();
            worker.engine.tick(&mut worker.process, now)
        });
        self.perform(effects.unwrap_or_default());
    }

    pub(crate) fn answered(&mut self, number: u64, answer: CallResult) {
        let effects = self.with_worker(|worker| {
            let now = worker.clock.now();
            worker.engine.answer(number, answer, &mut worker.process, now)
        });
        self.perform(effects.unwrap_or_default());
    }

    /// Ends the plugin: flushes its metrics, and hands over unreported counts to the remaining workers.
    pub(crate) fn end(&mut self) {
        http::forget_calls(self.context);
        self.with_worker(|worker| {
            worker.flush_metrics();
            worker.engine.leave(&mut worker.process);
        });
    }

    /// Carries out the engine's effects. The worker is not borrowed while another context, which may end, is active.
    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Resume(request) => {
                    // Fails if the request's client has disconnected.
                    let _ = host::act_for(request).and_then(|()| host::resume_request());
                    let _ = host::act_for(self.context);
                }
                Effect::Call(call) => {
                    let made = self.with_worker(|worker| {
                        worker.caller.as_ref().map_or(Ok(()), |caller| http::make_call(caller, &call, self.context))
                    });
                    if let Some(Err(trouble)) = made {
                        self.answered(call.number, Err(Unread::NotMade(trouble)));
                    }
                }
                Effect::SetTimer(period_ms) => {
                    if let Err(status) = host::set_tick_period_ms(period_ms) {
                        let text = format!("the host has no timer (status {}): no metrics, sync and queues", status.0);
                        host::log(LogLevel::Warn, &text);
                        self.with_worker(|worker| worker.engine.has_no_timer());
                    }
                }
                Effect::Log(level, text) => host::log(level, &text),
                Effect::Flush => {
                    self.with_worker(Worker::flush_metrics);
                }
                Effect::NewRules(mut counted) => {
                    self.with_worker(|worker| {
                        worker.metrics.flush(&mut counted);
                        worker.metrics.define_rules(worker.engine.rules());
                    });
                }
                Effect::Running(running) => {
                    self.with_worker(|worker| {
                        worker.metrics.show(Gauge::Running, running.version);
                        worker.metrics.show(Gauge::Refused, running.refused);
                    });
                }
            }
        }
    }
}

pub(crate) struct Worker {
    engine: Engine,
    process: ProcessState,
    clock: HostClock,
    metrics: Metrics,
    sample: Sample,
    /// `None` if no weir-sync is configured.
    caller: Option<Caller>,
}

impl Worker {
    /// Creates a worker with this configuration and its first effects. Returns all errors, each with its place.
    fn configure(bytes: &[u8]) -> Result<(Self, Vec<Effect>), Vec<String>> {
        let (mut process, mut clock) = (ProcessState::new(), HostClock::default());
        let (engine, effects) = Engine::configure(bytes, &mut process, clock.now())?;
        let metrics = Metrics::define(engine.rules(), engine.sync().is_some());
        let caller = engine.sync().map(Caller::new);
        Ok((Self { engine, process, clock, metrics, sample: Sample::default(), caller }, effects))
    }

    fn flush_metrics(&mut self) {
        let now = self.engine.time(self.clock.now());
        self.metrics.flush(self.engine.counters());
        if let Some(places) = self.sample.look(self.process.slots(), now) {
            self.metrics.show(Gauge::EntriesUsed, places);
        }
        if let Some(step) = self.engine.connectivity(now) {
            self.metrics.show(Gauge::SyncState, step as u64);
        }
    }

    /// Decides a request whose headers have arrived, or that has waited for the call in `answered`, and carries out the
    /// decision. `is_without_body` is true if the request ends with its headers.
    fn decide(
        &mut self,
        open: &mut OpenRequest,
        context: u32,
        is_without_body: bool,
        answered: Option<(u64, CallResult)>,
    ) -> Action {
        let now = self.clock.now();
        let Self { engine, process, caller, .. } = self;
        let (mut request, mut proxy) =
            (HostRequest::new(is_without_body), Undecided { caller: caller.as_ref(), context });
        match engine.drive(open, answered, &mut request, (process, now), &mut proxy) {
            Some(Progress::Continues) => Action::Continue,
            // Held, answered, or waiting for another call.
            _ => Action::Pause,
        }
    }
}

struct Undecided<'a> {
    caller: Option<&'a Caller>,
    context: u32,
}

impl Proxy for Undecided<'_> {
    fn set_filter_state(&mut self, name: &str, value: &str) {
        // The host adds the prefix `wasm.`. A host without filter state does not log the value; the decision stands.
        let _ = host::set_property(name.strip_prefix("wasm.").unwrap_or(name), value);
    }

    fn call(&mut self, call: &SyncCall) -> Result<(), String> {
        let caller = self.caller.ok_or("there is no sync section")?;
        http::make_call(caller, call, self.context)
    }

    fn answer(&mut self, answer: &LocalReply<'_>) -> bool {
        let sent = host::send_response(answer.status, answer.details, answer.headers, answer.body);
        if let Err(status) = sent {
            host::log(LogLevel::Warn, &format!("the host did not take a local response: status {}", status.0));
        }
        sent.is_ok()
    }
}

/// A request. Without a worker, before the first valid configuration, all requests are allowed.
pub(crate) struct RequestContext {
    worker: Option<Rc<RefCell<Worker>>>,
    open: OpenRequest,
    context: u32,
}

impl RequestContext {
    pub(crate) fn new(worker: Option<Rc<RefCell<Worker>>>, context: u32) -> Self {
        Self { worker, open: OpenRequest::new(context), context }
    }

    pub(crate) fn has_more_to_do(&self) -> bool {
        !self.open.is_done()
    }

    /// Handles the reply to the call `number`, and carries out the decision.
    pub(crate) fn answered(&mut self, number: u64, answer: CallResult) {
        let Some(mut worker) = free(self.worker.as_ref()) else { return };
        let action = worker.decide(&mut self.open, self.context, false, Some((number, answer)));
        // Released first, because the request may end in the call below.
        drop(worker);
        if action == Action::Continue {
            // The host may have dropped the request meanwhile.
            let _ = host::resume_request();
        }
    }

    pub(crate) fn on_request_headers(&mut self, is_without_body: bool) -> Action {
        let Some(mut worker) = free(self.worker.as_ref()) else { return Action::Continue };
        worker.decide(&mut self.open, self.context, is_without_body, None)
    }

    pub(crate) fn on_response_headers(&mut self) -> Action {
        if self.has_more_to_do()
            && let Some(mut worker) = free(self.worker.as_ref())
        {
            let Worker { engine, process, clock, .. } = &mut *worker;
            // Only a charge needs the time.
            let now = if self.open.awaits_cost() { clock.now() } else { clock.latest() };
            engine.response(&mut self.open, &mut HostResponse, process, now);
        }
        Action::Continue
    }

    /// Handles the end of the response, complete or not: charges costs by its size or its metadata.
    pub(crate) fn on_end(&mut self) {
        if self.open.awaits_cost()
            && let Some(mut worker) = free(self.worker.as_ref())
        {
            let Worker { engine, process, clock, .. } = &mut *worker;
            engine.response_sent(&mut self.open, &mut HostResponse, process, clock.now());
        }
    }
}

impl Drop for RequestContext {
    /// Ends the request for any reason. Its client may have disconnected while it waited.
    fn drop(&mut self) {
        if !self.has_more_to_do() {
            return;
        }
        http::forget_calls(self.context);
        if let Some(mut worker) = free(self.worker.as_ref()) {
            let Worker { engine, process, clock, .. } = &mut *worker;
            engine.end(&mut self.open, process, clock.now());
        }
    }
}

/// Borrows the worker; `None` if it is in use, because the host may call back while it acts.
fn free(worker: Option<&Rc<RefCell<Worker>>>) -> Option<RefMut<'_, Worker>> {
    worker?.try_borrow_mut().ok()
}

/// The monotonic clock or, on a host without one, the wall clock, kept from going back. The two are never mixed: if the
/// monotonic clock fails once, the last time is used again.
#[derive(Default)]
struct HostClock {
    is_monotonic: bool,
    latest_ns: u64,
}

impl HostClock {
    fn now(&mut self) -> Time {
        match host::monotonic_ns() {
            Some(ns) => (self.is_monotonic, self.latest_ns) = (true, ns),
            None if self.is_monotonic => {}
            None => self.latest_ns = self.latest_ns.max(host::unix_ns()),
        }
        self.latest()
    }

    fn latest(&self) -> Time {
        Time::from_nanos(self.latest_ns)
    }
}
