//! State that the gateway's workers share: the table and the values that they exchange.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use weir_limiter::check::Decision;
use weir_limiter::engine::{Host, SharedValues};
use weir_limiter::table::slot::slots_for;
use weir_limiter::table::{SharedSlots, Slots, SlotsHandle, TableIdentity};
use weir_protocol::messages::RuleCounts;
use weir_store::lock;

use super::metrics::CounterSums;
use super::reply::DecisionDetails;

fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

pub(super) struct SharedMemory {
    identity: TableIdentity,
    slots: Arc<SharedSlots>,
    values: Mutex<SharedValues>,
    counts: Arc<CounterSums>,
    /// Held exclusively while a peek consumes and refunds, so that no worker sees its tokens as spent.
    looking: RwLock<()>,
}

pub(super) struct WorkerHost {
    pub(super) memory: Arc<SharedMemory>,
    slots: SlotsHandle,
    /// Outcome of the last decision.
    pub(super) ruled: Option<DecisionDetails>,
}

impl SharedMemory {
    pub(super) fn new(keys: u32, workers: u32, counts: &Arc<CounterSums>) -> Arc<Self> {
        let (mut identity, random) = ([0; 20], [random(), random(), random()].map(u64::to_le_bytes));
        identity.iter_mut().zip(random.as_flattened()).for_each(|(to, from)| *to = *from);
        Arc::new(Self {
            identity: TableIdentity::of(&identity),
            slots: SharedSlots::new(slots_for(keys), workers),
            values: Mutex::default(),
            counts: Arc::clone(counts),
            looking: RwLock::default(),
        })
    }

    /// Lock for a decision: exclusive for a peek, shared for any other decision.
    pub(super) fn look(&self, is_peek: bool) -> (Option<RwLockWriteGuard<'_, ()>>, Option<RwLockReadGuard<'_, ()>>) {
        let alone = is_peek.then(|| self.looking.write().unwrap_or_else(PoisonError::into_inner));
        (alone, (!is_peek).then(|| self.looking.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl WorkerHost {
    pub(super) fn new(memory: &Arc<SharedMemory>) -> Self {
        let slots = SlotsHandle::new(Arc::clone(&memory.slots));
        Self { memory: Arc::clone(memory), slots, ruled: None }
    }
}

impl Host for WorkerHost {
    fn identity(&mut self) -> TableIdentity {
        self.memory.identity
    }

    fn with_values(&mut self, act: &mut dyn FnMut(&mut SharedValues)) {
        act(&mut lock(&self.memory.values));
    }

    fn slots(&mut self) -> &mut dyn Slots {
        &mut self.slots
    }

    /// The table exists before any worker.
    fn open(&mut self, _slots: u32) {}

    fn random(&mut self) -> u64 {
        random()
    }

    fn unix_ns(&mut self) -> u64 {
        unix_ns()
    }

    fn counted(&mut self, turn: u64) -> (Vec<RuleCounts>, usize) {
        self.memory.counts.counted(turn)
    }

    fn blocked(&mut self) -> u64 {
        self.memory.counts.blocked()
    }

    /// gRPC responses are not prepared here: each API formats its own.
    fn answers_grpc(&self) -> bool {
        false
    }

    fn observes_decisions(&self) -> bool {
        true
    }

    fn decided(&mut self, decision: &Decision) {
        self.ruled = DecisionDetails::of(decision);
    }
}

pub(super) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
