//! A worker's side of the budget loop: reports of admitted tokens go out, grants and leases come in.
//!
//! ```text
//! reporting -> saying -> a report -> weir-sync -> a reply -> grants
//! draw      -> a report that one request waits for        -> in_hand -> own
//! gather    -> the reporter's list, if one engine reports for all workers of a program
//! ```

mod acquire;
mod acquired;
mod calls;
pub mod connectivity;
#[cfg(feature = "takes")]
mod consume;
#[cfg(feature = "takes")]
mod consumed;
mod contact;
mod exchange;
mod gather;
mod grants;
mod handover;
mod own_epochs;
mod report_builder;
mod reporting;
mod rule_sets;
mod versions;
mod wish;

pub(crate) use acquired::{AcquiredTokens, OwnEpoch};
pub use calls::{CallPurpose, DRAWS_MAX, REPORTS_MAX};
#[cfg(feature = "takes")]
pub(crate) use consumed::ConsumeState;
#[cfg(feature = "takes")]
pub use consumed::{Consume, ConsumeReply};
pub(crate) use exchange::SyncState;
pub use handover::PARTING_BYTES_MAX;
pub use own_epochs::OWN_MAX;
