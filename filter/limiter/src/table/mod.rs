//! The table: slots that the workers of a proxy share, their entries, and the hash that places a key.

use alloc::vec::Vec;

use siphasher::sip128::SipHasher13;

use crate::RuleIndex;
use crate::counters::{CountedEvent, Counters};
use crate::table::slot::{Cold, Entry, Slot, Tag};
use weir_protocol::time::Time;
use weir_rules::fleet_secret::FleetSecret;
use weir_rules::key::KeyValue;

mod shared;
pub mod slot;

pub use shared::{SharedSlots, SlotsHandle};

/// Maximum number of reads of a slot that looks corrupt, before it counts as empty. A torn read is followed by a
/// whole one.
const READS_MAX: u32 = 3;

/// Version of a slot. A write succeeds only if the slot still has the version that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(pub u32);

impl Version {
    /// The version of a slot that does not exist yet.
    pub const NONE: Self = Self(0);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The host has no such slot yet.
    Missing,
    /// The bytes of this version are not a slot, or the read was torn.
    Corrupt(Version),
    /// The host does not offer shared data, or failed.
    Unavailable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// Another worker has written the slot since it was read.
    Conflict,
    /// The host does not offer shared data, or failed.
    Unavailable,
}

/// Slots shared by the workers of one proxy.
pub trait Slots {
    /// Reads slot `index` (below [`Slots::count`]) into `into`.
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError>;

    /// Writes slot `index` if its version is still `version`.
    fn write(&mut self, index: u32, slot: &mut Slot, version: Version) -> Result<(), WriteError>;

    /// The number of slots, at least 1.
    fn count(&self) -> u32;

    /// True if [`Slots::change_in_place`] can change anything.
    fn changes_in_place(&self) -> bool {
        false
    }

    /// Changes entries of the slots `indices` in place. Finds the entry of each tag (no two equal), lets
    /// `evaluate` set the new entries, and stores them if none of these slots has changed meanwhile; otherwise
    /// tries again, a bounded number of times. A cold entry stays cold. A watched entry changes only its bucket,
    /// `admitted` and `unconfirmed_since`.
    ///
    /// Returns false if not all entries were changed: an entry is missing, a key of a slot was banned, `evaluate`
    /// returned false, two indices are equal, there are more than [`CHANGED_MAX`], or these slots do not support it.
    /// Nothing was changed then: use [`Slots::read`] and [`Slots::write`]. Also false if another thread overtook this
    /// one half-way; some entries may have changed then.
    fn change_in_place(&mut self, _indices: &[u32], _changes: &mut [EntryChange], _evaluate: ChangeFn<'_>) -> bool {
        false
    }
}

/// Maximum number of slots whose entries are changed together.
pub const CHANGED_MAX: usize = 4;

/// An entry to be changed in place.
#[derive(Clone, Copy, Debug)]
pub struct EntryChange {
    pub(crate) tag: Tag,
    /// Position of the entry's slot in the list of indices.
    pub(crate) slot: usize,
    /// The entry that was found; after evaluation, the new entry.
    pub(crate) entry: Entry,
    pub(crate) at: usize,
}

impl EntryChange {
    /// A change of the entry `tag` in the slot at this position of the list of indices.
    pub(crate) fn of(tag: Tag, slot: usize) -> Self {
        Self { tag, slot, entry: Entry::Cold(Cold::NEW), at: 0 }
    }
}

/// Replaces the found entries by new ones; false if they are to stay. May be called several times.
pub type ChangeFn<'a> = &'a mut dyn FnMut(&mut [EntryChange]) -> bool;

/// A slot that was read, to be changed and written back.
pub(crate) struct LoadedSlot {
    pub(crate) index: u32,
    pub(crate) slot: Slot,
    /// The version that was read; `None` if the read failed, or once writing was given up. The slot must not be written
    /// then: on Envoy that could replace other workers' entries.
    version: Option<Version>,
}

