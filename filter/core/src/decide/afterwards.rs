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
    /// Charge what this reads from the response: [`crate::limiter::Limiter::charge`].
    Charge(Arc<After>),
}
