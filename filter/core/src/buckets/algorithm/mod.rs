//! The algorithms besides the token bucket: the state of one key, and what a request does to it.
//!
//! All are pure: a rule's parameters, state and time in, state out. A key's state is a [`Cell`] (several for a
//! [sliding log](sliding_log), a [`Bucket`](crate::buckets::Bucket) for a [leaky bucket](leaky_bucket)).
//! [`take`], [`charge`], [`give_back`] and [`standing`] do the same for every algorithm, over cells.
//!
//! Windows are named by their end, which the cell holds in full, so no window number ever wraps. A cell that
//! holds something goes on with its own windows; only a new one computes where its key's windows begin. So keys
//! can share a cell (an overflow cell), and few requests pay for that computation.
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

pub use cell::{Answer, CELLS_MAX, Cell, NEVER_NS};
pub use dispatch::{Receipt, Taken, charge, give_back, refund, standing, take};