impl LoadedSlot {
    /// Reads slot `index` into `room`. A missing, unreadable or corrupt slot reads as empty, so that the request gets a
    /// decision; the event states the cause.
    pub(crate) fn read(slots: &mut dyn Slots, index: u32, room: Slot) -> (Self, Option<CountedEvent>) {
        let mut loaded = Self { index, slot: room, version: None };
        let mut mishap = CountedEvent::Corrupt;
        for _ in 0..READS_MAX {
            let error = match slots.read(index, &mut loaded.slot) {
                Ok(version) => return (Self { version: Some(version), ..loaded }, None),
                Err(error) => error,
            };
            (loaded.version, mishap) = match error {
                ReadError::Corrupt(version) => (Some(version), CountedEvent::Corrupt),
                ReadError::Missing => (Some(Version::NONE), CountedEvent::Missing),
                ReadError::Unavailable => (None, CountedEvent::Unavailable),
            };
            if mishap != CountedEvent::Corrupt {
                break;
            }
        }
        loaded.slot.clear();
        (loaded, Some(mishap))
    }

    /// True if the slot may be written. It can be evaluated in any case.
    pub(crate) fn is_known(&self) -> bool {
        self.version.is_some()
    }

    /// Gives up writing the slot, so that nothing is given back to it.
    pub(crate) fn give_up(&mut self) {
        self.version = None;
    }

    pub(crate) fn write(&mut self, slots: &mut dyn Slots) -> Result<(), WriteError> {
        let version = self.version.ok_or(WriteError::Unavailable)?;
        slots.write(self.index, &mut self.slot, version)
    }
}

/// Maximum number of attempts at a conflicting change, until the next report tries again.
const UPDATES_MAX: u32 = 8;

/// Changes slot `index` by compare-and-swap, reading into one of `rooms`. Writes nothing if `change` returns `None`.
pub(crate) fn change_slot<T>(
    rooms: &mut Vec<Slot>,
    counters: &mut Counters,
    (index, slots): (u32, &mut dyn Slots),
    change: impl Fn(&mut Slot) -> Option<T>,
) -> Updated<T> {
    let (mut result, mut spare) = (Updated::Failed, rooms.pop().unwrap_or_default());
    for _ in 0..UPDATES_MAX {
        let (mut loaded, _) = LoadedSlot::read(slots, index, spare);
        // `None` if another worker has written the slot meanwhile.
        let done = match loaded.is_known().then(|| change(&mut loaded.slot)) {
            None => Some(Updated::Failed),
            Some(None) => Some(Updated::Gone),
            Some(Some(changed)) => loaded.write(slots).is_ok().then_some(Updated::Written(changed)),
        };
        spare = loaded.slot;
        if let Some(done) = done {
            result = done;
            break;
        }
        counters.add(CountedEvent::CasRetried, 1);
    }
    rooms.push(spare);
    result
}

/// Slots in this program's own memory, for a host without shared data. Nothing else writes them, so they need no seal.
#[derive(Clone)]
pub struct LocalSlots {
    slots: Vec<(Slot, u32)>,
}

impl LocalSlots {
    /// Creates `count` empty slots, at least 1.
    pub fn new(count: u32) -> Self {
        Self { slots: alloc::vec![(Slot::empty(), 1); count.max(1) as usize] }
    }
}

impl Slots for LocalSlots {
    fn read(&mut self, index: u32, into: &mut Slot) -> Result<Version, ReadError> {
        let (slot, version) = self.slots.get(index as usize).ok_or(ReadError::Missing)?;
        into.copy_from(slot);
        Ok(Version(*version))
    }

    fn write(&mut self, index: u32, slot: &mut Slot, version: Version) -> Result<(), WriteError> {
        let (stored, current) = self.slots.get_mut(index as usize).ok_or(WriteError::Unavailable)?;
        if *current != version.0 {
            return Err(WriteError::Conflict);
        }
        stored.copy_from(slot);
        *current = current.wrapping_add(1).max(1);
        Ok(())
    }

    fn count(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }
}

/// Longest key, in bytes, for [`HashSecret::hash_short`].
pub(crate) const SHORT_BYTES_MAX: usize = 16;

/// The secret that keys are hashed with, random for each process: no client can choose two keys for one slot.
#[derive(Clone, Copy)]
pub struct HashSecret(SipHasher13);

