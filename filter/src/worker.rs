//! One configuration in one worker: its engine, and the engine's host state.

use weir_limiter::engine::{CallResult, Caller, Effect, Engine, HostRules, OpenRequest, RequestStep, Unread};
use weir_limiter::table::Sample;
use weir_protocol::time::Time;

use crate::calls;
use crate::host::{self, Action};
use crate::http::HostRequest;
use crate::metrics::Metrics;
use crate::shared::ProcessState;

/// An engine, with its host state.
pub(crate) struct Worker {
    pub(crate) engine: Engine,
    pub(crate) process: ProcessState,
    pub(crate) clock: HostClock,
    pub(crate) metrics: Metrics,
    sample: Sample,
    /// `None` if no weir-sync is configured.
    pub(crate) caller: Option<Caller>,
}

impl Worker {
    /// Creates a worker with this configuration and its first effects. Returns all errors, each with its
    /// place.
    pub(crate) fn configure(bytes: &[u8]) -> Result<(Self, Vec<Effect>), Vec<String>> {
        let (mut process, mut clock) = (ProcessState::new(), HostClock::default());
        let (engine, effects) = Engine::configure(bytes, HostRules::default(), &mut process, clock.now())?;
        let metrics = Metrics::define(engine.rules(), engine.sync().is_some());
        let caller = engine.sync().map(Caller::new);
        Ok((Self { engine, process, clock, metrics, sample: Sample::default(), caller }, effects))
    }

    /// Adds the counters to the host's metrics.
    pub(crate) fn flush_metrics(&mut self) {
        let now = self.engine.time(self.clock.now());
        self.metrics.flush(self.engine.counters());
        if let Some(places) = self.sample.look(&mut self.process, now) {
            self.metrics.show_places(places);
        }
        if let Some(step) = self.engine.connectivity(now) {
            self.metrics.show(step);
        }
    }

    /// Ends the worker: flushes its metrics, and leaves unreported counts to the workers that remain.
    pub(crate) fn part(&mut self) {
        self.flush_metrics();
        self.engine.leave(&mut self.process);
    }

    /// Decides a request whose headers have arrived, or that has waited for the call in `answered`, and
    /// carries out the decision. `is_without_body` is true if the request ends with its headers.
    pub(crate) fn decide(
        &mut self,
        open: &mut OpenRequest,
        context: u32,
        is_without_body: bool,
        mut answered: Option<(u64, CallResult)>,
    ) -> Action {
        let now = self.clock.now();
        let mut request = HostRequest::new(is_without_body);
        let Self { engine, process, caller, .. } = self;
        loop {
            let decided = match answered.take() {
                None => engine.request(open, &mut request, process, now),
                Some(answer) => {
                    let decided = engine.answer_request(open, answer, &mut request, process, now);
                    // It does not wait for this call.
                    let Some(decided) = decided else { return Action::Pause };
                    decided
                }
            };
            if let Some(note) = decided.note {
                // `%FILTER_STATE(wasm.weir.decision:PLAIN)%` and `%FILTER_STATE(wasm.weir.rule:PLAIN)%`. A
                // host without filter state does not log them; the decision stands.
                let _ = host::set_property("weir.decision", note.decision);
                let _ = host::set_property("weir.rule", note.rule);
            }
            if let Some(rules) = open.take_shadow() {
                // `%FILTER_STATE(wasm.weir.shadow:PLAIN)%`.
                let _ = host::set_property("weir.shadow", &rules);
            }
            match decided.step {
                RequestStep::Continue => return Action::Continue,
                RequestStep::Hold => return Action::Pause,
                RequestStep::Answer(answer) => {
                    let sent =
                        host::send_response(answer.status, answer.details, answer.headers, answer.body);
                    // An answered request must not continue. If the host refuses the response, the request
                    // continues.
                    let Err(status) = sent else { return Action::Pause };
                    log::warn!("the host did not take a local response: status {}", status.0);
                    return Action::Continue;
                }
                RequestStep::Call(call) => {
                    let Some(caller) = caller else { return Action::Continue };
                    let Err(trouble) = calls::make(caller, &call, context) else { return Action::Pause };
                    answered = Some((call.number, Err(Unread::NotMade(trouble))));
                }
            }
        }
    }
}

/// The monotonic clock, or on a host without one, the wall clock, kept from going back. The two are never
/// mixed: if the monotonic clock fails once, the last time is used again.
#[derive(Default)]
pub(crate) struct HostClock {
    is_monotonic: bool,
    latest_ns: u64,
}

impl HostClock {
    pub(crate) fn now(&mut self) -> Time {
        match host::monotonic_ns() {
            Some(ns) => (self.is_monotonic, self.latest_ns) = (true, ns),
            None if self.is_monotonic => {}
            None => self.latest_ns = self.latest_ns.max(host::unix_ns()),
        }
        self.latest()
    }

    /// The time of the last reading.
    pub(crate) fn latest(&self) -> Time {
        Time::from_nanos(self.latest_ns)
    }
}
