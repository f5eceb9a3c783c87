//! What the gateway's workers share: the slots, in stripes that are locked one by one, and the values that they tell
//! each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use weir_limiter::decide::Decision;
use weir_limiter::edge::{Shared, SharedValue, Site};
use weir_limiter::key::Secret;
use weir_limiter::limiter::TableIdentity;
use weir_limiter::response::Header;
use weir_limiter::table::slot::{Slot, slots_for};
use weir_limiter::table::{LocalSlots, ReadError, Slots, Version, WriteError};
use weir_wire::messages::RuleCounts;

use super::counts::Counts;
use super::verdict::Ruled;
use crate::random::random;

/// Locks of the table: enough that workers hardly ever wait for each other.
const STRIPES: u32 = 64;

/// The memory that all workers share.
pub(super) struct Memory {
    identity: TableIdentity,
    count: u32,
    stripes: Box<[Mutex<LocalSlots>]>,
    values: Mutex<BTreeMap<SharedValue, (Vec<u8>, u32)>>,
    counts: Arc<Counts>,
    /// Held alone while a request takes what it gives back at once, so that no worker counts that meanwhile.
    pub(super) looking: RwLock<()>,
}

/// One worker's view of it.
pub(super) struct Handle {
    pub(super) memory: Arc<Memory>,
    /// What was decided last.
    pub(super) ruled: Option<Ruled>,
}

impl Memory {
    /// Room for so many keys, and what is counted.
    pub(super) fn new(keys: u32, counts: &Arc<Counts>) -> Arc<Self> {
        let count = slots_for(keys).max(1);
        let (mut secret, halves) = ([0; 16], [random(), random()].map(u64::to_le_bytes));
        secret.iter_mut().zip(halves.as_flattened()).for_each(|(to, from)| *to = *from);
        #[allow(clippy::cast_possible_truncation, reason = "any bits will do")]
        let identity = TableIdentity { secret: Secret::new(secret), table_id: random() as u32 };
        let stripe = || Mutex::new(LocalSlots::new(count.div_ceil(STRIPES)));
        let stripes = (0..STRIPES).map(|_| stripe()).collect();
        Arc::new(Self {
            identity,
            count,
            stripes,
            values: Mutex::default(),
            counts: Arc::clone(counts),
            looking: RwLock::default(),
        })
    }

    /// The stripe of slot `index`, and the slot's place in it.
    fn stripe(&self, index: u32) -> Option<(MutexGuard<'_, LocalSlots>, u32)> {
        let stripe = self.stripes.get((index % STRIPES) as usize)?;
        Some((stripe.lock().unwrap_or_else(PoisonError::into_inner), index / STRIPES))
    }

    fn values(&self) -> MutexGuard<'_, BTreeMap<SharedValue, (Vec<u8>, u32)>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handle {
    pub(super) fn new(memory: &Arc<Memory>) -> Self {
        Self { memory: Arc::clone(memory), ruled: None }
    }
}

impl Slots for Handle {
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError> {
        let (mut stripe, place) = self.memory.stripe(index).ok_or(ReadError::Missing)?;
        stripe.read(place, into)
    }

    fn write(&mut self, index: u32, slot: &mut Slot, version: Version) -> Result<(), WriteError> {
        let (mut stripe, place) = self.memory.stripe(index).ok_or(WriteError::Unavailable)?;
        stripe.write(place, slot, version)
    }

    fn count(&self) -> u32 {
        self.memory.count
    }
}

impl Shared for Handle {
    fn identity(&mut self) -> TableIdentity {
        self.memory.identity
    }

    fn get(&mut self, value: SharedValue) -> Result<(Vec<u8>, Version), ReadError> {
        let values = self.memory.values();
        let (bytes, version) = values.get(&value).ok_or(ReadError::Missing)?;
        Ok((bytes.clone(), Version(*version)))
    }

    fn set(&mut self, value: SharedValue, bytes: &[u8], version: Version) -> Result<(), WriteError> {
        let mut values = self.memory.values();
        let (known, current) = values.entry(value).or_default();
        if *current != version.0 {
            return Err(WriteError::Conflict);
        }
        (*known, *current) = (bytes.to_vec(), current.wrapping_add(1).max(1));
        Ok(())
    }
}

impl Site for Handle {
    /// The table is there before any worker.
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

    fn decided(&mut self, decision: &Decision) {
        self.ruled = Ruled::of(decision);
    }

    /// A line for each: `name: value`. Neither has a line's end in it.
    fn pack(&self, headers: &[Header<'_>]) -> Vec<u8> {
        let line = |(name, value): &Header<'_>| [name, ": ", value, "\n"].concat();
        headers.iter().flat_map(|header| line(header).into_bytes()).collect()
    }
}

/// What [`Handle::pack`] packed.
pub(super) fn unpack(packed: &[u8]) -> Vec<(String, String)> {
    let lines = str::from_utf8(packed).unwrap_or_default().lines();
    lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.into(), value.into())).collect()
}

/// The wall clock, in nanoseconds since 1970.
pub(super) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn every_slot_has_a_place_of_its_own() {
        let (metrics, _) = Metrics::new("eu");
        let memory = Memory::new(2_000, &Arc::new(Counts::new(Arc::new(metrics))));
        let (mut one, mut other) = (Handle::new(&memory), Handle::new(&memory));
        let mut slot = Slot::empty();
        for index in 0..one.count() {
            let version = other.read(index, &mut slot).expect("a slot");
            assert_eq!(one.write(index, &mut slot, version), Ok(()), "{index}");
            assert_eq!(other.write(index, &mut slot, version), Err(WriteError::Conflict), "{index}");
        }
    }
}
