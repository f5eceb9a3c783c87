//! The place of an entry, and the result of changing it.

use crate::RuleIndex;
use crate::table::slot::Tag;
use weir_rules::key::KeyValue;

/// The place of an entry in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlace {
    pub(crate) tag: Tag,
    pub(crate) slot: u32,
}

/// A key under a rule, with the place of its entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedKey {
    pub(crate) place: EntryPlace,
    pub(crate) rule: RuleIndex,
    pub(crate) value: KeyValue,
}

/// The result of a change.
pub(crate) enum Updated<T> {
    Written(T),
    /// There was nothing to change (the entry or its slot is gone), or no room.
    Gone,
    /// The host failed, or all retries conflicted.
    Failed,
}
