//! Where an entry is, and what became of a change to it.

use crate::slot::Tag;

/// Where an entry is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) tag: Tag,
    pub(super) slot: u32,
}

/// What became of a change.
pub(super) enum Updated<T> {
    Written(T),
    /// There was nothing to change (the entry is spent, or its slot lost), or no room.
    Gone,
    /// The host did not answer, or others kept writing.
    Failed,
}
