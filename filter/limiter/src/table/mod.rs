//! The table: slots that the workers of a proxy share, and the entries in them.

mod shared;
pub mod slot;
mod slots;

pub use shared::{SharedSlots, SlotsHandle};
pub use slots::{CHANGED_MAX, ChangeFn, EntryChange, LocalSlots, ReadError, Sample, Slots, Version, WriteError};
pub(crate) use slots::{EntryPlace, LoadedSlot, NamedKey, Updated, change_slot};
