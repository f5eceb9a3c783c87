//! The algorithms besides the token bucket: the state of one key, and the effect of a request on it.
//!
//! All are pure: a rule's parameters, state and time in, state out. A key's state is a [`Cell`] (several for
//! a [sliding log](sliding_log), a [`Bucket`](crate::buckets::Bucket) for a [leaky bucket](leaky_bucket)).
//! [`take`], [`charge`], [`give_back`] and [`standing`] are the same for every algorithm, over cells.
//!
//! A window is identified by its end, which the cell holds in full, so no window number ever wraps. A cell
//! that is not empty continues its own windows; only a new one computes the start of its key's windows. So
//! keys can share a cell (an overflow cell), and few requests pay for that computation.
//!
//! A `now` earlier than one seen before shows less room, never more (invariant I8).

mod cell;
pub mod concurrency;
mod debt;
mod dispatch;
pub mod fixed_window;
pub mod leaky_bucket;
mod pair;
pub mod reserved;
pub mod sliding_log;
pub mod sliding_window;

#[cfg(test)]
mod boundary_burst;

pub use cell::{Admission, CELLS_MAX, Cell, NEVER_NS};
pub use dispatch::{Admitted, Receipt, charge, give_back, refund, standing, take};
