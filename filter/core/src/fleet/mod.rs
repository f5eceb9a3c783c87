//! A worker's side of the budget loop: reports of admitted tokens go out, grants and leases come in.
//!
//! ```text
//! reporting -> saying -> a report -> weir-sync -> a reply -> grants
//! draw      -> a report that one request waits for        -> in_hand -> own
//! gather    -> the reporter's list, if one edge reports for all workers of a program
//! ```

mod calls;
mod draw;
mod exchange;
mod gather;
mod grants;
mod in_hand;
pub mod ladder;
mod own;
mod parting;
mod reporting;
mod rule_sets;
mod saying;
#[cfg(feature = "takes")]
mod take;
#[cfg(feature = "takes")]
mod taken;
mod touch;
mod versions;
mod wish;

pub use calls::{DRAWS_MAX, Purpose, REPORTS_MAX};
pub(crate) use exchange::Exchange;
pub(crate) use in_hand::{InHand, Own};
pub use own::OWN_MAX;
pub use parting::PARTING_BYTES_MAX;
#[cfg(feature = "takes")]
pub(crate) use taken::Takes;
#[cfg(feature = "takes")]
pub use taken::{Take, Taken};