impl HashSecret {
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(&bytes))
    }

    /// The secret for the parts of keys in a POP without a fleet.
    pub(crate) fn on_its_own(&self) -> FleetSecret {
        FleetSecret::new(self.0.hash(b"the parts of keys").as_bytes())
    }

    /// Hashes a key's canonical bytes (SipHash-1-3, 128 bits).
    pub fn hash(&self, value: &[u8]) -> KeyHash {
        let hash = self.0.hash(value);
        KeyHash { place: hash.h1, tag: hash.h2 }
    }

    /// [`HashSecret::hash`] of the lowest `size` bytes of `value`, at most [`SHORT_BYTES_MAX`], in little-endian order.
    #[inline]
    pub(crate) fn hash_short(&self, value: u128, size: usize) -> KeyHash {
        let bytes = value.to_le_bytes();
        // Special cases for a whole IPv4 address and for a /64: with a constant size, the hash takes half the time.
        let hash = match size {
            6 => self.0.hash(bytes.get(..6).unwrap_or_default()),
            10 => self.0.hash(bytes.get(..10).unwrap_or_default()),
            size => self.0.hash(bytes.get(..size).unwrap_or(&bytes)),
        };
        KeyHash { place: hash.h1, tag: hash.h2 }
    }
}

/// Hashes a name that the operator or the proxy chose (FNV-1a). No client can choose it.
pub fn name_hash(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// A key's hash, in two independent halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash {
    /// Selects the slot. Independent of the rule, so that one read serves the buckets of one key under several rules.
    pub place: u64,
    /// Identifies the key within the slot, together with the rule's salt.
    pub tag: u64,
}

impl KeyHash {
    /// Index of the key's slot among `count`. Maps hashes evenly to slots without a division (Lemire, "Fast random
    /// integer generation in an interval", 2019, section 3).
    pub(crate) fn slot(&self, count: u32) -> u32 {
        let spread = (u128::from(self.place) * u128::from(count)) >> 64;
        u32::try_from(spread).unwrap_or(0)
    }
}

/// The identity that the workers of one proxy share besides the slots, made once per process.
#[derive(Clone, Copy)]
pub struct TableIdentity {
    pub secret: HashSecret,
    /// Random id of this process's table in reports.
    pub table_id: u32,
}

pub const IDENTITY_BYTES: usize = 20;

impl TableIdentity {
    /// Decodes an identity: 16 bytes of the secret, 4 of the table's id.
    pub fn of(bytes: &[u8; IDENTITY_BYTES]) -> Self {
        let (mut secret, mut table_id) = ([0; 16], [0; 4]);
        secret.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        table_id.iter_mut().zip(bytes.iter().skip(16)).for_each(|(to, from)| *to = *from);
        Self { secret: HashSecret::new(secret), table_id: u32::from_le_bytes(table_id) }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlace {
    pub(crate) tag: Tag,
    pub(crate) slot: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedKey {
    pub(crate) place: EntryPlace,
    pub(crate) rule: RuleIndex,
    pub(crate) value: KeyValue,
}

pub(crate) enum Updated<T> {
    Written(T),
    /// There was nothing to change (the entry or its slot is gone), or no room.
    Gone,
    /// The host failed, or all retries conflicted.
    Failed,
}

/// Slots sampled in a tick, which takes some ten microseconds.
const SLOTS_PER_TICK: u32 = 16;
/// Slots that suffice for an estimate to within a few percent: keys are spread over slots at random.
const SLOTS_MAX: u32 = 128;

#[derive(Default)]
pub struct Sample {
    /// Index of the next slot to sample.
    next: u32,
    looked_at: u32,
    keys: usize,
    room: Slot,
}

impl Sample {
    /// Samples a few slots at `now`. Once there are enough, returns the approximate number of keys in the whole table.
    pub fn look(&mut self, slots: &mut dyn Slots, now: Time) -> Option<u64> {
        let count = slots.count().max(1);
        for _ in 0..SLOTS_PER_TICK.min(count) {
            if slots.read(self.next, &mut self.room).is_ok() {
                self.keys += self.room.keys_at(now);
            }
            self.looked_at += 1;
            self.next = if self.next + 1 < count { self.next + 1 } else { 0 };
        }
        if self.looked_at < SLOTS_MAX.min(count) {
            return None;
        }
        let (keys, looked_at) = (core::mem::take(&mut self.keys), core::mem::take(&mut self.looked_at));
        u64::try_from(keys).ok().map(|keys| keys * u64::from(count) / u64::from(looked_at.max(1)))
    }
}
