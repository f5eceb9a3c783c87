//! The table: slots that the workers of a proxy share, and the entries in them.

mod place;
mod sample;
mod shared;
pub mod slot;
mod slots;

pub(crate) use place::{EntryPlace, NamedKey, Updated};
pub use sample::Sample;
pub use shared::{SharedSlots, SlotsHandle};
pub(crate) use slots::LoadedSlot;
pub use slots::{CHANGED_MAX, ChangeFn, EntryChange};
pub use slots::{LocalSlots, ReadError, Slots, Version, WriteError};
