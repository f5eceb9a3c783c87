//! Where an entry is, and the result of changing it.

use crate::table::slot::Tag;

/// Where an entry is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlace {
    pub(crate) tag: Tag,
    pub(crate) slot: u32,
}

/// The result of a change.
pub(crate) enum Updated<T> {
    Written(T),
    /// There was nothing to change (the entry or its slot is gone), or no room.
    Gone,
    /// The host did not answer, or others kept writing.
    Failed,
}
