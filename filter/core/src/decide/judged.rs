//! What judging a hit found.

use crate::buckets::Standing;
use crate::buckets::algorithm::Taken;
use crate::table::slot::Tag;

/// What a hit comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is room; this is how the client stands afterwards.
    Fits(Standing),
    /// Its bucket has too few.
    Short { wait_ns: u64 },
    /// Its admit ratio refuses this request.
    Thinned { wait_ns: u64 },
    /// Its key is banned by the rule's penalty.
    Banned { wait_ns: u64 },
    /// Its rule is strict, and too few tokens that were paid for are on hand.
    Unpaid,
    /// Its rule refuses everything while the POP is out of touch with weir-sync.
    Denied,
}

/// What judging a hit found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    /// The tag its bucket or cells live under: its own, or an overflow cell's.
    pub(crate) tag: Tag,
    /// Whether other keys' debts or requests count against its bucket or cell.
    pub(crate) is_shared: bool,
    /// Spent entries that made room for it.
    pub(crate) evicted: u32,
    /// What it took, if its algorithm is not the token bucket.
    pub(crate) taken: Option<Taken>,
}

impl Judged {
    pub(crate) const NOT_YET: Self = Self::refused(Verdict::Unpaid, Tag::of_key(0, 0));

    /// With nothing taken.
    pub(crate) const fn refused(verdict: Verdict, tag: Tag) -> Self {
        Self { verdict, tag, is_shared: false, evicted: 0, taken: None }
    }
}
