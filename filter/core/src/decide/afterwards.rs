//! What a decision leaves to do when its request ends: a release, if requests in flight are counted;
//! a charge, if the response tells the cost.

use alloc::sync::Arc;

use crate::buckets::algorithm::Receipt;
use crate::table::EntryPlace;
use weir_rules::after::After;
use weir_rules::algorithm::Algorithm;
use weir_rules::key::KeyValue;

/// Something to do once, when a request that was let through ends.
///
/// It names its bucket itself, so it can be done even if the rule set has been replaced since.
#[derive(Debug)]
pub struct Afterwards {
    /// What is to be done.
    pub what: What,
    pub(crate) algorithm: Algorithm,
    pub(crate) place: EntryPlace,
    pub(crate) value: KeyValue,
    /// Names the rule, whichever rule set is in force.
    pub(crate) salt: u64,
}

/// What is to be done when a request ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Release what it holds: [`crate::limiter::Limiter::release`].
    Release {
        /// Names what was acquired.
        receipt: Receipt,
        /// And how much.
        cost: u32,
    },
    /// Charge what it cost: [`crate::limiter::Limiter::charge`].
    Charge {
        /// Reads the cost from the response; without it, the host is told.
        after: Option<Arc<After>>,
        /// What the request took beforehand.
        reserved: Reserved,
    },
}

/// What a request took until it is known what it cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// So many tokens.
    pub tokens: u32,
    /// Into how many parts the rate was cut: a bucket was charged so many times as much.
    pub(crate) parts: u32,
    /// To give it back with; without one, it stays taken.
    pub(crate) receipt: Option<Receipt>,
    /// If the request drew it for itself, as its rule is strict: the name of what was drawn.
    pub(crate) epoch: Option<u32>,
}

impl Reserved {
    /// Nothing.
    pub(crate) const NOTHING: Self = Self { tokens: 0, parts: 1, receipt: None, epoch: None };
}
