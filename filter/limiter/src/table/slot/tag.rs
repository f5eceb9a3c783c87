//! Tags, which identify entries in their slots.

use crate::FIBONACCI;

/// Set in the tag of an overflow cell, not in a key's.
const OVERFLOW_BIT: u64 = 1 << 63;
/// Set in the tag of another algorithm's cell, not in a bucket's: no debt can replace a cell.
const CELL_BIT: u64 = 1 << 62;
/// Position of a rule's group in a tag.
const GROUP_SHIFT: u32 = 58;
/// Bits of a tag that come from its rule's salt alone.
const RULE_BITS: u64 = u64::MAX << GROUP_SHIFT;

/// The tag of an entry in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(pub(super) u64);

impl Tag {
    /// Bits of a rule's group.
    pub(super) const GROUP_BITS: u32 = 4;

    /// A rule's salt, made from a hash; `is_cell` if its keys are counted in cells instead of buckets.
    pub(crate) const fn salt(hash: u64, is_cell: bool) -> u64 {
        if is_cell { hash | CELL_BIT } else { hash & !CELL_BIT }
    }

    /// The tag of a key under the rule with this salt.
    pub(crate) const fn of_key(key_tag: u64, rule_salt: u64) -> Self {
        Self((key_tag & !RULE_BITS ^ rule_salt) & !OVERFLOW_BIT)
    }

    /// The tag of the same key under the rule with `other_salt`, if this is the one under the rule with `salt`.
    #[must_use]
    pub(crate) const fn under(self, salt: u64, other_salt: u64) -> Self {
        Self(self.0 ^ (salt ^ other_salt) & !OVERFLOW_BIT)
    }

    pub(crate) const fn of_overflow(rule_salt: u64) -> Self {
        Self(rule_salt | OVERFLOW_BIT | CELL_BIT)
    }

    pub(crate) const fn is_overflow(self) -> bool {
        self.0 & OVERFLOW_BIT != 0
    }

    pub(crate) const fn is_cell(self) -> bool {
        self.0 & CELL_BIT != 0
    }

    /// The group of its rule; only for a bucket's tag.
    pub(super) const fn group(self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "a few bits")]
        let group = (self.0 >> GROUP_SHIFT) as u32 & ((1 << Self::GROUP_BITS) - 1);
        group
    }

    /// The `i`-th tag of this key: this tag itself for 0, a cell's for the others.
    #[must_use]
    pub(crate) const fn beside(self, i: u8) -> Self {
        if i == 0 {
            return self;
        }
        // The factor is odd, so all 256 differ; the overflow bit stays as it is.
        Self((self.0 ^ (i as u64).wrapping_mul(FIBONACCI) & !OVERFLOW_BIT) | CELL_BIT)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}
