//! The decision of a rate limiter at the edge: the matching rules of a request, the buckets of its keys, the
//! outcome, and the response to the client.
//!
//! This crate has no clock, no host and no IO. Time is an argument ([`weir_protocol::time::Time`]). The shared
//! table is behind a trait ([`table::Slots`]), and so is the request ([`weir_rules::request::Request`]). So a
//! proxy (`weir-filter`), a simulation and a test run the same code.
//!
//! [`engine::Engine`] is a whole worker except its IO. [`buckets::Bucket`] is the counter it is built on:
//!
//! ```
//! use weir_limiter::buckets::{Bucket, TakeResult};
//! use weir_protocol::quota::Quota;
//! use weir_protocol::time::Time;
//!
//! // A token each 100 ms, and a burst of one.
//! let quota = Quota::from_token_ns(100_000_000, 1)?;
//! let now = Time::from_nanos(1_000_000_000);
//! let TakeResult::Taken(bucket) = Bucket::FULL.take(&quota, 1, now) else { panic!("a full bucket has a token") };
//! let TakeResult::Short { wait_ns } = bucket.take(&quota, 1, now) else { panic!("it had one") };
//! assert_eq!(wait_ns, 100_000_000);
//! # Ok::<(), weir_protocol::quota::QuotaError>(())
//! ```
#![no_std]
#![cfg_attr(
    not(test),
    deny(clippy::panic, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// 2^64 divided by the golden ratio, an odd number: numbers that are close together, multiplied by it, are far apart in
/// their high bits (Knuth, "The Art of Computer Programming", vol. 3, 6.4: Fibonacci hashing).
pub const FIBONACCI: u64 = 0x9e37_79b9_7f4a_7c15;

/// True where slots lie in the program's own memory, so that entries are changed in place. A sandboxed module copies
/// slots in and out; everything behind this constant is left out of it.
pub(crate) const OWN_MEMORY: bool = cfg!(feature = "own_memory");

pub mod buckets;
pub mod counters;
pub mod decide;
pub mod engine;
pub mod fleet;
pub mod key;
pub mod limiter;
mod local;
pub mod response;
mod rule_index;
pub mod table;

pub use rule_index::RuleIndex;
