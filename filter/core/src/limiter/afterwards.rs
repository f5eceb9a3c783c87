//! What a decision leaves to be done when its request ends: release it, where requests in flight are
//! counted; charge it, where the response tells what it cost.

use alloc::sync::Arc;

use crate::algorithm::Receipt;
use crate::slot::Tag;
use weir_rules::after::After;
use weir_rules::algorithm::Algorithm;
use weir_rules::key::KeyValue;

/// Something to be done once, when a request that was let through ends.
///
/// It names its bucket by itself, so that it can be done under another rule set than the one it was made
/// under.
#[derive(Debug)]
pub struct Afterwards {
    /// What is to be done.
    pub what: What,
    pub(super) algorithm: Algorithm,
    pub(super) tag: Tag,
    pub(super) slot: u32,
    pub(super) value: KeyValue,
    /// Names the rule, whichever rule set is in force.
    pub(super) salt: u64,
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
    /// Charge what this tells of its response: [`crate::limiter::Limiter::charge`].
    Charge(Arc<After>),
}
