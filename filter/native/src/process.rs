//! State that the workers of all configurations of one filter name share, in this process's memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_limiter::engine::{Host, LogLevel, SharedState, SharedValue, SharedValues};
use weir_limiter::key::TableIdentity;
use weir_limiter::response::Header;
use weir_limiter::table::slot::Slot;
use weir_limiter::table::{ChangeFn, EntryChange, ReadError, SharedSlots, Slots, SlotsHandle, Version, WriteError};
use weir_protocol::messages::RuleCounts;
use weir_protocol::time::Time;
use weir_rules::RuleSet;

use crate::{abi, http, locked, metrics};

/// By filter name. A configuration that replaces another of the same name keeps its buckets; the state of a
/// name without configurations is freed.
static PROCESSES: Mutex<BTreeMap<String, Weak<Process>>> = Mutex::new(BTreeMap::new());
/// Initial reading of the clock, in nanoseconds: 13 days.
const BEGIN_NS: u64 = 1 << 50;

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
    /// `None` before the table is opened.
    slots: Option<SlotsHandle>,
}

impl WorkerHandle {
    pub(crate) fn new(name: &str) -> Self {
        Self { process: Process::named(name), slots: None }
    }
}

impl Slots for WorkerHandle {
    #[inline]
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError> {
        self.slots.as_mut().ok_or(ReadError::Unavailable)?.read(index, into)
    }

    #[inline]
    fn write(&mut self, index: u32, slot: &mut Slot, version: Version) -> Result<(), WriteError> {
        self.slots.as_mut().ok_or(WriteError::Unavailable)?.write(index, slot, version)
    }

    fn count(&self) -> u32 {
        self.slots.as_ref().map_or(1, Slots::count)
    }

    #[inline]
    fn changes_in_place(&self) -> bool {
        self.slots.is_some()
    }

    #[inline]
    fn change_in_place(&mut self, indices: &[u32], changes: &mut [EntryChange], evaluate: ChangeFn<'_>) -> bool {
        self.slots.as_mut().is_some_and(|slots| slots.change_in_place(indices, changes, evaluate))
    }
}

impl SharedState for WorkerHandle {
    fn identity(&mut self) -> TableIdentity {
        self.process.identity
    }

    fn get(&mut self, value: SharedValue) -> Result<(Vec<u8>, Version), ReadError> {
        locked(&self.process.values).get(value)
    }

    fn set(&mut self, value: SharedValue, bytes: &[u8], version: Version) -> Result<(), WriteError> {
        locked(&self.process.values).set(value, bytes, version)
    }

    fn parsed(&mut self, version: u64) -> Option<Arc<RuleSet>> {
        locked(&self.process.values).parsed(version)
    }

    fn keep_parsed(&mut self, version: u64, rules: &Arc<RuleSet>) {
        locked(&self.process.values).keep_parsed(version, rules);
    }
}

impl Host for WorkerHandle {
    /// Opens the table of this name. A table that is larger than requested is kept; a smaller one is replaced
    /// by an empty one.
    fn open(&mut self, slots: u32) {
        let mut table = locked(&self.process.table);
        let known = table.take().filter(|known| known.count() >= slots);
        // All workers and the main thread write, independent of the number of configurations.
        let threads = abi::concurrency().saturating_add(1);
        let known = table.insert(known.unwrap_or_else(|| SharedSlots::new(slots, threads)));
        self.slots = Some(SlotsHandle::new(Arc::clone(known)));
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

    fn pack(&self, headers: &[Header<'_>]) -> Vec<u8> {
        http::packed(headers)
    }
}

/// The monotonic clock. It starts well above zero, so that a step back to before the start can be
/// represented.
pub(crate) fn now() -> Time {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    let started = *STARTED.get_or_init(Instant::now);
    let now = Instant::now();
    let ns = |since: Duration| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX / 2);
    Time::from_nanos(match now.checked_duration_since(started) {
        Some(since) => BEGIN_NS.saturating_add(ns(since)),
        None => BEGIN_NS.saturating_sub(ns(started.duration_since(now))),
    })
}

/// Random bytes. If the system provides none, bytes of the clock.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if getrandom::fill(&mut bytes).is_err() {
        let text = "the system has no random numbers: keys are hashed with a secret that can be guessed";
        abi::log(LogLevel::Warn, text);
        bytes.iter_mut().zip(now().as_nanos().to_le_bytes()).for_each(|(to, from)| *to = from);
    }
    bytes
}
