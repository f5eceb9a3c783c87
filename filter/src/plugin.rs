//! The root context: configuration, the tick, the exchange with weir-sync.

use std::cell::RefCell;
use std::rc::Rc;

use weir_limiter::config::Config;
use weir_limiter::limiter::REPORTS_MAX;

use crate::host::{self, Buffer};
use crate::nginx;
use crate::sync::read_reply;
use crate::worker::Worker;

/// The tick of a POP on its own, in milliseconds: it only hands over metrics.
const TICK_MS: u32 = 1_000;
/// The tick where requests are held until their turns, in milliseconds: so late they may go on.
const TURN_MS: u32 = 10;
/// The most plugin configuration that is read, in bytes.
const CONFIG_BYTES_MAX: usize = 1024 * 1024;

/// A plugin in one worker.
#[derive(Default)]
pub(crate) struct Plugin {
    /// The root context's number.
    context: u32,
    worker: Option<Rc<RefCell<Worker>>>,
    sync: Option<Sync>,
    /// Ticks since the configuration, and how many make an interval between reports: more than one where
    /// requests are held until their turns.
    ticks: u32,
    ticks_per_interval: u32,
    interval_ms: u32,
    /// The rules that the tick was last set for.
    paced_for: u32,
}

/// The worker's reports.
struct Sync {
    interval_ns: u64,
    /// The calls under way and their reports, at most [`REPORTS_MAX`]; an answer to any other is too late.
    calls: Vec<(u32, u64)>,
    /// Why the last exchange failed; logged when it changes, not at every tick.
    trouble: Option<String>,
}

impl Plugin {
    pub(crate) fn new(context: u32) -> Self {
        Self { context, ..Self::default() }
    }

    /// What requests are decided by; none before there was a good configuration.
    pub(crate) fn worker(&self) -> Option<Rc<RefCell<Worker>>> {
        self.worker.clone()
    }

    fn configure(&mut self, size: usize) -> Result<(), Vec<String>> {
        if size > CONFIG_BYTES_MAX {
            return Err(vec![format!(
                "expected at most {CONFIG_BYTES_MAX} bytes of configuration, found {size}"
            )]);
        }
        let bytes = host::buffer(Buffer::PluginConfiguration, size)
            .map_err(|status| vec![format!("the host gave no plugin configuration: status {}", status.0)])?;
        let mut config = Config::parse(&bytes)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let refusals = nginx::refusals(&config.rules);
        if !refusals.is_empty() {
            return Err(refusals);
        }
        // On nginx the first report is the trial.
        if config.sync.is_some() && !nginx::IS_HOST && !host::has_http_calls() {
            log::warn!("the host makes no HTTP calls: sync is off, and this POP is on its own");
            config.sync = None;
        }
        if config.keys_are_unkeyed() {
            log::warn!(
                "keys leave this POP under a hash that everybody can make: set sync.key_secret, the same at every POP"
            );
        }
        let interval_ms = config.sync.as_ref().map_or(TICK_MS, |sync| sync.interval_ms);
        let sync = config.sync.as_ref().map(|sync| Sync {
            interval_ns: u64::from(sync.interval_ms) * 1_000_000,
            calls: Vec::with_capacity(REPORTS_MAX),
            trouble: None,
        });
        let mut worker = Worker::new(config).map_err(|error| vec![error])?;
        self.interval_ms = interval_ms;
        let ticks = self.ticks_for(worker.holds_requests());
        (self.ticks_per_interval, self.paced_for) = (ticks, worker.generation());
        if let Err(status) = host::set_tick_period_ms(self.interval_ms / self.ticks_per_interval) {
            log::warn!("the host has no tick (status {}): no metrics, no sync, no queues", status.0);
            worker.hold_nothing();
        }
        (self.worker, self.sync) = (Some(Rc::new(RefCell::new(worker))), sync);
        Ok(())
    }

    /// Ticks in an interval between reports: requests that are held go on at ticks.
    fn ticks_for(&self, may_hold: bool) -> u32 {
        if may_hold { (self.interval_ms / TURN_MS).max(1) } else { 1 }
    }

    /// Ticks as often as the rules in force need.
    fn keep_pace(&mut self) {
        let Some(Ok(worker)) = self.worker.as_ref().map(|worker| worker.try_borrow()) else { return };
        let generation = worker.generation();
        if generation == self.paced_for {
            return;
        }
        let (may_hold, is_holding) = (worker.holds_requests(), worker.is_holding());
        drop(worker);
        // Those that are held by rules that are gone still have their turns.
        if is_holding && !may_hold {
            return;
        }
        let ticks = self.ticks_for(may_hold);
        if ticks == self.ticks_per_interval || host::set_tick_period_ms(self.interval_ms / ticks).is_ok() {
            (self.ticks_per_interval, self.paced_for) = (ticks, generation);
        }
    }

