//! Decisions of a rate limiter at the edge: matching rules, buckets of their keys, outcome, and response to the client.
//!
//! This crate has no clock, no host and no IO. Time is an argument ([`weir_protocol::time::Time`]). The shared table is
//! behind a trait ([`table::Slots`]), and so is the request ([`weir_rules::request::Request`]). So a proxy
//! (`weir-filter`), a simulation and a test run the same code.
//!
//! [`engine::Engine`] is a worker without its IO; its module has an example. The basic counter is
//! a [`Bucket`](algorithms::Bucket).
#![no_std]
#![allow(missing_docs, reason = "a name that says all needs no comment")]
#![cfg_attr(not(test), deny(clippy::panic, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// 2^64 divided by the golden ratio, an odd number: multiplied by it, numbers close together are far apart in their
/// high bits (Knuth, "The Art of Computer Programming", vol. 3, 6.4: Fibonacci hashing).
pub const FIBONACCI: u64 = 0x9e37_79b9_7f4a_7c15;

/// True where slots are in the program's own memory, so that entries are changed in place. A sandboxed module copies
/// slots in and out, and contains no code for in-place changes.
pub(crate) const OWN_MEMORY: bool = cfg!(feature = "own_memory");

/// True where the host is next to the store, so that requests of strict rules can consume from the budget.
pub(crate) const NEXT_TO_STORE: bool = cfg!(feature = "takes");

pub mod algorithms;
pub mod check;
pub mod counters;
pub mod engine;
pub mod limiter;
pub mod response;
pub mod sync;
pub mod table;

use weir_rules::NO_RULE;

/// Index of a rule in the limiter's rules, valid until these are replaced. Messages number rules independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleIndex(u16);

impl RuleIndex {
    pub(crate) const NONE: Self = Self(NO_RULE);

    /// The rule at `place` in [`weir_rules::RuleSet::rules`].
    pub const fn new(place: u16) -> Self {
        Self(place)
    }

    /// [`RuleIndex::new`] for any number; `None` if it is too large.
    pub(crate) fn of(place: usize) -> Option<Self> {
        u16::try_from(place).ok().map(Self)
    }
}

impl From<RuleIndex> for usize {
    fn from(index: RuleIndex) -> Self {
        Self::from(index.0)
    }
}
