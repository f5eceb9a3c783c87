//! State that the workers of all configurations of one filter name share in this process's memory; clock and ticks.

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_limiter::engine::{Host, LogLevel, SharedValues};
use weir_limiter::table::{SharedSlots, Slots, SlotsHandle, TableIdentity};
use weir_protocol::messages::RuleCounts;
use weir_protocol::time::Time;
use weir_rules::RuleSet;

use crate::abi::Scheduler;
use crate::{abi, http, locked, metrics};

/// By filter name. Configurations of one name share buckets, until the last one ends.
static PROCESSES: Mutex<BTreeMap<String, Weak<Process>>> = Mutex::new(BTreeMap::new());

/// State shared under one name.
struct Process {
    identity: TableIdentity,
    table: Mutex<Option<Arc<SharedSlots>>>,
    values: Mutex<SharedValues>,
}

impl Process {
    fn named(name: &str) -> Arc<Self> {
        let mut processes = locked(&PROCESSES);
        processes.retain(|_, process| process.strong_count() > 0);
        processes.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let identity = TableIdentity::of(&random());
            let new = Arc::new(Self { identity, table: Mutex::default(), values: Mutex::default() });
            processes.insert(name.to_owned(), Arc::downgrade(&new));
            new
        })
    }
}

/// A worker's access to the shared state.
pub(crate) struct WorkerHandle {
    process: Arc<Process>,
    /// Before the table is opened, these are a single slot of its own.
    slots: SlotsHandle,
}

impl WorkerHandle {
    pub(crate) fn new(name: &str) -> Self {
        Self { process: Process::named(name), slots: SlotsHandle::new(SharedSlots::new(1, 1)) }
    }
}

impl Host for WorkerHandle {
    fn identity(&mut self) -> TableIdentity {
        self.process.identity
    }

    fn with_values(&mut self, act: &mut dyn FnMut(&mut SharedValues)) {
        act(&mut locked(&self.process.values));
    }

    fn slots(&mut self) -> &mut dyn Slots {
        &mut self.slots
    }

    /// Opens the table of this name. A larger existing table is kept; a smaller one is replaced.
    fn open(&mut self, slots: u32) {
        let mut table = locked(&self.process.table);
        let known = table.take().filter(|known| known.count() >= slots);
        // All workers and the main thread write, regardless of the number of configurations.
        let threads = abi::concurrency().saturating_add(1);
        let known = table.insert(known.unwrap_or_else(|| SharedSlots::new(slots, threads)));
        self.slots = SlotsHandle::new(Arc::clone(known));
    }

    fn random(&mut self) -> u64 {
        u64::from_le_bytes(random())
    }

    fn unix_ns(&mut self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn refusals(&self, rules: &RuleSet) -> Vec<String> {
        http::refusals(rules)
    }

    fn counted(&mut self, turn: u64) -> (Vec<RuleCounts>, usize) {
        metrics::counted(turn)
    }

    fn blocked(&mut self) -> u64 {
        metrics::blocked()
    }
}

pub(crate) fn now() -> Time {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    let (started, now) = (*STARTED.get_or_init(Instant::now), Instant::now());
    Time::of_own_clock(now.saturating_duration_since(started), started.saturating_duration_since(now))
}

/// Random bytes, or bytes of the clock if the system provides none.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if getrandom::fill(&mut bytes).is_err() {
        let text = "the system has no random numbers: keys are hashed with a secret that can be guessed";
        abi::log(LogLevel::Warn, text);
        bytes.iter_mut().zip(now().as_nanos().to_le_bytes()).for_each(|(to, from)| *to = from);
    }
    bytes
}

// Ticks. Envoy has no timer for a filter's configuration, so a separate thread schedules them on the main thread.

pub(crate) struct Timer {
    shared: Arc<Shared>,
    /// The thread, which ends when the sender is dropped; `None` if it could not be started.
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

struct Shared {
    period_ms: AtomicU32,
    /// True if a tick was scheduled and has not run yet.
    is_announced: AtomicBool,
}

impl Timer {
    /// Runs the hook of `scheduler` every `period_ms`.
    pub(crate) fn start(period_ms: u32, scheduler: Scheduler) -> Self {
        let shared = Arc::new(Shared { period_ms: period_ms.into(), is_announced: false.into() });
        let (theirs, (end, is_over)) = (Arc::clone(&shared), mpsc::channel());
        let run = move || {
            // A panic must not end the ticks.
            while panic::catch_unwind(AssertUnwindSafe(|| theirs.run(&scheduler, &is_over))).is_err() {
                // The last scheduled tick may never run.
                theirs.is_announced.store(false, Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new().name("weir-timer".into()).spawn(run).ok();
        Self { shared, thread: thread.map(|thread| (end, thread)) }
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
    fn run(&self, scheduler: &Scheduler, is_over: &Receiver<()>) {
        let period = || Duration::from_millis(self.period_ms.load(Ordering::Relaxed).max(1).into());
        while is_over.recv_timeout(period()) == Err(RecvTimeoutError::Timeout) {
            // At most one tick is scheduled, even if the main thread is late.
            if !self.is_announced.swap(true, Ordering::Relaxed) {
                scheduler.run();
            }
        }
    }
}

impl Drop for Timer {
    /// Joins the thread. No thread may run the module's code when Envoy unloads it.
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}
