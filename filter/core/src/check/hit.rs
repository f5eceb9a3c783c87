//! A hit, and buffers that are reused for every request.

use alloc::vec::Vec;

use crate::RuleIndex;
use crate::algorithms::{Admitted, BucketStatus};
use crate::check::keys::KeyId;
use crate::key::KeyHash;
use crate::table::slot::{Slot, Tag};
use crate::table::{EntryPlace, LoadedSlot};
use weir_rules::matching::Bits;
use weir_rules::request::Values;

/// Buffers that are reused for every request.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) values: Values,
    /// Conditions that the request may meet.
    pub(crate) conditions: Bits,
    /// Indices of the matching rules.
    pub(crate) met: Vec<u16>,
    /// Matching rules that are tiers without a limit.
    pub(crate) unlimited: Vec<RuleIndex>,
    pub(crate) hits: Vec<Hit>,
    /// Hits of rules that are not enforced for the request's key.
    pub(crate) shadow: Vec<Hit>,
    pub(crate) loaded: Vec<LoadedSlot>,
    /// Spare slots to read into.
    pub(crate) rooms: Vec<Slot>,
}

/// A rule that counts the request, and the place of the key's bucket.
pub(crate) struct Hit {
    pub(crate) rule: RuleIndex,
    pub(crate) key: KeyId,
    pub(crate) tag: Tag,
    pub(crate) slot: u32,
    /// Tokens that the request costs.
    pub(crate) cost: u32,
    /// True if the rule is in shadow for this key.
    pub(crate) is_shadow: bool,
    /// True if the watch list has counted this request.
    pub(crate) watched: bool,
    /// True if the key's admit ratio was applied to this request.
    pub(crate) thinned: bool,
    pub(crate) judged: HitResult,
}

impl Hit {
    pub(crate) fn of(
        rule: RuleIndex,
        key: KeyId,
        hash: KeyHash,
        salt: u64,
        slot_count: u32,
        cost: u32,
    ) -> Self {
        Self {
            rule,
            key,
            tag: Tag::of_key(hash.tag, salt),
            slot: slot_of(hash.place, slot_count),
            cost,
            is_shadow: false,
            watched: false,
            thinned: false,
            judged: HitResult::NOT_YET,
        }
    }

    pub(crate) fn place(&self) -> EntryPlace {
        EntryPlace { tag: self.tag, slot: self.slot }
    }
}

/// Maps hashes evenly to slots without a division (Lemire, "Fast random integer generation in an interval",
/// 2019, section 3).
pub(crate) fn slot_of(place: u64, count: u32) -> u32 {
    let spread = (u128::from(place) * u128::from(count)) >> 64;
    u32::try_from(spread).unwrap_or(0)
}

/// The verdict on a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HitDecision {
    /// The tokens are there; carries the quota status without them.
    Fits(BucketStatus),
    /// The bucket has too few tokens.
    Short { wait_ns: u64 },
    /// The key's admit ratio refuses this request.
    Thinned { wait_ns: u64 },
    /// The key is banned, by the rule's penalty or by an operator.
    Banned { wait_ns: u64 },
    /// The rule is strict, and the POP holds too few tokens that the budget was debited for.
    Unpaid,
    /// The rule fails closed, and the POP is offline.
    Denied,
}

/// The result of judging a hit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HitResult {
    pub(crate) verdict: HitDecision,
    /// Tag of the bucket or cells: the key's own, or that of an overflow cell.
    pub(crate) tag: Tag,
    /// True if debts or requests of other keys count against this bucket or cell.
    pub(crate) is_shared: bool,
    /// Number of spent entries that were dropped to make room.
    pub(crate) evicted: u32,
    /// Record of the tokens taken, if they are in cells or reserved.
    pub(crate) taken: Option<Admitted>,
}

impl HitResult {
    pub(crate) const NOT_YET: Self = Self::refused(HitDecision::Unpaid, Tag::of_key(0, 0));

    /// A verdict with nothing taken.
    pub(crate) const fn refused(verdict: HitDecision, tag: Tag) -> Self {
        Self { verdict, tag, is_shared: false, evicted: 0, taken: None }
    }
}
