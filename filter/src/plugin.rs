//! The root context: configuration, ticks, and responses to the worker's own calls.

use std::cell::RefCell;
use std::rc::Rc;

use weir_limiter::counters::Gauge;
use weir_limiter::engine::{CallResult, Effect, LogLevel, Unread};
use weir_rules::config::CONFIG_BYTES_MAX;

use crate::calls;
use crate::host::{self, HostBuffer};
use crate::worker::Worker;

/// A plugin in one worker.
pub(crate) struct Plugin {
    context: u32,
    worker: Option<Rc<RefCell<Worker>>>,
}

impl Plugin {
    pub(crate) fn new(context: u32) -> Self {
        Self { context, worker: None }
    }

    /// The worker that decides requests; `None` before the first valid configuration.
    pub(crate) fn worker(&self) -> Option<Rc<RefCell<Worker>>> {
        self.worker.clone()
    }

    /// Runs `act` on the worker; `None` if there is none, or if it is borrowed.
    fn with_worker<T>(&self, act: impl FnOnce(&mut Worker) -> T) -> Option<T> {
        Some(act(&mut *self.worker.as_ref()?.try_borrow_mut().ok()?))
    }

    /// Puts a configuration in force; false if it is refused.
    pub(crate) fn on_configure(&mut self, size: usize) -> bool {
        // One byte more than is allowed, for the refusal; a larger one must not fill the memory.
        let size = size.min(CONFIG_BYTES_MAX + 1);
        let bytes = host::buffer(HostBuffer::PluginConfiguration, size)
            .map_err(|status| vec![format!("the host gave no plugin configuration: status {}", status.0)]);
        let errors = match bytes.and_then(|bytes| Worker::configure(&bytes)) {
            Ok((worker, effects)) => {
                self.worker = Some(Rc::new(RefCell::new(worker)));
                // A new engine numbers its calls from the start.
                calls::forget(self.context);
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

    /// Handles the end of a call that no request waits for.
    pub(crate) fn answered(&mut self, number: u64, answer: CallResult) {
        let effects = self.with_worker(|worker| {
            let now = worker.clock.now();
            worker.engine.answer(number, answer, &mut worker.process, now)
        });
        self.perform(effects.unwrap_or_default());
    }

    /// Ends the plugin: flushes its metrics, and leaves unreported counts to the workers that remain.
    pub(crate) fn end(&mut self) {
        calls::forget(self.context);
        self.with_worker(Worker::end);
    }

    /// Carries out the effects of the engine. The worker is not borrowed while another context is active, which
    /// may end in that call.
    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.perform_one(effect);
        }
    }

    fn perform_one(&mut self, effect: Effect) {
        match effect {
            Effect::Resume(request) => {
                // It fails if the request's client has disconnected.
                let _ = host::act_for(request).and_then(|()| host::resume_request());
                let _ = host::act_for(self.context);
            }
            Effect::Call(call) => {
                let made = self.with_worker(|worker| {
                    worker.caller.as_ref().map_or(Ok(()), |caller| calls::make(caller, &call, self.context))
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
