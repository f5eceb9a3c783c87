//! The result of judging a hit.

use crate::buckets::BucketStatus;
use crate::buckets::algorithm::Admitted;
use crate::table::slot::Tag;

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
