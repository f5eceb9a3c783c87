//! Local counters of a key: the token bucket, a POP's fair share of it, and the other algorithms.
//!
//! All are values: parameters, state and time go in, the new state comes out.

pub mod algorithm;
mod bucket;
mod share;
mod standing;

pub use bucket::{Bucket, Take};
pub(crate) use bucket::{Portion, missing_ns};
pub use share::EvenShare;
pub use standing::Standing;
