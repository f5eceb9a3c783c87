//! Ticks. Envoy has no timer for a filter's configuration, so a separate thread schedules them on the main
//! thread.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::abi::Scheduler;
use crate::locked;

pub(crate) struct Timer {
    shared: Arc<Shared>,
    /// `None` if the thread could not be started.
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    period_ms: AtomicU32,
    /// True if a tick was scheduled and has not run yet.
    is_announced: AtomicBool,
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Timer {
    /// Runs the hook of `scheduler` every `period_ms`.
    pub(crate) fn start(period_ms: u32, scheduler: Scheduler) -> Self {
        let shared = Arc::new(Shared { period_ms: period_ms.into(), ..Shared::default() });
        let theirs = Arc::clone(&shared);
        let run = move || {
            // A panic must not end the ticks.
            while panic::catch_unwind(AssertUnwindSafe(|| theirs.run(&scheduler))).is_err() {
                // The tick that was scheduled last may never run.
                theirs.is_announced.store(false, Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new().name("weir-timer".into()).spawn(run).ok();
        Self { shared, thread }
    }

    pub(crate) fn ticks(&self) -> bool {
        self.thread.is_some()
    }

    pub(crate) fn set(&self, period_ms: u32) {
        self.shared.period_ms.store(period_ms, Ordering::Relaxed);
    }

    pub(crate) fn has_ticked(&self) {
        self.shared.is_announced.store(false, Ordering::Relaxed);
    }
}

impl Shared {
    fn run(&self, scheduler: &Scheduler) {
        let mut is_over = locked(&self.is_over);
        while !*is_over {
            let period = Duration::from_millis(self.period_ms.load(Ordering::Relaxed).max(1).into());
            let waited = self.changed.wait_timeout_while(is_over, period, |is_over| !*is_over);
            is_over = waited.unwrap_or_else(PoisonError::into_inner).0;
            // At most one tick is scheduled, even if the main thread is late.
            if !*is_over && !self.is_announced.swap(true, Ordering::Relaxed) {
                scheduler.run();
            }
        }
    }
}

impl Drop for Timer {
    /// Joins the thread: no thread may run the module's code when Envoy unloads it.
    fn drop(&mut self) {
        *locked(&self.shared.is_over) = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
