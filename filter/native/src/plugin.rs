//! One configuration: an edge for each worker, ticks, and answers to calls that no request waits for.

use std::collections::HashMap;
use std::sync::Mutex;

use weir_limiter::edge::{Answered, Effect, Unread};
use weir_limiter::table::Sample;
use weir_rules::config::CONFIG_BYTES_MAX;

use crate::abi::{self, Config};
use crate::calls;
use crate::lock::locked;
use crate::metrics::Metrics;
use crate::process::now;
use crate::timer::Timer;
use crate::worker::{Worker, write_log};

/// One configuration.
pub(crate) struct Plugin {
    /// By their numbers at Envoy.
    workers: Box<[Mutex<Worker>]>,
    metrics: Metrics,
    timer: Timer,
    /// The calls under way, by Envoy's numbers: the worker's, and the edge's. Envoy ends each in its time.
    calls: Mutex<HashMap<u64, (usize, u64)>>,
    config: Mutex<Config>,
    sample: Mutex<Sample>,
}

impl Plugin {
    /// Puts a configuration in force, of a filter of this name; or every error, with its place.
    pub(crate) fn new(config: Config, name: &str, bytes: &[u8]) -> Result<Self, Vec<String>> {
        if bytes.len() > CONFIG_BYTES_MAX {
            let found = bytes.len();
            return Err(vec![format!(
                "expected at most {CONFIG_BYTES_MAX} bytes of configuration, found {found}"
            )]);
        }
        let (mut workers, mut first) = (Vec::new(), Vec::new());
        for _ in 0..abi::concurrency().max(1) {
            let (worker, effects) = Worker::configure(name, bytes)?;
            workers.push(worker);
            first.push(effects);
        }
        let has_sync = workers.first().is_some_and(|worker| worker.edge.sync().is_some());
        let metrics = Metrics::define(config, has_sync);
        for worker in &mut workers {
            worker.counted = metrics.names(worker.edge.rules(), config);
        }
        let timer = Timer::start(period_ms(&first).unwrap_or(1_000), config.scheduler());
        let plugin = Self {
            workers: workers.into_iter().map(Mutex::new).collect(),
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

    /// The worker of this number.
    pub(crate) fn worker(&self, number: usize) -> Option<&Mutex<Worker>> {
        self.workers.get(number)
    }

    /// The timer has fired, and this is the main thread.
    pub(crate) fn on_tick(&self, config: Config) {
        self.timer.has_ticked();
        for (number, worker) in self.workers.iter().enumerate() {
            let effects = {
                let Worker { edge, seat, .. } = &mut *locked(worker);
                edge.tick(seat, now())
            };
            self.perform(number, effects, config);
        }
    }

    /// A call that no request waits for has ended.
    pub(crate) fn on_answer(&self, callout: u64, answer: Answered, config: Config) {
        let Some((number, call)) = locked(&self.calls).remove(&callout) else { return };
        self.answered(number, call, answer, config);
    }

    fn answered(&self, number: usize, call: u64, answer: Answered, config: Config) {
        let Some(worker) = self.worker(number) else { return };
        let effects = {
            let Worker { edge, seat, .. } = &mut *locked(worker);
            edge.answer(call, answer, seat, now())
        };
        self.perform(number, effects, config);
    }

    /// The configuration ends: hands over everything it has.
    pub(crate) fn part(&self) {
        let config = *locked(&self.config);
        for worker in &self.workers {
            let mut worker = locked(worker);
            self.flush(&mut worker, config);
            let Worker { edge, seat, .. } = &mut *worker;
            edge.leave(seat);
        }
    }

    fn flush(&self, worker: &mut Worker, config: Config) {
        self.metrics.flush(worker.edge.counters(), &worker.counted, config);
        if let Some(step) = worker.edge.ladder(now()) {
            self.metrics.show(step, config);
        }
        if let Some(places) = locked(&self.sample).look(&mut worker.seat, now()) {
            self.metrics.show_places(places, config);
        }
    }

    /// Does what the edge of this worker says. The worker is not locked while a call is made.
    fn perform(&self, number: usize, effects: Vec<Effect>, config: Config) {
        let Some(worker) = self.worker(number) else { return };
        for effect in effects {
            match effect {
                // Its client may have left.
                Effect::Resume(id) => {
                    if let Some(held) = locked(worker).held.remove(&id) {
                        held.run();
                    }
                }
                Effect::Call(call) => {
                    let caller = locked(worker).caller();
                    let made = match caller {
                        Some(caller) => calls::make(&caller, &call, |callout| config.call(callout)),
                        None => Err("there is no sync section".into()),
                    };
                    match made {
                        Ok(callout) => drop(locked(&self.calls).insert(callout, (number, call.number))),
                        Err(trouble) => {
                            self.answered(number, call.number, Err(Unread::NotMade(trouble)), config);
                        }
                    }
                }
                Effect::SetTimer(period_ms) => {
                    self.timer.set(period_ms);
                    if !self.timer.ticks() {
                        locked(worker).edge.has_no_timer();
                    }
                }
                Effect::Log(level, text) => write_log(level, &text),
                Effect::Flush => self.flush(&mut locked(worker), config),
                Effect::NewRules(mut counted) => {
                    let mut worker = locked(worker);
                    self.metrics.flush(&mut counted, &worker.counted, config);
                    worker.counted = self.metrics.names(worker.edge.rules(), config);
                }
                Effect::Running(running) => self.metrics.show_rule_set(running, config),
            }
        }
    }
}

/// What these effects set the timer to.
fn period_ms(effects: &[Vec<Effect>]) -> Option<u32> {
    effects.iter().flatten().find_map(|effect| match effect {
        Effect::SetTimer(period_ms) => Some(*period_ms),
        _ => None,
    })
}
