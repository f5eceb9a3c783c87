//! Where buckets are kept: slots that the workers of a proxy share, and the entries in them.

mod place;
pub mod slot;
mod slots;

pub(crate) use place::{EntryPlace, NamedKey, Updated};
pub(crate) use slots::Loaded;
pub use slots::{LocalSlots, ReadError, Slots, Version, WriteError};
