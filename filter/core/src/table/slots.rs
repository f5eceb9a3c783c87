//! The table of slots, as the decision sees it.

use alloc::vec::Vec;

use crate::counters::Event;
use crate::table::slot::Slot;
#[cfg(feature = "own_memory")]
use crate::table::slot::{Cold, Entry, Tag};

/// How often a slot that reads as corrupt is read before it counts as empty: on a host whose reads
/// may tear, the next read gets the whole slot.
const READS_MAX: u32 = 3;

/// Names one state of one slot. A write succeeds only if the slot is still in the state that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(pub u32);

impl Version {
    /// A slot that is not there yet.
    pub const NONE: Self = Self(0);
}

/// Why a slot could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The host has no such slot yet.
    Missing,
    /// What is there, in this state, is not a slot, or the read was torn.
    Corrupt(Version),
    /// The host does not offer shared data, or failed.
    Unavailable,
}

/// Why a slot was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// Another worker wrote it since it was read.
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

    /// How many slots there are, at least 1.
    fn count(&self) -> u32;

    /// Whether [`Slots::change_in_place`] may change anything.
    #[cfg(feature = "own_memory")]
    fn changes_in_place(&self) -> bool {
        false
    }

    /// Changes entries of the slots `indices` where they are: finds the entry of each tag (no two alike), has
    /// `judge` say what they are to hold, and puts that in their place if nothing of these slots has changed meanwhile;
    /// otherwise it tries again, a bounded number of times. A cold entry stays cold. A watched entry changes only its
    /// bucket, `admitted` and `unheard_since`. False if not all was changed: an entry is not there, a key of
    /// a slot was banned, `judge` says no, two indices are alike or there are more than [`CHANGED_MAX`], the slots cannot do
    /// this. Then nothing was changed, and [`Slots::read`] and [`Slots::write`] can. False, too, if another thread lost its patience
    /// half-way: then some of the entries may have changed.
    #[cfg(feature = "own_memory")]
    fn change_in_place(&mut self, _indices: &[u32], _changes: &mut [Change], _judge: Judge<'_>) -> bool {
        false
    }
}

/// The most slots of which entries are changed together.
#[cfg(feature = "own_memory")]
pub const CHANGED_MAX: usize = 4;

/// An entry that is to be changed.
#[cfg(feature = "own_memory")]
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Its key.
    pub tag: Tag,
    /// Which of the slots it is in.
    pub slot: usize,
    /// What it holds; once it is judged, what it is to hold.
    pub entry: Entry,
    /// Where it was found.
    pub(crate) at: usize,
}

#[cfg(feature = "own_memory")]
impl Change {
    /// Of the entry of this key, in the slot of this number.
    pub fn of(tag: Tag, slot: usize) -> Self {
        Self { tag, slot, entry: Entry::Cold(Cold::NEW), at: 0 }
    }
}

/// Says what entries are to hold that were found. False if they are to stay as they are. It may be asked several times.
#[cfg(feature = "own_memory")]
pub type Judge<'a> = &'a mut dyn FnMut(&mut [Change]) -> bool;

/// A slot that was read, to be changed and written back.
pub(crate) struct Loaded {
    pub(crate) index: u32,
    pub(crate) slot: Slot,
    /// The state that was read; none if the host did not answer. Then the slot must not be written: on Envoy
    /// that could replace what other workers stored there. None, too, once writing it was given up.
    version: Option<Version>,
}

impl Loaded {
    /// Reads slot `index` into `room`. A slot that is missing, unreadable or corrupt reads as empty, so that the
    /// request gets a decision; the event says which it was.
    pub(crate) fn read(slots: &mut dyn Slots, index: u32, room: Slot) -> (Self, Option<Event>) {
        let mut loaded = Self { index, slot: room, version: None };
        let mut mishap = Event::Corrupt;
        for _ in 0..READS_MAX {
            let error = match slots.read(index, &mut loaded.slot) {
                Ok(version) => return (Self { version: Some(version), ..loaded }, None),
                Err(error) => error,
            };
            (loaded.version, mishap) = match error {
                ReadError::Corrupt(version) => (Some(version), Event::Corrupt),
                ReadError::Missing => (Some(Version::NONE), Event::Missing),
                ReadError::Unavailable => (None, Event::Unavailable),
            };
            if mishap != Event::Corrupt {
                break;
            }
        }
        loaded.slot.clear();
        (loaded, Some(mishap))
    }

    /// Whether the slot may be written: the host answered, and writing was not given up. It can be judged anyhow.
    pub(crate) fn is_known(&self) -> bool {
        self.version.is_some()
    }

    /// Gives up writing it: nothing was written, so there will be nothing to give back.
    pub(crate) fn give_up(&mut self) {
        self.version = None;
    }

    /// Writes the slot back.
    pub(crate) fn write(&mut self, slots: &mut dyn Slots) -> Result<(), WriteError> {
        let version = self.version.ok_or(WriteError::Unavailable)?;
        slots.write(self.index, &mut self.slot, version)
    }
}

/// Slots in this program's own memory: for a host without shared data, for simulations and tests. Nothing else
/// writes them, so they need no seal.
#[derive(Clone)]
pub struct LocalSlots {
    slots: Vec<(Slot, u32)>,
}

impl LocalSlots {
    /// `count` empty slots, at least 1.
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