    /// Lets the held requests go on whose turn has come.
    fn resume_held(&mut self) {
        // The worker is free again before any request goes on: that may end in it.
        let due = match self.worker.as_ref().map(|worker| worker.try_borrow_mut()) {
            Some(Ok(mut worker)) => worker.due(),
            _ => return,
        };
        for context in &due {
            // Its client may have left.
            let _ = host::act_for(*context).and_then(|()| host::resume_request());
        }
        if !due.is_empty() {
            let _ = host::act_for(self.context);
        }
    }

    /// Hands over what was counted.
    fn flush_metrics(&mut self) {
        if let Some(Ok(mut worker)) = self.worker.as_ref().map(|worker| worker.try_borrow_mut()) {
            worker.flush_metrics();
        }
    }

    /// Hands over all that it has: it ends.
    pub(crate) fn part(&mut self) {
        if let Some(Ok(mut worker)) = self.worker.as_ref().map(|worker| worker.try_borrow_mut()) {
            worker.part();
        }
    }

    /// Sends what there is to report.
    fn exchange(&mut self) {
        let (Some(worker), Some(sync)) = (&self.worker, &mut self.sync) else { return };
        let Ok(mut worker) = worker.try_borrow_mut() else { return };
        match worker.send_report(sync.interval_ns) {
            None => {}
            Some(Ok(call)) => {
                // A host that forgets a call must not make the list grow.
                if sync.calls.len() >= REPORTS_MAX {
                    sync.calls.remove(0);
                }
                sync.calls.push(call);
            }
            Some(Err(trouble)) => sync.note(Some(trouble)),
        }
    }

    /// Runs the rule set that the fleet is to run.
    fn follow_rules(&mut self) {
        let (Some(worker), Some(sync)) = (&self.worker, &self.sync) else { return };
        if let Ok(mut worker) = worker.try_borrow_mut() {
            worker.follow_rules(sync.interval_ns);
        }
        self.keep_pace();
    }

    /// Takes in the answer to a report, or to the fetch of a rule set.
    pub(crate) fn answered(&mut self, call: u32, headers: usize, body_size: usize) {
        let (Some(worker), Some(sync)) = (&self.worker, &mut self.sync) else { return };
        let Ok(mut worker) = worker.try_borrow_mut() else { return };
        if worker.fetched_rules(call, headers, body_size, sync.interval_ns) {
            drop(worker);
            return self.keep_pace();
        }
        let Some(at) = sync.calls.iter().position(|(under_way, _)| *under_way == call) else { return };
        let (_, sequence) = sync.calls.remove(at);
        let outcome = read_reply(headers, body_size).and_then(|body| {
            worker
                .apply(sequence, &body)
                .map_err(|error| format!("weir-sync's answer is unreadable: {error}"))
        });
        if outcome.is_err() {
            worker.report_failed(sequence);
        } else if !nginx::IS_HOST {
            // What the reply says of a newer rule set does not wait for the next tick.
            worker.follow_rules(sync.interval_ns);
        }
        sync.note(outcome.err());
        drop(worker);
        self.keep_pace();
    }
}

impl Sync {
    /// Logs a change between working and not working.
    fn note(&mut self, trouble: Option<String>) {
        if self.trouble == trouble {
            return;
        }
        match &trouble {
            Some(trouble) => log::warn!("{trouble}; requests are decided locally until it works"),
            None => log::info!("weir-sync answers again"),
        }
        self.trouble = trouble;
    }
}

impl Plugin {
    /// Puts a configuration in force; false if it is refused.
    pub(crate) fn on_configure(&mut self, size: usize) -> bool {
        match self.configure(size) {
            Ok(()) => true,
            Err(errors) => {
                for error in errors {
                    log::error!("{error}");
                }
                let then = if nginx::IS_HOST {
                    "nginx's workers end with it, so try the next with `weir-sync check` before nginx reloads"
                } else {
                    "what ran before runs on"
                };
                log::error!("the configuration is refused: correct the places above; {then}");
                false
            }
        }
    }

    pub(crate) fn on_tick(&mut self) {
        self.resume_held();
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(self.ticks_per_interval.max(1)) {
            self.follow_rules();
            self.exchange();
            self.flush_metrics();
        }
    }
}
