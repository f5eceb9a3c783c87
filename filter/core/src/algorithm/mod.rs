//! The algorithms beside the token bucket: the state of one key, and what a request does to it.
//!
//! All are pure: a rule's parameters, state and time in, state out. A key's state is a [`Cell`] (of a
//! [sliding log](sliding_log), several; of a [leaky bucket](leaky_bucket), a [`Bucket`](crate::bucket::Bucket)).
//! [`take`], [`charge`], [`give_back`] and [`standing`] do the same for all, over cells.
//!
//! Windows are named by the time at which they end, which the cell holds in full; no number of a window
//! ever wraps. A cell that holds something goes on with its own windows, and only a new one asks where the
//! windows of its key begin: so a cell may be shared by keys (an overflow cell), and no request divides.
//!
//! A `now` earlier than one seen before reads as less room, never as more (invariant I8).

mod cell;
pub mod concurrency;
mod debt;
mod dispatch;
pub mod fixed_window;
pub mod leaky_bucket;
mod pair;
pub mod sliding_log;
pub mod sliding_window;

#[cfg(test)]
mod boundary_burst;

pub use cell::{Answer, CELLS_MAX, Cell, NEVER_NS};
pub use dispatch::{Receipt, Taken, charge, give_back, standing, take};
