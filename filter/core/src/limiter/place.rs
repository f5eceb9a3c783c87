//! Where an entry is, and the result of changing it.

use crate::slot::Tag;

/// Where an entry is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) tag: Tag,
    pub(super) slot: u32,
}

/// The result of a change.
pub(super) enum Updated<T> {
    Written(T),
    /// There was nothing to change (the entry or its slot is gone), or no room.
    Gone,
    /// The host did not answer, or others kept writing.
    Failed,
}
