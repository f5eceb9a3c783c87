//! Local counters of a key: the token bucket, a POP's fair share of it, and the other algorithms.
//!
//! All are pure: a rule's parameters, state and time in, state out. A key's state is a [`Cell`] (several for
//! a [sliding log](sliding_log), a [`Bucket`] for a [leaky bucket](leaky_bucket)). [`take`], [`charge`],
//! [`give_back`] and [`status`] are the same for every algorithm, over cells.
//!
//! A window is identified by its end, which the cell holds in full, so no window number ever wraps. A cell
//! that is not empty continues its own windows; only a new one computes the start of its key's windows. So
//! keys can share a cell (an overflow cell), and few requests pay for that computation.
//!
//! A `now` earlier than one seen before shows less room, never more (invariant I8).

mod cell;
pub mod concurrency;
mod dispatch;
mod fair_share;
pub mod fixed_window;
pub mod leaky_bucket;
pub mod reserved;
pub mod sliding_log;
pub mod sliding_window;
mod token_bucket;

pub use cell::{Admission, CELLS_MAX, Cell, NEVER_NS, Receipt};
pub use dispatch::{Admitted, charge, give_back, refund, status, take};
pub use fair_share::FairShare;
pub use token_bucket::{Bucket, BucketStatus};
pub(crate) use token_bucket::{Portion, deepest_ns, missing_ns};
