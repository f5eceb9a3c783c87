//! Local counters of a key: the token bucket, a POP's fair share of it, and the other algorithms.
//!
//! All are values: parameters, state and time go in, the new state comes out.

pub mod algorithm;
mod bucket;
mod share;
mod status;

pub use bucket::{Bucket, TakeResult};
pub(crate) use bucket::{Portion, missing_ns};
pub use share::EvenShare;
pub use status::BucketStatus;
