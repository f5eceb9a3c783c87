//! What judging a hit found.

use crate::algorithm::Taken;
use crate::decision::Standing;
use crate::slot::Tag;

/// What a hit comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is room; this is how the client stands afterwards.
    Fits(Standing),
    /// Its bucket has too few.
    Short { wait_ns: u64, full_ns: u64 },
    /// Its admit ratio refuses this request.
    Thinned { wait_ns: u64, full_ns: u64 },
    /// Its key is banned by the rule's penalty.
    Banned { wait_ns: u64 },
    /// Its rule is strict, and too few tokens that were paid for are on hand.
    Unpaid,
    /// Its rule refuses everything while the POP is out of touch with weir-sync.
    Denied,
}

/// What judging a hit found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    /// The tag its bucket or cells live under: its own, or an overflow cell's.
    pub(super) tag: Tag,
    /// Whether other keys' debts or requests count against its bucket or cell.
    pub(super) is_shared: bool,
    /// Spent entries that made room for it.
    pub(super) evicted: u32,
    /// What it took, if its algorithm is not the token bucket.
    pub(super) taken: Option<Taken>,
}

impl Judged {
    pub(super) const NOT_YET: Self = Self::refused(Verdict::Unpaid, Tag::of_key(0, 0));

    /// With nothing taken.
    pub(super) const fn refused(verdict: Verdict, tag: Tag) -> Self {
        Self { verdict, tag, is_shared: false, evicted: 0, taken: None }
    }
}
